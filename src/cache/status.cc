// A snapshot for people and monitoring. Long lists are copied in slices, so that no request waits
// for it.
#include <algorithm>
#include <chrono>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "cache/cache_impl.h"

namespace skippy {
namespace {

constexpr std::size_t kSliceManifests = 512;
constexpr std::size_t kMaxInventory = 1000;
// A probe reads a segment of at least so many bytes, if one is among the first it looks at.
constexpr std::uint64_t kProbeBytes = 256 * kKiB;
constexpr int kProbePlacesMax = 1000;
constexpr int kProbeReads = 3;  // the fastest counts: others may have waited for something else

bool InOrder(const InventoryEntry& a, const InventoryEntry& b) {
  return std::tie(a.model, a.state, b.token_count, a.name_space) <
         std::tie(b.model, b.state, a.token_count, b.name_space);
}

InventoryEntry EntryOf(const CacheTables& tables, const ManifestRow& row) {
  const DomainSpec& spec = tables.domains.at(row.domain).spec;
  const LedgerSegment& tip = *tables.ledger.FindSegment(row.tip);
  InventoryEntry entry{.model = spec.model,
                       .state = spec.state,
                       .model_name = spec.model_name,
                       .name_space = spec.name_space,
                       .payload_kind = "segments",
                       .token_count = row.token_count,
                       .total_bytes = tip.chain_bytes};
  if (tip.kind == SegmentKind::kCheckpoint) {
    entry.payload_kind = tip.chain_bytes > tip.byte_count ? "segments+checkpoint" : "checkpoint";
  }
  return entry;
}

}  // namespace

void CacheImpl::CollectInventory(CacheStatus* status) {
  ManifestId after = ManifestId::kNone;
  for (bool more = true; more;) {
    MutexLock lock(shared_->mu);
    const auto slice = shared_->tables.ledger.ListManifests(after, kSliceManifests);
    for (const Ledger::Manifest& manifest : slice) {
      const auto tip = shared_->tables.places.find(manifest.row.tip);
      if (tip != shared_->tables.places.end() && tip->second.in_ram) {
        ++status->ram.entries;
        status->ram.logical_bytes +=
            shared_->tables.ledger.FindSegment(manifest.row.tip)->chain_bytes;
      }
      if (manifest.durable || !shared_->has_disk()) {
        status->inventory.push_back(EntryOf(shared_->tables, manifest.row));
      }
      after = manifest.row.id;
    }
    more = slice.size() == kSliceManifests;
  }
  std::ranges::sort(status->inventory, InOrder);
  if (status->inventory.size() > kMaxInventory) {
    status->inventory_omitted = status->inventory.size() - kMaxInventory;
    status->inventory.resize(kMaxInventory);
  }
}

void CacheImpl::CollectRam(RamUsage* ram) {
  const RamStats stats = shared_->ram.GetStats();
  ram->budget_bytes = stats.budget_bytes;
  ram->resident_bytes = stats.resident_bytes;
  ram->in_flight_bytes = stats.reserved_bytes + stats.detached_bytes;
  ram->segments = stats.segments;
  ram->inserts = stats.inserts;
  ram->evictions = stats.evictions;
  ram->admission_refusals = stats.refusals;
  ram->buffer_bytes = shared_->pool->other_bytes();
  ram->lock_error = shared_->pool->lock_error();
  ram->locked = shared_->options.ram.lock_pages && ram->lock_error.empty();
  MutexLock lock(shared_->mu);
  const RamActivity& activity = shared_->tables.ram;
  ram->hits = activity.hits;
  ram->misses = activity.misses;
  ram->promotions = activity.promotions;
  ram->promotions_refused = activity.promotions_refused;
}

CacheStatus CacheImpl::GetStatus() {
  CacheStatus status;
  status.directory = shared_->options.disk.directory;
  CollectRam(&status.ram);
  DiskUsage& disk = status.disk;
  {
    MutexLock lock(shared_->mu);
    CacheTables& tables = shared_->tables;
    status.disk_state = tables.tier_state;
    status.disk_reason = tables.tier_reason;
    status.activity = tables.activity;
    status.reconciliation = tables.reconciliation;
    disk.budget_bytes = tables.plan.budget_bytes;
    disk.minimum_free_bytes = tables.minimum_free_bytes;
    disk.payload_bytes = tables.payload_bytes;
    disk.manifests = tables.ledger.manifest_count();
    disk.unique_segments = tables.ledger.segment_count();
    disk.evicted_manifests = tables.evicted_manifests;
    disk.quarantined_objects = tables.quarantined_objects;
  }
  status.activity.write_queue_bytes = shared_->pool->charged_bytes();
  disk.reserved_inflight_bytes = status.activity.write_queue_bytes;
  if (!shared_->has_disk()) {
    CollectInventory(&status);
    return status;
  }
  status.directory = shared_->disk.root;
  disk.used_bytes = writer_->PhysicalBytes();
  disk.quarantined_bytes = shared_->disk.packs->Usage().quarantined_bytes;
  if (const auto space = shared_->env->Space(shared_->disk.root)) {
    disk.filesystem_available_bytes = space->available_bytes;
  }
  CollectInventory(&status);
  return status;
}

// Of the real clock: a simulated one stands still while a disk is waited for.
std::optional<DiskProbe> CacheImpl::ProbeDisk() {
  if (!shared_->has_disk()) return std::nullopt;
  std::shared_ptr<StoredExtents> extents;
  std::uint64_t byte_count = 0;
  SegmentId from_start = SegmentId::kNone;
  {
    MutexLock lock(shared_->mu);
    from_start = shared_->tables.probe_segment;
  }
  if (from_start != SegmentId::kNone) shared_->WarmSegment(from_start);
  {
    MutexLock lock(shared_->mu);
    int seen = 0;
    for (const auto& [id, place] : shared_->tables.places) {
      if (place.disk == nullptr || place.byte_count <= byte_count) continue;
      extents = place.disk;  // holds them: they are not used again meanwhile
      byte_count = place.byte_count;
      if (byte_count >= kProbeBytes || ++seen >= kProbePlacesMax) break;
    }
  }
  if (extents == nullptr) return std::nullopt;
  const std::unique_ptr<PooledBuffer> buffer = shared_->pool->Acquire(byte_count);
  if (buffer == nullptr) return std::nullopt;
  DiskProbe probe{byte_count, 0, std::max(shared_->options.read_threads, 1)};
  for (int i = 0; i < kProbeReads; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const Status read = shared_->disk.packs->Read(extents->extents(), buffer->blocks());
    if (!read) {
      LogWarning("cache: the disk cannot be read: {}", read.error().text);
      return std::nullopt;
    }
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    probe.ms = i == 0 ? took.count() : std::min(probe.ms, took.count());
  }
  return probe;
}

}  // namespace skippy
