// The one table of options. Flags, configuration keys, environment names, defaults, ranges, help
// and the reference page all come from its rows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "control/options.h"
#include "skippy/result.h"

namespace skippy {

enum class OptionType {
  kText,          // any text that is not empty
  kList,          // comma-separated texts; repeatable
  kNumber,        // whole number in [low, high]
  kChoice,        // one of `choices`, separated by '|'
  kFlashChoice,   // on|off|auto; enabled|disabled|auto in the file
  kGpuLayers,     // whole number, auto or all
  kAbsolutePath,  // starts with '/'
  kByteSize,      // SIZE of at least `low` bytes; whole MiB in the file
  kMebibytes,     // whole number of MiB from 0, or auto
  kDiskMode,      // off|auto|SIZE; off|auto|fixed in the file
  kPortOrOff,     // 0..65535 or off
  kLoopbackHost,  // localhost, ::1, 127.x.x.x
  kScaledList,    // comma-separated FILE:SCALE; repeatable
  kShares,        // comma-separated numbers, none negative, not all 0
  kSwitch,        // a flag without a value; true or false in the file
};

enum class ApplyMode { kRestart, kLive };

// One value after its text was checked. What is set depends on the type.
struct OptionValue {
  std::string text;
  std::int64_t number = 0;
  std::uint64_t byte_count = 0;
};

struct OptionSpec {
  std::string_view name;         // unique; what OptionInputs::cli refers to
  std::string_view long_flag;    // "--ctx-size"; empty: no flag
  std::string_view other_flags;  // further spellings, separated by ' ': "-c", "-np", "-a"
  std::string_view value_name;   // in help: "N", "SIZE"
  std::string_view toml_key;     // dotted; empty: not in the file
  std::string_view environment;  // empty: none
  OptionType type = OptionType::kText;
  std::string_view unit;          // of a number: "tokens", "threads"
  std::string_view default_text;  // for people
  std::int64_t low = 0;           // kNumber, kByteSize
  std::int64_t high = 0;          // kNumber
  std::string_view choices;       // kChoice
  ApplyMode apply = ApplyMode::kRestart;
  std::string_view help;
  // Puts a checked value into the configuration. Null: ResolveOptions handles the option itself,
  // because it depends on others.
  void (*set)(const OptionValue& value, ServeConfiguration* out) = nullptr;
};

std::span<const OptionSpec> OptionTable();

// Null when no option has that name.
const OptionSpec* FindOption(std::string_view name);

bool IsRepeatable(const OptionSpec& spec);

// What a value must look like, for messages and the reference page. `in_file`: as a configuration
// key.
std::string Expectation(const OptionSpec& spec, bool in_file);

// Checks a value. `in_file`: by the rules of configuration keys. kInvalidArgument's text has the
// value and the expectation; the caller adds which setting it was.
Result<OptionValue> ParseOptionValue(const OptionSpec& spec, const std::string& text, bool in_file);

// Whether `path` is absolute on this host. The one rule for validation and for opening.
bool IsAbsolutePath(std::string_view path);

}  // namespace skippy
