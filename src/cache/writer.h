// The write-behind thread: the only one that writes packs and changes the catalog.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "cache/shared_state.h"

namespace skippy {

// Takes what waits in groups. Order of a group: payload, one sync, one catalog commit, then its
// segments count as durable and their memory copies move into the RAM tier, or are dropped where
// that had no room for them. What can neither be written nor kept in RAM leaves the index together
// with everything below it. Without a disk tier the RAM tier is where everything goes.
class Writer {
 public:
  explicit Writer(SharedState* shared) : shared_(*shared) {}
  ~Writer() { Stop(); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void Start();
  // Writes what waits, then ends the thread. tables.closing is set from then on.
  void Stop();

  // Runs `job` on the writer thread between two groups and waits for it: a gate during which
  // nothing is written. False when the writer has stopped.
  bool RunBetweenGroups(std::function<void()> job);

  // For jobs, on the writer thread.
  struct EvictionGoal {
    std::uint64_t free_bytes = 0;  // evict until so many block bytes were given up
    std::optional<ModelIdentity> model;
    RemovalCause cause = RemovalCause::kEviction;
  };
  // Evicts least recently used prefixes and makes it durable. Returns the block bytes given up;
  // 0: nothing may be evicted.
  std::uint64_t Evict(const EvictionGoal& goal);
  // Evicts until the root's physical bytes are <= target; returns the physical bytes freed.
  Result<std::uint64_t> ShrinkTo(std::uint64_t target_bytes,
                                 const std::optional<ModelIdentity>& model,
                                 RemovalCause cause = RemovalCause::kEviction);
  // Deletes empty packs, then gives free blocks of others back, until the packs' physical bytes are
  // <= target; returns the bytes freed. Evicts nothing.
  Result<std::uint64_t> GiveBackSpace(std::uint64_t packs_target_bytes);
  // Brings the root under its budget as far as nothing in use stands against it, and says so in
  // the tier's state.
  void EnforceBudget();
  // Packs and catalog allowance, as status reports them.
  std::uint64_t PhysicalBytes();

 private:
  struct Group {
    std::vector<SegmentId> segments;
    std::vector<ManifestId> manifests;
    std::vector<ManifestId> used;  // of those, the ones that were published
    std::uint64_t item_count = 0;
  };
  // A segment that left the queue; its bytes were hashed once, for both tiers.
  struct Written {
    SegmentId id = SegmentId::kNone;
    std::shared_ptr<PooledBuffer> buffer;
    HashedBytes payload;
    ExtentList extents;
    std::uint64_t byte_count() const { return payload.handle().bytes.size(); }
  };
  struct Refusal {
    RefusalReason reason = RefusalReason::kNone;
    std::string text;
  };

  void Loop();
  // The next thing to do; false at the end.
  bool WaitForWork(Group* group, std::function<void()>* job);
  void TakeGroup(Group* group) REQUIRES(shared_.mu);
  void WriteGroup(const Group& group);
  // What stands against writing anything now.
  Refusal CheckSpace();
  bool CatalogIsFull();
  // With a `refusal` of the whole group only the RAM tier may take it.
  void WriteSegment(SegmentId id, const Refusal& refusal, std::vector<Written>* written);
  // Whether the catalog will know the segment above.
  bool HasDurableParent(SegmentId id, const std::vector<Written>& written) REQUIRES(shared_.mu);
  // Hands the bytes to the RAM tier. False when that does not hold the segment afterwards.
  bool KeepInRam(Written* written) REQUIRES(shared_.mu);
  Result<ExtentList> Allocate(std::uint64_t byte_count);
  std::uint64_t EvictInMemory(const EvictionGoal& goal) REQUIRES(shared_.mu);
  std::uint64_t EvictToLowWater(std::uint64_t needed_bytes);
  // Removes the segment unless the RAM tier keeps it.
  void Refuse(SegmentId id, const Refusal& refusal, Written* written);
  void SetState(TierState state, const std::string& reason) REQUIRES(shared_.mu);

  // Adds rows of the group that are still wanted; the extents of others are free at once.
  void AddRows(const Group& group, std::vector<Written>* written, CatalogBatch* batch)
      REQUIRES(shared_.mu);
  SegmentRow MakeRow(const Written& written) REQUIRES(shared_.mu);
  void CommitGroup(const Group& group, std::vector<Written> written);
  // After a successful commit; the memory copies that are no longer needed go to `done_with`.
  void Settle(const CatalogBatch& batch, std::vector<Written>* written,
              std::vector<std::shared_ptr<PendingBytes>>* done_with) REQUIRES(shared_.mu);
  // After a failed one: what only it would have made durable is forgotten.
  void Forget(const Group& group, std::vector<Written>* written, const Error& error);
  // One batch's worth of removals, so that a transaction stays short.
  std::vector<RemovedRow> TakeRemovals(CatalogBatch* batch) REQUIRES(shared_.mu);
  // Commits; then, and only then, the removed extents may be used again.
  Status Commit(const CatalogBatch& batch, std::vector<RemovedRow> removed);
  Status CommitRemovals();
  void CommitTouches();

  SharedState& shared_;
  bool removals_wait_ GUARDED_BY(shared_.mu) =
      false;  // the catalog refused them; not at once again
  std::thread thread_;
  std::uint64_t full_catalog_bytes_ = 0;  // size at which eviction did not help
};

}  // namespace skippy
