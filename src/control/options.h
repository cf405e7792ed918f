// The resolved configuration of `skippy serve`: what each part is opened with, and which source
// each value came from. The rows behind it are in option_table.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "skippy/options.h"
#include "skippy/result.h"

namespace skippy {

// Where a value came from; ascending precedence.
enum class OptionSource { kDefault, kLegacyEnvironment, kConfig, kEnvironment, kCli };
std::string_view ToString(OptionSource source);  // "default", "legacy_environment", ...

// The disk tier as it was asked for; status repeats it, whatever became of it.
struct DiskConfiguration {
  DiskOptions options;
  OptionSource mode_source = OptionSource::kDefault;
  OptionSource directory_source = OptionSource::kDefault;
  OptionSource budget_source = OptionSource::kDefault;
  OptionSource minimum_free_source = OptionSource::kDefault;
};

struct ListenOptions {
  std::string host = "127.0.0.1";
  int port = 9337;  // 0: any free one
  std::vector<std::string> api_keys;
  bool isolate_by_key = false;  // clients with different keys share no cached state
  bool explain_text = true;     // explanations may quote prompts
  std::string ssl_cert_file;    // both or none
  std::string ssl_key_file;
};

struct ManagementListenOptions {
  std::string host = "127.0.0.1";  // a loopback address
  std::optional<int> port = 3131;  // 0: any free one; nullopt: no management API
};

struct ServeConfiguration {
  EngineOptions engine;
  DiskConfiguration disk;
  RamOptions ram;
  ListenOptions listen;
  ManagementListenOptions management;
  std::string log_level = "info";
  // One line each, for the log: deprecated or ignored settings.
  std::vector<std::string> warnings;

  CacheOptions cache() const {
    CacheOptions out;
    out.disk = disk.options;
    out.ram = ram;
    return out;
  }
};

// Everything a configuration is made of. Nothing else is read but the file named by --config.
struct OptionInputs {
  // Option name (option_table.h) and the value given for it, in the order given.
  std::vector<std::pair<std::string, std::string>> cli;
  // Value of an environment variable, nullopt when unset.
  std::function<std::optional<std::string>(const std::string& variable)> environment;
};

// Resolves every option by itself: command line, environment, configuration file, legacy
// environment, default. kInvalidArgument: the first bad setting, in one line that names the
// setting, its value and what was expected. Every given value is checked, also one that loses.
Result<ServeConfiguration> ResolveOptions(const OptionInputs& inputs);

// The reference page of all options (docs/configuration.md).
std::string OptionsMarkdown();

}  // namespace skippy
