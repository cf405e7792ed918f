#include "cache/shared_state.h"

#include <algorithm>

#include "base/check.h"
#include "base/log.h"

namespace skippy {
namespace {

// Prefixes carry no bytes of their own in the queue; this bounds their number.
constexpr std::size_t kMaxQueueItems = 65536;
constexpr std::uint64_t kMaxIdleBufferBytes = 256 * kMiB;

}  // namespace

std::uint64_t StoredExtents::block_bytes() const {
  std::uint64_t blocks = 0;
  for (const Extent& extent : extents_) blocks += extent.block_count;
  return blocks * kBlockBytes;
}

SharedState::SharedState(const CacheOptions& cache_options, Env* environment)
    : options(cache_options),
      env(environment),
      pool(BufferPool::Create(
          {.charged_bytes = cache_options.write_queue_bytes,
           .idle_bytes = std::min(cache_options.write_queue_bytes, kMaxIdleBufferBytes),
           .lock_pages = cache_options.ram.lock_pages})),
      ram(cache_options.ram.budget_bytes) {
  MutexLock lock(mu);
  tables.ram.budget_bytes = cache_options.ram.budget_bytes;
  if (const std::string error = pool->lock_error(); !error.empty()) {
    LogWarning("cache: RAM tier stays unlocked: {}", error);
  }
}

void SharedState::Collect(const LedgerRemovals& removals, RemovalCause cause) {
  const std::chrono::nanoseconds now = env->WallNow();
  for (const auto& [id, byte_count] : removals.segments) {
    tables.index.Erase(id);
    const auto found = tables.places.find(id);
    if (found == tables.places.end()) {  // cold
      tables.payload_bytes -= byte_count;
      tables.removed_segments.push_back({.id = id,
                                         .disk = nullptr,
                                         .block_bytes = BlockBytesFor(byte_count),
                                         .removed_at = now,
                                         .cause = cause});
      continue;
    }
    tables.removal_log.Add({found->second.end_hash, found->second.end_token, now, cause});
    if (found->second.in_ram) ram.Remove(RamKeyOf(id, found->second.end_hash));
    if (found->second.disk != nullptr) {
      tables.payload_bytes -= found->second.byte_count;
      const std::uint64_t block_bytes = found->second.disk->block_bytes();
      tables.removed_segments.push_back(
          {.id = id, .disk = std::move(found->second.disk), .block_bytes = block_bytes});
    }
    tables.places.erase(found);
  }
  tables.removed_manifests.insert(tables.removed_manifests.end(),
                                  removals.durable_manifests.begin(),
                                  removals.durable_manifests.end());
  if (!removals.segments.empty() || !removals.durable_manifests.empty()) work.NotifyOne();
}

void SharedState::RemoveSubtree(SegmentId root, RemovalCause cause) {
  LedgerRemovals removals;
  const std::vector<SegmentId> ids = tables.index.EraseSubtree(root);
  const std::optional<ManifestId> shortened = tables.ledger.RemoveSubtree(ids, &removals);
  if (shortened) Enqueue({.manifest = *shortened});
  Collect(removals, cause);
}

void SharedState::Unpin(SegmentId id) {
  LedgerRemovals removals;
  tables.ledger.Unpin(id, &removals);
  Collect(removals, RemovalCause::kDropped);
}

void SharedState::PublishAt(SegmentId tip, TokenCount token_count, std::uint64_t retained_until_s) {
  const Ledger::Added added = tables.ledger.AddManifest(tip, token_count);
  tables.ledger.TouchChain(tip, /*count_hit=*/false);
  if (retained_until_s > 0) tables.ledger.RetainChain(tip, retained_until_s);
  TouchInRam(tip);
  if (added.is_new) Enqueue({.manifest = added.id, .is_use = true});
}

std::uint64_t SharedState::NowSeconds() const {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::seconds>(env->WallNow()).count());
}

void SharedState::RejectSegment(SegmentId id) {
  MutexLock lock(mu);
  if (tables.ledger.FindSegment(id) == nullptr) return;
  RemoveSubtree(id, RemovalCause::kDamage);
  ++tables.activity.corrupt_entries;
  tables.activity.last_error = "segment " + std::to_string(static_cast<std::uint64_t>(id)) +
                               ": the engine cannot use what was recorded; removed";
  LogWarning("cache: segment {} removed: the engine cannot use it", static_cast<std::uint64_t>(id));
}

void SharedState::Enqueue(const WriteItem& item) {
  tables.queue.push_back(item);
  ++tables.queued_items;
  work.NotifyOne();
}

bool SharedState::QueueIsFull() const { return tables.queue.size() >= kMaxQueueItems; }

RefusalReason SharedState::Admits(std::uint64_t byte_count) const {
  if (!has_tier() || tables.closing) return RefusalReason::kDisabled;
  const std::uint64_t disk_bytes = has_disk() ? tables.plan.pack_capacity_bytes : 0;
  if (byte_count > std::max(disk_bytes, tables.ram.budget_bytes)) {
    return RefusalReason::kSkippedOversize;
  }
  if (QueueIsFull()) return RefusalReason::kQueueFull;
  return RefusalReason::kNone;
}

void SharedState::CountRefusal(RefusalReason reason) {
  ++tables.activity.records_dropped;
  tables.activity.last_refusal = reason;
}

void SharedState::ReportBadSegment(SegmentId id, const std::shared_ptr<StoredExtents>& disk_place) {
  const Result<SegmentRow> row = disk.catalog->LoadSegment(id);
  if (row && row->extents != disk_place->extents()) return;
  if (!row && row.error().code != ErrorCode::kCorrupt) return;
  MutexLock lock(mu);
  const auto found = tables.places.find(id);
  if (found == tables.places.end() || found->second.disk != disk_place) return;
  disk_place->Quarantine();
  RemoveSubtree(id, RemovalCause::kDamage);
  ++tables.quarantined_objects;
  ++tables.activity.corrupt_entries;
  tables.activity.last_error = "segment " + std::to_string(static_cast<std::uint64_t>(id)) +
                               ": stored bytes are damaged; quarantined";
  LogWarning("cache: quarantined segment {} ({} bytes): its digest does not match",
             static_cast<std::uint64_t>(id), disk_place->block_bytes());
}

SegmentPin::~SegmentPin() {
  MutexLock lock(shared_->mu);
  shared_->Unpin(id_);
}

}  // namespace skippy
