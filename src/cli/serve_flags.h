// The flags of `skippy serve`, made from the option table.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace skippy {

// Option name -> values given, in order. Addresses of the vectors must stay valid while parsing.
using GivenFlags = std::map<std::string, std::vector<std::string>>;

// llama-server's flags have spellings of several letters behind one dash (-np, -ngl), which the
// parser does not know: turns them, also as -np=4, into their long form.
void NormalizeFlagSpellings(std::vector<std::string>* arguments);

// One flag per row of the table that has one. `given` outlives the parse.
void AddServeFlags(CLI::App& app, GivenFlags* given);

std::vector<std::pair<std::string, std::string>> ToPairs(const GivenFlags& given);

}  // namespace skippy
