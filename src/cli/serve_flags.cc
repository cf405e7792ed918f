#include "cli/serve_flags.h"

#include <spdlog/fmt/fmt.h>

#include <CLI/CLI.hpp>
#include <string_view>

#include "control/option_table.h"

namespace skippy {
namespace {

template <class Use>
void ForEachSpelling(const OptionSpec& spec, Use use) {
  std::string_view rest = spec.other_flags;
  while (!rest.empty()) {
    const std::size_t space = std::min(rest.find(' '), rest.size());
    use(rest.substr(0, space));
    rest.remove_prefix(std::min(space + 1, rest.size()));
  }
}

// "-np": one dash, more than one letter.
bool IsLongWithOneDash(std::string_view flag) {
  return flag.size() > 2 && flag[0] == '-' && flag[1] != '-';
}

std::string_view LongFormOf(std::string_view flag) {
  std::string_view found;
  for (const OptionSpec& spec : OptionTable()) {
    ForEachSpelling(spec, [&](std::string_view spelling) {
      if (spelling == flag) {
        found = spec.long_flag;
      }
    });
  }
  return found;
}

std::string ParserNames(const OptionSpec& spec) {
  std::string names(spec.long_flag);
  ForEachSpelling(spec, [&](std::string_view spelling) {
    if (!IsLongWithOneDash(spelling)) {
      names += fmt::format(",{}", spelling);
    }
  });
  return names;
}

std::string HelpOf(const OptionSpec& spec) {
  std::string shown;
  ForEachSpelling(spec, [&](std::string_view spelling) {
    if (IsLongWithOneDash(spelling)) {
      shown += fmt::format("{}; ", spelling);
    }
  });
  return fmt::format("{}{} (default: {})", shown, spec.help, spec.default_text);
}

}  // namespace

void NormalizeFlagSpellings(std::vector<std::string>* arguments) {
  for (std::string& argument : *arguments) {
    const std::size_t end = std::min(argument.find('='), argument.size());
    const std::string flag = argument.substr(0, end);
    if (!IsLongWithOneDash(flag)) {
      continue;
    }
    const std::string_view long_form = LongFormOf(flag);
    if (!long_form.empty()) {
      argument = std::string(long_form) + argument.substr(end);
    }
  }
}

void AddServeFlags(CLI::App& app, GivenFlags* given) {
  for (const OptionSpec& spec : OptionTable()) {
    if (spec.long_flag.empty()) {
      continue;
    }
    std::vector<std::string>& values = (*given)[std::string(spec.name)];
    if (spec.type == OptionType::kSwitch) {
      app.add_flag(ParserNames(spec), values, HelpOf(spec));
      continue;
    }
    app.add_option(ParserNames(spec), values, HelpOf(spec))
        ->allow_extra_args(false)
        ->type_name(std::string(spec.value_name));
  }
}

std::vector<std::pair<std::string, std::string>> ToPairs(const GivenFlags& given) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [name, values] : given) {
    for (const std::string& value : values) {
      out.emplace_back(name, value);
    }
  }
  return out;
}

}  // namespace skippy
