// A configuration file as a flat list of settings. The only place that knows TOML.
#pragma once

#include <string>
#include <vector>

#include "skippy/result.h"

namespace skippy {

struct ConfigSetting {
  enum class Kind { kText, kInteger, kBoolean, kEmptyArray, kOther };
  std::string key;  // dotted: "runtime.kv_cache.disk.mode"
  Kind kind = Kind::kOther;
  std::string text;  // the value as text; one setting per element of an array
  int line = 0;
  bool in_array = false;
};

// kNotFound, kIo: the file cannot be read. kInvalidArgument: it is not TOML; the text has the line.
Result<std::vector<ConfigSetting>> ReadConfigFile(const std::string& path);

// The same for text that was read already.
Result<std::vector<ConfigSetting>> ParseConfigText(const std::string& text);

}  // namespace skippy
