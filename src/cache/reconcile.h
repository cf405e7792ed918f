// Start-up: what the catalog says, checked against the packs and itself.
#pragma once

#include "cache/shared_state.h"
#include "skippy/result.h"

namespace skippy {

// Fills the tables from the open catalog, marks the extents and ends the recovery of the open pack
// store. Reads every row and no tokens: all segments are cold afterwards. What cannot be used
// (damaged, dangling, overlapping, or needed by no prefix) is left in the removals for the writer.
// A failed read is an error: nothing may be removed because of it, and the tables are of no use
// then (see ForgetCatalog). Called before other threads see `shared`.
Status Reconcile(SharedState& shared) REQUIRES(shared.mu);

// Empties what Reconcile filled.
void ForgetCatalog(SharedState& shared) REQUIRES(shared.mu);

}  // namespace skippy
