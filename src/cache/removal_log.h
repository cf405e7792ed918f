// Remembers the last prefixes that were removed, so that a miss can be explained. In memory only.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "skippy/cache.h"
#include "skippy/ids.h"

namespace skippy {

// One removed segment: the path up to its end could be restored until then.
struct RemovalEntry {
  PathHash end_hash;
  TokenCount end_token = 0;
  std::chrono::nanoseconds removed_at{0};  // since the epoch
  RemovalCause cause = RemovalCause::kEviction;
};

// Bounded; the oldest entries are forgotten first. Not thread-safe.
class RemovalLog {
 public:
  static constexpr std::size_t kEntriesMax = 8192;

  void Add(const RemovalEntry& entry);
  std::vector<RemovalEntry> entries() const { return {entries_.begin(), entries_.end()}; }

 private:
  std::deque<RemovalEntry> entries_;
};

// The entry of the longest prefix of `tokens`, of several the latest. Hashes the path once.
std::optional<RemovedPrefix> FindRemovedPrefix(std::vector<RemovalEntry> entries,
                                               const StateIdentity& state,
                                               std::string_view name_space,
                                               std::span<const Token> tokens);

}  // namespace skippy
