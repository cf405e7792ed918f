// L2: immutable segments in bounded RAM. Segments lie in a pool addressed by digest and are shared
// by handle; an entry is a layout over them. Knows no disk, no engine and no request.
//
// Invariants, observable at every moment by every thread:
//   resident bytes + bytes of removed entries that a reader still holds + reserved bytes <= budget
//   sum of all entries' charges == resident bytes: each pooled segment is charged once, to the
//   entry with the lowest key among those that refer to it
// Admission plans its victims on counters first and changes the pool only when the plan holds, so
// a refusal leaves nothing behind and there is nothing to roll back.
//
// Thread-safe. Hashing and comparing of bytes happen outside the lock; readers never wait for them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "skippy/ids.h"

namespace skippy {

// Names one entry. Covers model identity, state identity, namespace and token path, so that a
// changed identity is a miss and never a wrong hit.
using RamKey = OpaqueBytes<struct RamKeyTag, 32>;
// Of a whole layout: see ComputeLayoutDigest.
using LayoutDigest = OpaqueBytes<struct LayoutDigestTag, 32>;

enum class RamOrigin : std::uint8_t { kDiskFill, kRecorded };
enum class RamPayloadKind : std::uint8_t { kRows, kCheckpoint, kRowsAndCheckpoint };

// Bytes that somebody keeps alive; `owner` is released when the last handle goes.
struct RamHandle {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
  std::uint64_t physical_bytes = 0;  // memory that `owner` takes; 0: as many as there are bytes

  std::uint64_t charge_bytes() const { return physical_bytes == 0 ? bytes.size() : physical_bytes; }
};

// Bytes and the digest that was computed from them here: what an admission need not hash again.
class HashedBytes {
 public:
  explicit HashedBytes(RamHandle handle);
  const RamHandle& handle() const { return handle_; }
  const SegmentDigest& digest() const { return digest_; }
  RamHandle TakeHandle() { return std::move(handle_); }

 private:
  RamHandle handle_;
  SegmentDigest digest_;
};

struct RamLayoutSegment {
  std::uint32_t index = 0;   // 0, 1, 2, ... without gaps
  std::uint64_t offset = 0;  // of its first byte in the whole payload; tiles without gaps
  SegmentDigest digest;
  RamHandle handle;
};

struct RamLayout {
  RamPayloadKind kind = RamPayloadKind::kRows;
  RamOrigin origin = RamOrigin::kRecorded;
  TokenCount token_count = 0;
  std::uint64_t rows_bytes = 0;        // attention rows: the leading part of the payload
  std::uint64_t checkpoint_bytes = 0;  // the tail
  std::uint64_t total_bytes = 0;       // rows + checkpoint
  LayoutDigest digest;
  std::vector<RamLayoutSegment> segments;
};

// BLAKE3 over the ordered (digest, byte count) pairs.
LayoutDigest ComputeLayoutDigest(std::span<const RamLayoutSegment> segments);

enum class RamRefusal : std::uint8_t {
  kNone,
  kEmptyPayload,
  kOverBudget,             // the distinct new bytes alone exceed the budget
  kProtectedOvercommit,    // nothing more may be evicted, and it still does not fit
  kDigestMismatch,         // the layout's digest is not that of its segments
  kSegmentDigestMismatch,  // a segment's bytes do not hash to its digest
  kConflictingSegment,     // the digest is pooled with other bytes
  kMalformedLayout,        // gaps, wrong order, lengths that do not add up
  kUnknownPayloadKind,
  kDisabled,  // budget 0
};
std::string_view ToString(RamRefusal refusal);

struct RamRemoval {
  bool found = false;
  std::uint64_t freed_bytes = 0;     // of segments whose last reference left
  std::uint64_t retained_bytes = 0;  // still referenced by other entries or held by a reader
};

struct RamStats {
  std::uint64_t budget_bytes = 0;
  std::uint64_t resident_bytes = 0;  // distinct segments: the physical footprint
  std::uint64_t detached_bytes = 0;  // removed, but a reader still holds them
  std::uint64_t reserved_bytes = 0;  // for segments on their way in
  std::uint64_t logical_bytes = 0;   // sum of the entries' payloads
  std::uint64_t entries = 0;
  std::uint64_t segments = 0;
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t inserts = 0;
  std::uint64_t evictions = 0;
  std::uint64_t refusals = 0;
};

// Bytes of the budget that are set aside for memory on its way into the pool. Ends with an
// admission or with the object, whichever thread destroys it; may outlive the pool.
class RamReservation {
 public:
  RamReservation() = default;
  RamReservation(std::shared_ptr<std::atomic<std::uint64_t>> total, std::uint64_t byte_count)
      : total_(std::move(total)), byte_count_(byte_count) {}
  RamReservation(RamReservation&& other) noexcept { *this = std::move(other); }
  RamReservation& operator=(RamReservation&& other) noexcept;
  ~RamReservation() { Release(); }

  std::uint64_t byte_count() const { return byte_count_; }
  void Release();

 private:
  std::shared_ptr<std::atomic<std::uint64_t>> total_;
  std::uint64_t byte_count_ = 0;
};

// What eviction took out. The pool counts `freed` as gone: whoever gets it lets go of it, or puts
// other bytes into its memory, before anything else is allocated.
struct RamEvicted {
  RamKey key;
  std::vector<RamHandle> freed;
};

// Whether an entry may be evicted. Asked in the order of eviction; after true the entry counts as
// gone for later questions of the same call. Called under the pool's lock. Empty: all may.
using RamEvictionFilter = std::function<bool(const RamKey&)>;

// What an entry of one segment is, besides its bytes.
struct RamSegmentInfo {
  RamPayloadKind kind = RamPayloadKind::kRows;
  RamOrigin origin = RamOrigin::kRecorded;
  TokenCount token_count = 0;
};

class RamPool {
 public:
  explicit RamPool(std::uint64_t budget_bytes);
  ~RamPool();
  RamPool(const RamPool&) = delete;
  RamPool& operator=(const RamPool&) = delete;

  // Verifies everything about `layout`, then admits it under `key`, replacing an entry of that key
  // and evicting least-recently-used entries as needed. Segments already pooled are shared (their
  // bytes are compared; handles to the same memory are equal by definition) and the caller's copy
  // is let go. On a refusal the pool is exactly as before.
  RamRefusal Admit(const RamKey& key, RamLayout layout);

  // Sets `byte_count` aside, evicting as needed. nullopt, and nothing changed, when there is no
  // room even so.
  std::optional<RamReservation> Reserve(std::uint64_t byte_count, const RamEvictionFilter& filter,
                                        std::vector<RamEvicted>* evicted);
  // Admits an entry of one segment into room that was reserved for its charge: never evicts. Short:
  // nothing is hashed, and bytes are compared only where other memory holds the same digest.
  RamRefusal AdmitSegment(const RamKey& key, const RamSegmentInfo& info, HashedBytes bytes,
                          RamReservation reservation);

  // The entry's layout; its handles stay valid while the pointer lives, and entries that are held
  // are not evicted. Cost independent of the entry's size: no copy, no hash. Null when absent.
  // Get counts a hit or a miss and advances recency on a hit; Peek does neither.
  std::shared_ptr<const RamLayout> Get(const RamKey& key);
  std::shared_ptr<const RamLayout> Peek(const RamKey& key) const;
  // Advances recency as a hit does; for entries that are parts of what was hit.
  void Touch(const RamKey& key);

  RamRemoval Remove(const RamKey& key);
  // Removes every entry that refers to the segment: its bytes are not to be trusted any more.
  RamRemoval RemoveSegment(const SegmentDigest& digest);
  RamRemoval Clear();

  // Takes effect before it returns: evicts until the pool fits. Entries that readers hold may keep
  // it above a smaller budget until they let go; nothing is admitted before that.
  std::vector<RamEvicted> SetBudget(std::uint64_t budget_bytes,
                                    const RamEvictionFilter& filter = {});
  // Evicts least-recently-used entries until the pool holds `target_bytes` at most, as far as
  // readers and the filter allow.
  std::vector<RamEvicted> EvictTo(std::uint64_t target_bytes, const RamEvictionFilter& filter = {});

  RamStats GetStats() const;
  // What `key` is charged for; 0 when absent.
  std::uint64_t ChargeOf(const RamKey& key) const;
  // Ends the process when an invariant does not hold. For tests; costs a pass over everything.
  void CheckInvariants() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skippy
