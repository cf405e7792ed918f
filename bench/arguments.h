// The arguments of one benchmark, behind its name on the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "skippy/result.h"

namespace skippy::bench {

// kInvalidArgument names what was wrong.
Status ParseArguments(CLI::App& app, std::vector<std::string> arguments);

}  // namespace skippy::bench
