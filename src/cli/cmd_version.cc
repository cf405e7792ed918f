#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/command_line.h"

namespace skippy {

std::string VersionText() { return "skippy " SKIPPY_VERSION " (llama.cpp v0.4.0)"; }

void AddVersionCommand(CLI::App& app, int*) {
  app.add_subcommand("version", "Print the version")->callback([] {
    std::puts(VersionText().c_str());
  });
}

}  // namespace skippy
