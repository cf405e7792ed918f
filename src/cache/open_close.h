// From a directory to a disk tier that may serve: root safety, owner lock, budget, catalog, packs,
// and the repair of what a crash left.
#pragma once

#include <cstdint>
#include <string>

#include "cache/shared_state.h"
#include "skippy/result.h"

namespace skippy {

// Names inside a root, with their slash.
inline constexpr char kOwnerLockName[] = "/.owner.lock";
inline constexpr char kCatalogFileName[] = "/catalog.db";
inline constexpr char kPacksFolderName[] = "/packs";

// Creates missing parts (0700), refuses links and network file systems, restricts the directory to
// its owner. Returns the canonical path.
Result<std::string> PrepareRoot(Env* env, const std::string& directory);

// Moves a damaged catalog out of the way, so that a new one can begin. One of at most `keep_bytes`
// is kept for people to look at, others are deleted.
Status PutAsideCatalog(Env* env, const std::string& root, std::uint64_t keep_bytes);

// Opens the disk tier that the options name and loads what it holds. On an error the tier stays
// off and nothing was deleted. Called once, before other threads see `shared`.
Status OpenDiskTier(SharedState& shared);

}  // namespace skippy
