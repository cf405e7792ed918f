#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>

#include "cli/serve_flags.h"

namespace skippy {
namespace {

void PrintError(const std::string& text) {
  std::string line = text;
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::fprintf(stderr, "skippy: %s\n", line.c_str());
}

}  // namespace

int RunCommandLine(std::vector<std::string> arguments) {
  int exit_status = 0;
  CLI::App app("An LLM server whose computed state survives the request and the process.",
               "skippy");
  app.require_subcommand(1);
  app.set_version_flag("--version", VersionText());
  AddServeCommand(app, &exit_status);
  AddKvCacheCommand(app, &exit_status);
  AddBenchCommand(app, &exit_status);
  AddOptionsCommand(app, &exit_status);
  AddVersionCommand(app, &exit_status);
  if (!arguments.empty() && arguments.front() == "serve") {
    NormalizeFlagSpellings(&arguments);
  }
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    app.parse(arguments);
  } catch (const CLI::Success& request) {
    return app.exit(request);  // help or version
  } catch (const CLI::ParseError& error) {
    PrintError(std::string(error.what()) + " (see skippy --help)");
    return kExitUsage;
  } catch (const std::exception& error) {
    PrintError(error.what());
    return kExitFailed;
  }
  return exit_status;
}

}  // namespace skippy
