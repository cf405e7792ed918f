#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/command_line.h"
#include "control/option_table.h"

namespace skippy {
namespace {

void PrintShortList() {
  for (const OptionSpec& spec : OptionTable()) {
    const std::string name(spec.long_flag.empty() ? spec.toml_key : spec.long_flag);
    std::printf("%-40s %.*s\n", name.c_str(), static_cast<int>(spec.default_text.size()),
                spec.default_text.data());
  }
}

}  // namespace

void AddOptionsCommand(CLI::App& app, int*) {
  CLI::App* command = app.add_subcommand("options", "List every option of serve");
  const auto markdown = std::make_shared<bool>(false);
  command->add_flag("--markdown", *markdown, "the whole reference page");
  command->callback([markdown] {
    if (*markdown) {
      std::fputs(OptionsMarkdown().c_str(), stdout);
    } else {
      PrintShortList();
    }
  });
}

}  // namespace skippy
