// The public status of the cache as JSON text (version 1) and as Prometheus text. Field names are
// part of the contract: docs/kv_cache.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "control/options.h"
#include "engine/engine.h"
#include "skippy/stats.h"

namespace skippy {

inline constexpr int kStatusVersion = 1;
// Of the cache root: packs and catalog carry the same number.
inline constexpr int kStoreFormatVersion = 1;

// One moment of everything that status shows.
struct StatusSnapshot {
  DiskConfiguration configured;
  CacheStatus cache;
  std::optional<ModelInfo> model;  // nullopt while the model loads
  std::optional<EngineStatus> engine;
};

std::string StatusJson(const StatusSnapshot& snapshot);

// The reply of prune and clear: what it freed and the status after it.
std::string MutationJson(std::uint64_t freed_bytes, const StatusSnapshot& snapshot);

// Text format 0.0.4.
std::string MetricsText(const StatusSnapshot& snapshot);

}  // namespace skippy
