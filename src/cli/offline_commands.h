// `skippy kv-cache verify|inspect|repair`: for a store that no server runs on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/kv_cache_commands.h"
#include "skippy/env.h"

namespace skippy {

struct OfflineArguments {
  enum class Verb { kVerify, kInspect, kRepair };
  Verb verb = Verb::kVerify;
  std::string directory;
  std::optional<std::string> rate;  // SIZE read in a second, at most
  bool json = false;
  bool yes = false;
  bool show_progress = false;
};

// Returns the exit status: 0 when the store is sound (repair: is now), kExitFailed when it is not
// or could not be opened.
int RunOffline(const OfflineArguments& arguments, const Console& console, Env* env);

}  // namespace skippy
