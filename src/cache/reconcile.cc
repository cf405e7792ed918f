#include "cache/reconcile.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace skippy {
namespace {

// Its blocks were never marked as used, so there is nothing to give back.
RemovedRow RowOnly(SharedState& shared, SegmentId id) {
  return {id, std::make_shared<StoredExtents>(shared.disk.packs.get(), ExtentList{})};
}

// Their digest is that of the row.
void SetTokens(std::span<const Token> tokens, LoadedSegment* segment) {
  if (tokens.size() != static_cast<std::size_t>(segment->row.token_count)) return;
  segment->tokens = std::make_unique<Token[]>(tokens.size());
  std::ranges::copy(tokens, segment->tokens.get());
}

bool FitsTree(const CacheTables& tables, const LoadedSegment& segment) {
  const SegmentRow& row = segment.row;
  if (!segment.good || !tables.domains.contains(row.domain)) return false;
  if (row.kind == SegmentKind::kRows &&
      (row.token_count <= 0 || row.token_count > kMaxSegmentTokens || segment.tokens == nullptr)) {
    return false;
  }
  return row.parent == SegmentId::kNone || tables.ledger.FindSegment(row.parent) != nullptr;
}

bool PlaceOnDisk(SharedState& shared, const SegmentRow& row) REQUIRES(shared.mu) {
  auto stored = std::make_shared<StoredExtents>(shared.disk.packs.get(), row.extents);
  if (stored->block_bytes() < row.byte_count) return false;
  if (!row.extents.empty() && !shared.disk.packs->MarkUsed(row.extents)) return false;
  shared.tables.places.emplace(row.id, Place{.pending = nullptr,
                                             .in_ram = false,
                                             .disk = std::move(stored),
                                             .digest = row.digest,
                                             .end_hash = row.end_hash,
                                             .byte_count = row.byte_count,
                                             .end_token = row.first_token + row.token_count});
  shared.tables.payload_bytes += row.byte_count;
  return true;
}

bool AddToIndex(PrefixIndex& index, const SegmentRow& row) {
  if (row.kind == SegmentKind::kCheckpoint) {
    return index.Insert({.id = row.id,
                         .domain = row.domain,
                         .parent = row.parent,
                         .kind = row.kind,
                         .first_token = row.first_token});
  }
  return index.InsertCold({.id = row.id,
                           .domain = row.domain,
                           .parent = row.parent,
                           .first_token = row.first_token,
                           .token_count = row.token_count,
                           .tokens_digest = row.tokens_digest,
                           .head_hash = row.head_hash});
}

bool AddSegment(SharedState& shared, LoadedSegment& segment) REQUIRES(shared.mu) {
  CacheTables& tables = shared.tables;
  if (!FitsTree(tables, segment)) return false;
  const SegmentRow& row = segment.row;
  if (!AddToIndex(tables.index, row)) return false;
  if (!PlaceOnDisk(shared, row)) {
    tables.index.Erase(row.id);
    return false;
  }
  if (segment.tokens != nullptr) tables.index.Warm(row.id, std::move(segment.tokens));
  tables.ledger.AddSegment(row.id, {.domain = row.domain,
                                    .parent = row.parent,
                                    .kind = row.kind,
                                    .first_token = row.first_token,
                                    .token_count = row.token_count,
                                    .byte_count = row.byte_count});
  return true;
}

void RemoveOrphans(SharedState& shared, const std::vector<LoadedSegment>& segments)
    REQUIRES(shared.mu) {
  LedgerRemovals orphans;
  for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
    shared.tables.ledger.RemoveIfUnneeded(segment->row.id, &orphans);
  }
  for (const SegmentId id : orphans.segments) {
    shared.tables.reconciliation.removed_orphan_bytes += shared.tables.places.at(id).byte_count;
  }
  shared.Collect(orphans, RemovalCause::kDropped);
}

void AddManifests(SharedState& shared, const LoadedCatalog& loaded) REQUIRES(shared.mu) {
  CacheTables& tables = shared.tables;
  for (const ManifestRow& row : loaded.manifests) {
    if (tables.ledger.RestoreManifest(row)) continue;
    tables.removed_manifests.push_back(row.id);
    ++tables.reconciliation.removed_prefix_links;
  }
  for (const ManifestId id : loaded.report.bad_manifests) {
    tables.removed_manifests.push_back(id);
    ++tables.reconciliation.quarantined_manifests;
  }
}

}  // namespace

Result<LoadedCatalog> LoadCatalog(Catalog& catalog) {
  LoadedCatalog loaded;
  SKIPPY_ASSIGN_OR_RETURN(
      loaded.report,
      catalog.Load({.domain = [&](DomainRow row) { loaded.domains.push_back(std::move(row)); },
                    .segment =
                        [&](SegmentRow row) {
                          loaded.segments.push_back({.row = std::move(row), .tokens = {}});
                        },
                    .manifest = [&](ManifestRow row) { loaded.manifests.push_back(row); }}));
  auto next = loaded.segments.begin();
  SKIPPY_RETURN_IF_ERROR(catalog.VisitTokens([&](SegmentId id, std::vector<Token> tokens) {
    while (next != loaded.segments.end() && next->row.id < id) ++next;
    if (next == loaded.segments.end() || next->row.id != id) return;
    if (DigestTokens(tokens) == next->row.tokens_digest) SetTokens(tokens, &*next);
  }));
  for (LoadedSegment& segment : loaded.segments) {
    if (segment.row.token_count == 0 || segment.tokens != nullptr) continue;
    // What the pass did not bring is asked for by itself: the answer says what is wrong with it.
    auto tokens = catalog.LoadTokens(segment.row.id);
    if (tokens) {
      SetTokens(*tokens, &segment);
      continue;
    }
    segment.good = false;
    const ErrorCode code = tokens.error().code;
    if (code != ErrorCode::kCorrupt && code != ErrorCode::kNotFound) return tokens.error();
  }
  SKIPPY_ASSIGN_OR_RETURN(loaded.high_water, catalog.LoadHighWater());
  return loaded;
}

void Reconcile(SharedState& shared, LoadedCatalog loaded) {
  CacheTables& tables = shared.tables;
  tables.next_segment = loaded.high_water.segment + 1;
  tables.next_domain = loaded.high_water.domain + 1;
  tables.ledger.StartAbove(loaded.high_water.manifest, loaded.high_water.use_clock);
  for (DomainRow& row : loaded.domains) {
    tables.domains.emplace(row.id, Domain{.spec = std::move(row.spec), .durable = true});
  }
  for (LoadedSegment& segment : loaded.segments) {
    if (AddSegment(shared, segment)) continue;
    tables.removed_segments.push_back(RowOnly(shared, segment.row.id));
    tables.reconciliation.removed_orphan_bytes += segment.row.byte_count;
    if (!segment.good) ++tables.activity.corrupt_entries;
  }
  for (const SegmentId id : loaded.report.bad_segments) {
    tables.removed_segments.push_back(RowOnly(shared, id));
    ++tables.activity.corrupt_entries;
  }
  AddManifests(shared, loaded);
  shared.disk.packs->FinishRecovery();
  RemoveOrphans(shared, loaded.segments);
  const Reconciliation& report = tables.reconciliation;
  LogInfo(
      "cache: {} prefixes in {} segments ({} bytes) can be restored; start-up removed {} damaged "
      "and {} dangling prefixes and {} bytes that nothing needed",
      tables.ledger.manifest_count(), tables.ledger.segment_count(), tables.payload_bytes,
      report.quarantined_manifests, report.removed_prefix_links, report.removed_orphan_bytes);
}

}  // namespace skippy
