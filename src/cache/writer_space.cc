// Room for what is to be written: the reserve, the budget, and eviction.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "cache/writer.h"

namespace skippy {
namespace {

// Rows of the largest group, with room for the pages that they make new.
constexpr std::uint64_t kCatalogHeadroomBytes = 512 * kKiB;

// Given up under one hold of the lock: a few milliseconds, however much there is.
constexpr std::size_t kVictimSegments = 4096;

}  // namespace

Writer::Refusal Writer::CheckSpace() {
  std::uint64_t minimum_free_bytes = 0;
  std::uint64_t budget_bytes = 0;
  {
    MutexLock lock(shared_.mu);
    minimum_free_bytes = shared_.tables.minimum_free_bytes;
    budget_bytes = shared_.tables.plan.budget_bytes;
  }
  const Result<SpaceInfo> space = shared_.env->Space(shared_.disk.root);
  if (!space) return {RefusalReason::kStorageError, space.error().text};
  if (space->available_bytes < minimum_free_bytes + kCatalogHeadroomBytes) {
    return {RefusalReason::kReadOnlyLowSpace, "the file system's free space is at the reserve"};
  }
  EnforceBudget();
  if (PhysicalBytes() > budget_bytes) {
    return {RefusalReason::kInsufficientSpace, "the root is above its budget"};
  }
  if (CatalogIsFull()) {
    return {RefusalReason::kInsufficientSpace, "the catalog is at its allowance"};
  }
  return {};
}

bool Writer::CatalogIsFull() {
  const auto over = [this] {
    MutexLock lock(shared_.mu);
    CacheTables& tables = shared_.tables;
    return tables.catalog_bytes + kCatalogHeadroomBytes > tables.plan.catalog_allowance_bytes
               ? tables.catalog_bytes
               : 0;
  };
  const std::uint64_t before = over();
  if (before == 0) return false;
  // Eviction makes pages free for new rows; whether the file shrinks shows only afterwards.
  if (before == full_catalog_bytes_) return true;
  const std::uint64_t live = shared_.disk.packs->Usage().live_bytes;
  Evict({.free_bytes = live * (100 - kLowWaterPercent) / 100 + 1});
  full_catalog_bytes_ = over();
  return full_catalog_bytes_ != 0;
}

Result<ExtentList> Writer::Allocate(std::uint64_t byte_count) {
  for (;;) {
    Result<ExtentList> extents = shared_.disk.packs->Allocate(byte_count);
    if (extents || extents.error().code != ErrorCode::kResourceExhausted) return extents;
    if (EvictToLowWater(byte_count) == 0) return extents;
  }
}

std::uint64_t Writer::EvictToLowWater(std::uint64_t needed_bytes) {
  const PackUsage usage = shared_.disk.packs->Usage();
  const std::uint64_t available = shared_.disk.packs->AvailableBytes();
  const std::uint64_t needed = needed_bytes + kBlockBytes;
  const std::uint64_t wanted =
      std::max(needed, usage.capacity_bytes / 100 * (100 - kLowWaterPercent));
  return Evict({.free_bytes = wanted > available ? wanted - available : needed});
}

std::uint64_t Writer::EvictInMemory(const EvictionGoal& goal) {
  CacheTables& tables = shared_.tables;
  const auto& domains = tables.domains;
  const auto accept = [&](const Ledger::Manifest& manifest) {
    return !goal.model || domains.at(manifest.row.domain).spec.model == *goal.model;
  };
  tables.ledger.EndRetention(shared_.NowSeconds());
  std::uint64_t given_up = 0;
  for (const RemovedRow& row : tables.removed_segments) given_up += row.block_bytes;
  std::optional<Ledger::VictimKey> cursor;
  bool evicted = false;  // in this pass; what it set free above may be the next one's
  while (given_up < goal.free_bytes && tables.removed_segments.size() < kVictimSegments) {
    LedgerRemovals removals;
    if (!tables.ledger.EvictNext(&cursor, accept, &removals)) {
      if (!std::exchange(evicted, false)) break;
      cursor.reset();
      continue;
    }
    evicted = true;
    const std::size_t first = tables.removed_segments.size();
    shared_.Collect(removals, goal.cause);
    for (std::size_t i = first; i < tables.removed_segments.size(); ++i) {
      given_up += tables.removed_segments[i].block_bytes;
    }
    ++tables.evicted_manifests;
    ++tables.activity.evictions;
  }
  return given_up;
}

std::uint64_t Writer::Evict(const EvictionGoal& goal) {
  EvictionGoal rest = goal;
  for (std::uint64_t given_up = 0;;) {
    std::uint64_t now = 0;
    {
      MutexLock lock(shared_.mu);
      now = EvictInMemory(rest);
    }
    if (const Status committed = CommitRemovals(); !committed) return 0;
    given_up += now;
    if (now == 0 || now >= rest.free_bytes) return given_up;
    rest.free_bytes -= now;
  }
}

Result<std::uint64_t> Writer::GiveBackSpace(std::uint64_t packs_target_bytes) {
  PackStore& packs = *shared_.disk.packs;
  SKIPPY_ASSIGN_OR_RETURN(const std::uint64_t deleted, packs.DeleteEmptyPacks(packs_target_bytes));
  const Result<std::uint64_t> trimmed = packs.TrimFreeBlocks(packs_target_bytes);
  if (trimmed) return deleted + *trimmed;
  // Without holes only whole packs shrink the root.
  if (trimmed.error().code == ErrorCode::kUnsupported) return deleted;
  return trimmed.error();
}

Result<std::uint64_t> Writer::ShrinkTo(std::uint64_t target_bytes,
                                       const std::optional<ModelIdentity>& model,
                                       RemovalCause cause) {
  std::uint64_t freed_bytes = 0;
  for (;;) {
    std::uint64_t physical = PhysicalBytes();
    if (physical <= target_bytes) return freed_bytes;
    const std::uint64_t packs = shared_.disk.packs->Usage().physical_bytes;
    const std::uint64_t others = physical - packs;
    const std::uint64_t packs_target = target_bytes > others ? target_bytes - others : 0;
    SKIPPY_ASSIGN_OR_RETURN(const std::uint64_t given_back, GiveBackSpace(packs_target));
    freed_bytes += given_back;
    physical = PhysicalBytes();
    if (physical <= target_bytes) return freed_bytes;
    const std::uint64_t above = physical - target_bytes;
    if (Evict({.free_bytes = above, .model = model, .cause = cause}) == 0) return freed_bytes;
  }
}

void Writer::EnforceBudget() {
  std::uint64_t budget_bytes = 0;
  {
    MutexLock lock(shared_.mu);
    budget_bytes = shared_.tables.plan.budget_bytes;
  }
  if (PhysicalBytes() > budget_bytes) {
    {
      MutexLock lock(shared_.mu);
      SetState(TierState::kPruningToBudget, "pruning_to_budget: the root is above its budget");
    }
    if (const auto shrunk = ShrinkTo(budget_bytes, std::nullopt); !shrunk) {
      LogWarning("cache: packs could not be deleted: {}", shrunk.error().text);
    }
  }
  const bool within = PhysicalBytes() <= budget_bytes;
  MutexLock lock(shared_.mu);
  if (within && shared_.tables.tier_state == TierState::kPruningToBudget) {
    SetState(TierState::kActive, "");
  }
}

std::uint64_t Writer::PhysicalBytes() {
  const std::uint64_t packs = shared_.disk.packs->Usage().physical_bytes;
  MutexLock lock(shared_.mu);
  CacheTables& tables = shared_.tables;
  return packs + tables.leftover_bytes +
         std::max(tables.catalog_bytes, tables.plan.catalog_allowance_bytes);
}

}  // namespace skippy
