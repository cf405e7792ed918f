#include "cache/reconcile.h"

#include <memory>
#include <ranges>
#include <utility>
#include <vector>

#include "base/log.h"
#include "catalog/catalog.h"

namespace skippy {
namespace {

// A probe of the disk reads a segment of at least so many bytes, if the store has one.
constexpr std::uint64_t kProbeBytes = 256 * kKiB;

bool IsRoot(SegmentId id) { return id == SegmentId::kNone; }

class Reconciler {
 public:
  explicit Reconciler(SharedState& shared) : shared_(shared), tables_(shared.tables) {}

  Status Run() REQUIRES(shared_.mu);

 private:
  void AddDomain(DomainRow row) REQUIRES(shared_.mu);
  void AddSegment(const SegmentRow& row) REQUIRES(shared_.mu);
  void AddManifest(const ManifestRow& row) REQUIRES(shared_.mu);
  void RemoveBad(const CatalogLoadReport& report) REQUIRES(shared_.mu);
  void RemoveOrphans() REQUIRES(shared_.mu);
  bool FitsTree(const SegmentRow& row) const REQUIRES(shared_.mu);
  bool AddToIndex(const SegmentRow& row) REQUIRES(shared_.mu);
  bool TakeBlocks(const SegmentRow& row) REQUIRES(shared_.mu);
  void RemoveRow(SegmentId id) REQUIRES(shared_.mu);

  SharedState& shared_;
  CacheTables& tables_ GUARDED_BY(shared_.mu);
  std::vector<SegmentId> added_;  // parents before children
  std::uint64_t probe_bytes_ = 0;
};

void Reconciler::AddDomain(DomainRow row) {
  tables_.domains.emplace(row.id, Domain{.spec = std::move(row.spec), .durable = true});
}

bool Reconciler::FitsTree(const SegmentRow& row) const {
  if (!tables_.domains.contains(row.domain)) return false;
  if (row.kind == SegmentKind::kRows &&
      (row.token_count <= 0 || row.token_count > kMaxSegmentTokens)) {
    return false;
  }
  return IsRoot(row.parent) || tables_.ledger.FindSegment(row.parent) != nullptr;
}

bool Reconciler::AddToIndex(const SegmentRow& row) {
  if (row.kind == SegmentKind::kCheckpoint) {
    return tables_.index.Insert({.id = row.id,
                                 .domain = row.domain,
                                 .parent = row.parent,
                                 .kind = row.kind,
                                 .first_token = row.first_token});
  }
  return tables_.index.InsertCold({.id = row.id,
                                   .domain = row.domain,
                                   .parent = row.parent,
                                   .first_token = row.first_token,
                                   .token_count = row.token_count,
                                   .tokens_digest = row.tokens_digest,
                                   .head_hash = row.head_hash});
}

bool Reconciler::TakeBlocks(const SegmentRow& row) {
  std::uint64_t blocks = 0;
  for (const Extent& extent : row.extents) blocks += extent.block_count;
  if (blocks * kBlockBytes != BlockBytesFor(row.byte_count)) return false;
  return row.extents.empty() || shared_.disk.packs->MarkUsed(row.extents);
}

void Reconciler::AddSegment(const SegmentRow& row) {
  bool fits = FitsTree(row) && AddToIndex(row);
  if (fits && !TakeBlocks(row)) {
    tables_.index.Erase(row.id);
    fits = false;
  }
  if (!fits) {
    RemoveRow(row.id);
    tables_.reconciliation.removed_orphan_bytes += row.byte_count;
    return;
  }
  tables_.ledger.AddSegment(row.id, {.domain = row.domain,
                                     .parent = row.parent,
                                     .kind = row.kind,
                                     .first_token = row.first_token,
                                     .token_count = row.token_count,
                                     .byte_count = row.byte_count});
  tables_.payload_bytes += row.byte_count;
  added_.push_back(row.id);
  if (row.byte_count > probe_bytes_ && probe_bytes_ < kProbeBytes) {
    tables_.probe_segment = row.id;
    probe_bytes_ = row.byte_count;
  }
}

// Its blocks were never marked as used, so there is nothing to give back.
void Reconciler::RemoveRow(SegmentId id) {
  tables_.removed_segments.push_back(
      {.id = id,
       .disk = std::make_shared<StoredExtents>(shared_.disk.packs.get(), ExtentList{})});
}

void Reconciler::AddManifest(const ManifestRow& row) {
  if (tables_.ledger.RestoreManifest(row)) return;
  tables_.removed_manifests.push_back(row.id);
  ++tables_.reconciliation.removed_prefix_links;
}

void Reconciler::RemoveBad(const CatalogLoadReport& report) {
  for (const SegmentId id : report.bad_segments) {
    RemoveRow(id);
    ++tables_.activity.corrupt_entries;
  }
  for (const ManifestId id : report.bad_manifests) {
    tables_.removed_manifests.push_back(id);
    ++tables_.reconciliation.quarantined_manifests;
  }
}

void Reconciler::RemoveOrphans() {
  LedgerRemovals orphans;
  for (const SegmentId id : added_ | std::views::reverse) {
    tables_.ledger.RemoveIfUnneeded(id, &orphans);
  }
  for (const LedgerRemovals::Segment& segment : orphans.segments) {
    tables_.reconciliation.removed_orphan_bytes += segment.byte_count;
  }
  shared_.Collect(orphans, RemovalCause::kDropped);
}

Status Reconciler::Run() {
  Catalog& catalog = *shared_.disk.catalog;
  SKIPPY_ASSIGN_OR_RETURN(const Catalog::HighWater high_water, catalog.LoadHighWater());
  tables_.next_segment = high_water.segment + 1;
  tables_.next_domain = high_water.domain + 1;
  tables_.ledger.StartAbove(high_water.manifest, high_water.use_clock);
  const auto report = catalog.Load(
      {.domain = [this](DomainRow row) REQUIRES(shared_.mu) { AddDomain(std::move(row)); },
       .segment = [this](const SegmentRow& row) REQUIRES(shared_.mu) { AddSegment(row); },
       .manifest = [this](const ManifestRow& row) REQUIRES(shared_.mu) { AddManifest(row); }});
  if (!report) return report.error();
  RemoveBad(*report);
  shared_.disk.packs->FinishRecovery();
  RemoveOrphans();
  const Reconciliation& done = tables_.reconciliation;
  LogInfo(
      "cache: {} prefixes in {} segments ({} bytes) can be restored; start-up removed {} damaged "
      "and {} dangling prefixes and {} bytes that nothing needed",
      tables_.ledger.manifest_count(), tables_.ledger.segment_count(), tables_.payload_bytes,
      done.quarantined_manifests, done.removed_prefix_links, done.removed_orphan_bytes);
  return {};
}

}  // namespace

Status Reconcile(SharedState& shared) { return Reconciler(shared).Run(); }

void ForgetCatalog(SharedState& shared) {
  CacheTables& tables = shared.tables;
  tables.index = PrefixIndex();
  tables.ledger = Ledger();
  tables.domains.clear();
  tables.removed_segments.clear();
  tables.removed_manifests.clear();
  tables.next_segment = 1;
  tables.next_domain = 1;
  tables.payload_bytes = 0;
  tables.probe_segment = SegmentId::kNone;
  tables.reconciliation = {};
  tables.activity.corrupt_entries = 0;
}

}  // namespace skippy
