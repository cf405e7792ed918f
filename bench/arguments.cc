#include "bench/arguments.h"

#include <algorithm>

namespace skippy::bench {

Status ParseArguments(CLI::App& app, std::vector<std::string> arguments) {
  std::reverse(arguments.begin(), arguments.end());  // as the parser wants them
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return MakeError(ErrorCode::kInvalidArgument, error.what());
  }
  return {};
}

}  // namespace skippy::bench
