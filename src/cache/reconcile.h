// Start-up: what the catalog says, checked against the packs and itself.
#pragma once

#include <memory>
#include <vector>

#include "cache/shared_state.h"
#include "catalog/catalog.h"
#include "skippy/result.h"

namespace skippy {

struct LoadedSegment {
  SegmentRow row;
  std::unique_ptr<Token[]> tokens;  // row.token_count of them
  bool good = true;
};

struct LoadedCatalog {
  std::vector<DomainRow> domains;
  std::vector<LoadedSegment> segments;  // parents before children
  std::vector<ManifestRow> manifests;
  CatalogLoadReport report;
  Catalog::HighWater high_water;
};

// Reads everything. A failed read is an error: nothing may be removed because of it.
Result<LoadedCatalog> LoadCatalog(Catalog& catalog);

// Fills the tables, marks the extents and ends the recovery of the pack store. What cannot be used
// (damaged, dangling, overlapping, or needed by no prefix) is left in the removals for the writer.
// Called once, before other threads see `shared`.
void Reconcile(SharedState& shared, LoadedCatalog loaded) REQUIRES(shared.mu);

}  // namespace skippy
