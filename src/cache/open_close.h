// From a directory to a disk tier that may serve: root safety, owner lock, budget, catalog, packs,
// and the repair of what a crash left.
#pragma once

#include <string>

#include "cache/shared_state.h"
#include "skippy/result.h"

namespace skippy {

// Creates missing parts (0700), refuses links and network file systems, restricts the directory to
// its owner. Returns the canonical path.
Result<std::string> PrepareRoot(Env* env, const std::string& directory);

// Opens the disk tier that the options name and loads what it holds. On an error the tier stays
// off and nothing was deleted. Called once, before other threads see `shared`.
Status OpenDiskTier(SharedState& shared);

}  // namespace skippy
