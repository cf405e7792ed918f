#include "cache/removal_log.h"

#include <algorithm>

#include "index/prefix_index.h"

namespace skippy {

void RemovalLog::Add(const RemovalEntry& entry) {
  entries_.push_back(entry);
  if (entries_.size() > kEntriesMax) entries_.pop_front();
}

std::optional<RemovedPrefix> FindRemovedPrefix(std::vector<RemovalEntry> entries,
                                               const StateIdentity& state,
                                               std::string_view name_space,
                                               std::span<const Token> tokens) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.end_token < b.end_token; });
  std::optional<RemovedPrefix> found;
  PathHasher hasher(state, name_space);
  std::size_t hashed = 0;
  PathHash hash = hasher.Finish();
  for (const RemovalEntry& entry : entries) {
    const auto end = static_cast<std::size_t>(entry.end_token);
    if (end > tokens.size()) break;
    if (end > hashed) {
      hasher.Update(tokens.subspan(hashed, end - hashed));
      hashed = end;
      hash = hasher.Finish();
    }
    if (hash == entry.end_hash) {
      found = RemovedPrefix{entry.end_token, entry.removed_at, entry.cause};
    }
  }
  return found;
}

}  // namespace skippy
