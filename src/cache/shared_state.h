// What the parts of the cache share: the prefix index, the ledger and the places of all bytes under
// one mutex, and the disk tier beside it. No lock is held across I/O.
//
// Only the writer thread changes the catalog. Everybody else removes things in memory and leaves
// the rows in `removals`, from where the writer takes them: so a row cannot be removed before it
// was added. Extents return to the free map when the freeing commit has returned and nobody reads
// them (StoredExtents).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "cache/budget.h"
#include "cache/buffer_pool.h"
#include "cache/ledger.h"
#include "cache/promotion.h"
#include "cache/removal_log.h"
#include "catalog/catalog.h"
#include "index/prefix_index.h"
#include "pack/pack_store.h"
#include "ram/ram_pool.h"
#include "skippy/cache.h"

namespace skippy {

// The extents of one segment. Whoever reads them holds it; the last one to let go gives the blocks
// back when they were released meanwhile. Needs the PackStore to live longer.
class StoredExtents {
 public:
  StoredExtents(PackStore* packs, ExtentList extents)
      : packs_(packs), extents_(std::move(extents)) {}
  ~StoredExtents() {
    if (released_.load()) packs_->Free(extents_);
  }
  StoredExtents(const StoredExtents&) = delete;
  StoredExtents& operator=(const StoredExtents&) = delete;

  const ExtentList& extents() const { return extents_; }
  std::uint64_t block_bytes() const;
  // No catalog row needs them any more.
  void Release() { released_ = true; }
  void Quarantine() { packs_->Quarantine(extents_); }

 private:
  PackStore* const packs_;
  const ExtentList extents_;
  std::atomic<bool> released_{false};
};

// Bytes that wait for the writer, or for a restore that found them there.
struct PendingBytes {
  explicit PendingBytes(std::shared_ptr<PooledBuffer> bytes) : buffer(std::move(bytes)) {}
  // Set under SharedState::mu once the RAM tier has them: tells it that somebody still reads.
  std::shared_ptr<const RamLayout> held;
  const std::shared_ptr<PooledBuffer> buffer;
};

// Where the bytes of one segment are: in memory until the writer is done with them, then in the
// RAM tier, on disk, or both. Segments without bytes need none of these. A segment that the ledger
// knows and that has no place is cold: on disk, and since this process started nobody asked for it.
// Its place and its tokens are in the catalog only (cold_segments.cc).
struct Place {
  std::shared_ptr<PendingBytes> pending;
  bool in_ram = false;  // in SharedState::ram under RamKeyOf
  std::shared_ptr<StoredExtents> disk;
  SegmentDigest digest;  // with `disk`
  PathHash end_hash;
  std::uint64_t byte_count = 0;
  TokenCount end_token = 0;  // of the path that `end_hash` names
};

// Names a segment in the RAM tier: by its token path, which covers state identity and namespace,
// and by its id.
RamKey RamKeyOf(SegmentId id, const PathHash& end_hash);
SegmentId SegmentOf(const RamKey& key);

// What the tables know about the RAM tier besides SharedState::ram.
struct RamActivity {
  std::uint64_t budget_bytes = 0;
  std::uint64_t hits = 0;    // lookups that found bytes in it
  std::uint64_t misses = 0;  // those that found none
  std::uint64_t promotions = 0;
  std::uint64_t promotions_refused = 0;
};

struct RemovedRow {
  SegmentId id = SegmentId::kNone;
  std::shared_ptr<StoredExtents> disk;  // null for a cold one: its row tells
  std::uint64_t block_bytes = 0;
  // Of a cold one, for the removal log.
  std::chrono::nanoseconds removed_at{0};
  RemovalCause cause = RemovalCause::kDropped;
};

// One thing that waits to be written; exactly one of the ids is set.
struct WriteItem {
  SegmentId segment = SegmentId::kNone;
  ManifestId manifest = ManifestId::kNone;
  // The manifest was published, so its chain counts as used once the RAM tier has all of it.
  bool is_use = false;
};

struct Domain {
  DomainSpec spec;
  bool durable = false;
};

// Everything under SharedState::mu.
struct CacheTables {
  PrefixIndex index;
  Ledger ledger;
  std::unordered_map<SegmentId, Place> places;
  std::unordered_map<DomainId, Domain> domains;
  std::uint64_t next_segment = 1;
  std::uint32_t next_domain = 1;

  std::deque<WriteItem> queue;
  std::uint64_t queued_items = 0;            // ever
  std::uint64_t settled_items = 0;           // durable or dropped
  std::deque<std::function<void()>> jobs;    // run by the writer, between groups
  std::vector<RemovedRow> removed_segments;  // rows to remove, children before parents
  std::vector<ManifestId> removed_manifests;
  bool closing = false;         // nothing new is taken
  bool writer_stopped = false;  // nothing waits for the queue any more

  TierState tier_state = TierState::kOff;
  std::string tier_reason;
  BudgetPlan plan;
  std::uint64_t minimum_free_bytes = 0;
  std::uint64_t catalog_bytes = 0;   // as last measured
  std::uint64_t leftover_bytes = 0;  // of a damaged catalog that was put aside
  std::uint64_t payload_bytes = 0;   // durable
  SegmentId probe_segment = SegmentId::kNone;  // a large one that was there at start
  std::uint64_t evicted_manifests = 0;
  std::uint64_t quarantined_objects = 0;
  RamActivity ram;
  PromotionTable promotion;
  CacheActivity activity;
  Reconciliation reconciliation;
  RemovalLog removal_log;
};

// The open disk tier. Constant after Open; the objects are thread-safe.
struct DiskTier {
  std::string root;
  std::unique_ptr<Catalog> catalog;
  std::unique_ptr<PackStore> packs;
  std::unique_ptr<FileLock> lock;  // let go last
};

class SharedState {
 public:
  SharedState(const CacheOptions& cache_options, Env* environment);

  const CacheOptions options;
  Env* const env;
  const std::shared_ptr<BufferPool> pool;
  DiskTier disk;  // packs is null without a usable disk tier
  RamPool ram;    // called under mu wherever it may evict; its own lock is the inner one

  Mutex mu;
  CondVar work;     // the queue, jobs or removals grew, or closing
  CondVar settled;  // settled_items grew
  CacheTables tables GUARDED_BY(mu);

  bool has_disk() const { return disk.packs != nullptr; }
  bool has_tier() const { return has_disk() || options.ram.budget_bytes > 0; }

  // Takes segments that nobody needs out of the index and the places.
  void Collect(const LedgerRemovals& removals, RemovalCause cause) REQUIRES(mu);
  // Removes a segment and all below it, whoever needs them; what stays above it remains a prefix.
  void RemoveSubtree(SegmentId root, RemovalCause cause) REQUIRES(mu);
  void Pin(SegmentId id) REQUIRES(mu) { tables.ledger.Pin(id); }
  void Unpin(SegmentId id) REQUIRES(mu);
  // Makes the prefix that ends on `tip` a manifest and marks it used; 0: not retained.
  void PublishAt(SegmentId tip, TokenCount token_count, std::uint64_t retained_until_s)
      REQUIRES(mu);
  std::uint64_t NowSeconds() const;  // since the epoch
  // The engine could not use the bytes of a segment although they are those that were recorded.
  void RejectSegment(SegmentId id) EXCLUDES(mu);
  void Enqueue(const WriteItem& item) REQUIRES(mu);
  bool QueueIsFull() const REQUIRES(mu);
  // Takes new state at all; the reason otherwise.
  RefusalReason Admits(std::uint64_t byte_count) const REQUIRES(mu);
  void CountRefusal(RefusalReason reason) REQUIRES(mu);

  // Cold segments (cold_segments.cc).
  bool IsCold(SegmentId id) const REQUIRES(mu);
  // The catalog has its row, or is about to lose it.
  bool IsDurable(SegmentId id) const REQUIRES(mu);
  // Fetches place and tokens of a cold segment from the catalog. One whose row or tokens are not
  // what was written leaves the cache. False when the catalog cannot be read now. Does I/O.
  bool WarmSegment(SegmentId id) EXCLUDES(mu);
  // What is needed to remove the row of a cold segment and give its blocks back. Does I/O; on
  // kIo nothing is lost by trying again.
  Status CompleteRow(RemovedRow* row) EXCLUDES(mu);

  // The RAM tier (ram_tier.cc).
  // Memory for a segment of that size within the tier's budget; null when there is no room.
  std::unique_ptr<PooledBuffer> AcquireInRam(std::uint64_t byte_count) REQUIRES(mu);
  // Takes verified bytes of a segment in, into room that was reserved for them. False when the
  // segment is gone or the tier refused it.
  bool AdmitToRam(SegmentId id, RamOrigin origin, HashedBytes bytes, RamReservation reservation)
      REQUIRES(mu);
  // Moves what a restore read from the disk into the tier; the layout keeps it there while it
  // lives. Null when there is no room or the segment is gone.
  std::shared_ptr<const RamLayout> PromoteToRam(SegmentId id, HashedBytes bytes,
                                                PooledBuffer& buffer) REQUIRES(mu);
  // What is nearer to the end of a path leaves first, so it counts as used earlier.
  void TouchInRam(SegmentId tip) REQUIRES(mu);
  // Evicts until the tier holds `target_bytes`, with `model` only that model's; returns what was
  // freed.
  std::uint64_t EvictFromRam(std::uint64_t target_bytes, const std::optional<ModelIdentity>& model,
                             RemovalCause cause) REQUIRES(mu);
  void SetRamBudget(std::uint64_t budget_bytes) REQUIRES(mu);
  // A segment with no copy on disk may leave only as the end of a path that nobody uses.
  // Without `retained`, none of those that are to be kept longer.
  RamEvictionFilter RamVictims(const std::optional<ModelIdentity>& model, bool retained) const
      REQUIRES(mu);
  // Room for a segment: of what may leave, what is retained leaves last.
  std::optional<RamReservation> ReserveInRam(std::uint64_t byte_count,
                                             std::vector<RamEvicted>* evicted) REQUIRES(mu);
  void LeaveRam(const std::vector<RamKey>& keys, RemovalCause cause) REQUIRES(mu);

  // A segment whose bytes on disk are not those that were recorded. Asks the catalog whether the
  // extents still are the segment's before anything is blamed. Does I/O.
  void ReportBadSegment(SegmentId id, const std::shared_ptr<StoredExtents>& disk_place)
      EXCLUDES(mu);
};

// Keeps a segment and its chain from being removed.
class SegmentPin {
 public:
  // The pin itself was taken under the lock.
  SegmentPin(std::shared_ptr<SharedState> shared, SegmentId id)
      : shared_(std::move(shared)), id_(id) {}
  ~SegmentPin();
  SegmentPin(const SegmentPin&) = delete;
  SegmentPin& operator=(const SegmentPin&) = delete;

 private:
  std::shared_ptr<SharedState> shared_;
  SegmentId id_;
};

}  // namespace skippy
