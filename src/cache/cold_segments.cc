// Segments that nobody asked for since the process started: the index knows their tokens by hashes,
// the ledger who needs them, and the catalog the rest.
#include <algorithm>
#include <string>
#include <utility>

#include "base/log.h"
#include "cache/cache_impl.h"

namespace skippy {
namespace {

// Loaded for one path: each step of it, and what begins like it.
constexpr std::size_t kWarmedPerPathMax = 8192;

bool IsSameSegment(const LedgerSegment& known, const SegmentRow& row) {
  return known.domain == row.domain && known.parent == row.parent && known.kind == row.kind &&
         known.first_token == row.first_token && known.token_count == row.token_count &&
         known.byte_count == row.byte_count;
}

// The disk failed: the row itself may be as good as ever.
bool IsUnreadable(const Error& error) {
  return error.code != ErrorCode::kCorrupt && error.code != ErrorCode::kNotFound;
}

}  // namespace

bool SharedState::IsCold(SegmentId id) const {
  return !tables.places.contains(id) && tables.ledger.FindSegment(id) != nullptr;
}

bool SharedState::IsDurable(SegmentId id) const {
  const auto place = tables.places.find(id);
  return place == tables.places.end() ? tables.ledger.FindSegment(id) != nullptr
                                      : place->second.disk != nullptr;
}

bool SharedState::WarmSegment(SegmentId id) {
  const Result<SegmentWithTokens> loaded = disk.catalog->LoadWithTokens(id);
  MutexLock lock(mu);
  if (!IsCold(id)) return true;
  if (!loaded && IsUnreadable(loaded.error())) {
    tables.activity.last_error = loaded.error().text;
    LogWarning("cache: {}", loaded.error().text);
    return false;
  }
  if (loaded && IsSameSegment(*tables.ledger.FindSegment(id), loaded->row) &&
      tables.index.Warm(id, loaded->tokens)) {
    const SegmentRow& row = loaded->row;
    tables.places.emplace(
        id, Place{.pending = nullptr,
                  .in_ram = false,
                  .disk = std::make_shared<StoredExtents>(disk.packs.get(), row.extents),
                  .digest = row.digest,
                  .end_hash = row.end_hash,
                  .byte_count = row.byte_count,
                  .end_token = row.first_token + row.token_count});
    return true;
  }
  RemoveSubtree(id, RemovalCause::kDamage);
  ++tables.activity.corrupt_entries;
  tables.activity.last_error = "segment " + std::to_string(static_cast<std::uint64_t>(id)) +
                               ": its row in the catalog is damaged; removed";
  LogWarning("cache: segment {} removed: its row in the catalog is damaged",
             static_cast<std::uint64_t>(id));
  return true;
}

Status SharedState::CompleteRow(RemovedRow* row) {
  if (row->disk != nullptr) return {};
  const Result<SegmentRow> stored = disk.catalog->LoadSegment(row->id);
  if (!stored && IsUnreadable(stored.error())) return stored.error();
  // Without a row nobody knows which blocks are free now: the next start does.
  row->disk =
      std::make_shared<StoredExtents>(disk.packs.get(), stored ? stored->extents : ExtentList{});
  if (!stored) {
    LogWarning("cache: blocks stay in use until the next start: {}", stored.error().text);
    return {};
  }
  MutexLock lock(mu);
  tables.removal_log.Add(
      {stored->end_hash, stored->first_token + stored->token_count, row->removed_at, row->cause});
  return {};
}

void CacheImpl::WarmPath(DomainId domain, std::span<const Token> tokens, ResumeRule rule) {
  if (!shared_->has_disk()) return;
  std::size_t warmed = 0;
  while (warmed < kWarmedPerPathMax) {
    std::vector<SegmentId> wanted;
    std::unique_ptr<SegmentPin> pin;
    {
      MutexLock lock(shared_->mu);
      const CacheTables& tables = shared_->tables;
      if (tables.closing || tables.places.size() == tables.ledger.segment_count()) return;
      const PathMatch rows = tables.index.FindRows(domain, tokens, rule);
      // A prompt that is there as a whole is looked up without its last token.
      const auto shorter = tokens.first(tokens.empty() ? 0 : tokens.size() - 1);
      for (const PathMatch& match : {rows, tables.index.Find(domain, tokens, rule),
                                     tables.index.Find(domain, shorter, rule)}) {
        for (const PathStep& step : match.steps) wanted.push_back(step.segment);
        wanted.insert(wanted.end(), match.cold.begin(), match.cold.end());
      }
      if (rule == ResumeRule::kCheckpoint) {
        for (const PathStep& step : rows.steps) {
          const std::vector<SegmentId> checkpoints = tables.index.Checkpoints(step.segment);
          wanted.insert(wanted.end(), checkpoints.begin(), checkpoints.end());
        }
      }
      std::ranges::sort(wanted);
      wanted.erase(std::ranges::unique(wanted).begin(), wanted.end());
      std::erase_if(wanted,
                    [&](SegmentId id) REQUIRES(shared_->mu) { return !shared_->IsCold(id); });
      if (wanted.empty()) return;
      if (!rows.steps.empty()) {
        shared_->Pin(rows.steps.back().segment);
        pin = std::make_unique<SegmentPin>(shared_, rows.steps.back().segment);
      }
    }
    for (const SegmentId id : wanted) {
      if (!shared_->WarmSegment(id)) return;
    }
    warmed += wanted.size();
  }
}

}  // namespace skippy
