// Every benchmark of `skippy bench NAME`: one row of a table, one function that runs it and returns
// what it found. A benchmark lives in bench/<name>.cc, declares its run function here below and
// adds its row in registry.cc.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "skippy/result.h"

namespace skippy::bench {

// One figure and what it rests on. `table` is for people and may have many lines.
struct BenchReport {
  std::string name;
  double figure = 0;
  std::string unit;
  std::string goal;                           // in words: "<= 1/10", ">= 0.98"
  std::map<std::string, std::string> inputs;  // sizes, repeats, seeds, model, machine
  std::string table;
};

struct Benchmark {
  std::string_view name;
  std::string_view goal;
  std::string_view help;  // one line for `skippy bench --list`
  // `args`: what followed the name on the command line. kInvalidArgument names a bad argument.
  Result<BenchReport> (*run)(const std::vector<std::string>& args);
};

// All benchmarks, in the order in which --list shows them.
std::span<const Benchmark> Benchmarks();

}  // namespace skippy::bench
