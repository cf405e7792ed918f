// Plain snapshots of what the cache is and did: what status, metrics and logs are made of. Field
// names are the words users see. Counters are monotonic for the life of the process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "skippy/ids.h"

namespace skippy {

enum class TierState { kOff, kOpening, kActive, kReadOnlyLowSpace, kPruningToBudget, kDegraded };
std::string_view ToString(TierState state);  // "off", "opening", "active", ...

// Why a write was not admitted. The tokens are part of the public status.
enum class RefusalReason {
  kNone,
  kSkippedOversize,    // larger than the whole budget
  kInsufficientSpace,  // no room, and nothing may be evicted
  kReadOnlyLowSpace,   // the free-space reserve would be passed
  kQueueFull,          // write-behind queue at its byte bound
  kStorageError,       // the disk failed
  kDisabled,           // no tier to write to
};
std::string_view ToString(RefusalReason reason);  // "skipped_oversize", ...

// Why a prefix that the cache had is gone.
enum class RemovalCause : std::uint8_t {
  kEviction,  // room was needed
  kPrune,     // an operator asked for room
  kClear,     // an operator asked for everything to go
  kDamage,    // its bytes were not those that were recorded
  kDropped,   // it could not be kept: never published, or not written
};
std::string_view ToString(RemovalCause cause);  // "eviction", "prune", ...

struct DiskUsage {
  std::uint64_t budget_bytes = 0;
  std::uint64_t used_bytes = 0;     // physical bytes of the whole root, catalog allowance included
  std::uint64_t payload_bytes = 0;  // live segment bytes inside the packs
  std::uint64_t reserved_inflight_bytes = 0;
  std::uint64_t filesystem_available_bytes = 0;
  std::uint64_t minimum_free_bytes = 0;
  std::uint64_t quarantined_bytes = 0;
  std::uint64_t manifests = 0;
  std::uint64_t unique_segments = 0;
  std::uint64_t evicted_manifests = 0;
  std::uint64_t quarantined_objects = 0;
};

// The RAM tier. resident + in_flight <= budget at every moment.
struct RamUsage {
  std::uint64_t budget_bytes = 0;
  std::uint64_t resident_bytes = 0;   // physical memory of its segments
  std::uint64_t in_flight_bytes = 0;  // being recorded, or evicted while a restore still reads
  std::uint64_t logical_bytes = 0;    // of its prefixes, shared segments counted for each
  std::uint64_t entries = 0;          // prefixes whose end is in RAM
  std::uint64_t segments = 0;
  std::uint64_t buffer_bytes =
      0;                         // beside the budget: read-ahead, and what waits for the disk alone
  std::uint64_t promotions = 0;  // segments read from disk that stayed
  std::uint64_t promotions_refused = 0;
  std::uint64_t hits = 0;    // lookups that found bytes in RAM
  std::uint64_t misses = 0;  // those that found none there
  std::uint64_t inserts = 0;
  std::uint64_t evictions = 0;
  std::uint64_t admission_refusals = 0;
  bool locked = false;     // its pages are never swapped out
  std::string lock_error;  // why they are not although asked for; else empty
};

struct CacheActivity {
  std::uint64_t hits = 0;    // lookups that found a restorable prefix
  std::uint64_t misses = 0;  // lookups that found none
  std::uint64_t fills = 0;   // restores that read from disk
  std::uint64_t writes = 0;  // manifests made durable
  std::uint64_t evictions = 0;
  std::uint64_t corrupt_entries = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;    // payload bytes written to packs
  std::uint64_t records_dropped = 0;  // refused before any write
  std::uint64_t geometry_rejected = 0;
  std::uint64_t write_queue_bytes = 0;  // gauge
  RefusalReason last_refusal = RefusalReason::kNone;
  std::string last_error;
};

// What start-up found and repaired.
struct Reconciliation {
  std::uint64_t removed_temporary_files = 0;
  std::uint64_t quarantined_manifests = 0;
  std::uint64_t removed_prefix_links = 0;  // manifests whose segments were gone
  std::uint64_t removed_orphan_bytes = 0;
};

struct InventoryEntry {
  ModelIdentity model;
  StateIdentity state;
  std::string model_name;  // display only
  std::string name_space;
  std::string payload_kind;  // "segments", "checkpoint", "segments+checkpoint"
  TokenCount token_count = 0;
  std::uint64_t total_bytes = 0;
};

struct CacheStatus {
  TierState disk_state = TierState::kOff;
  std::string disk_reason;  // empty when active or off by choice
  std::string directory;
  DiskUsage disk;
  RamUsage ram;
  CacheActivity activity;
  Reconciliation reconciliation;
  std::vector<InventoryEntry> inventory;  // sorted by model, state, longest first; at most 1000
  std::uint64_t inventory_omitted = 0;
};

}  // namespace skippy
