// The fields of the disk tier, which depend on each other and on legacy variables (acceptance
// J.1). Used by options.cc alone.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/option_table.h"
#include "control/options.h"
#include "skippy/result.h"

namespace skippy {

// A checked value and where it came from.
struct GivenValue {
  OptionValue value;
  OptionSource source = OptionSource::kDefault;
};

// Option name -> the values of the highest source that gave any; one value unless repeatable.
using GivenOptions = std::map<std::string, std::vector<GivenValue>>;

using EnvironmentReader = std::function<std::optional<std::string>(const std::string& variable)>;

// nullopt when unset. kInvalidArgument when it is not UTF-8; the text names the variable.
Result<std::optional<std::string>> ReadVariable(const EnvironmentReader& environment,
                                                const std::string& variable);

// Sets out->disk, the directory of digest memos, and warnings about legacy variables.
Status ResolveDiskOptions(const GivenOptions& given, const EnvironmentReader& environment,
                          ServeConfiguration* out);

}  // namespace skippy
