// Rows between SQLite's columns and our structs. Reading checks storage classes, ranges and the
// row's digest: what comes out is what was written.
#pragma once

#include <optional>
#include <unordered_map>

#include "catalog/catalog.h"
#include "catalog/row_digest.h"
#include "catalog/statement.h"

namespace skippy {

using DomainRoots = std::unordered_map<DomainId, DomainRoot>;

struct StoredSegment {
  SegmentRow row;
  TokensDigest tokens;
};

// The order of columns is that of schema.h; the statement must select or insert all of them.
// Absent: the row is damaged, or belongs to a domain that is not in `roots`.
std::optional<DomainRow> ReadDomain(const Statement& statement);
std::optional<StoredSegment> ReadSegment(const Statement& statement, const DomainRoots& roots);
std::optional<ManifestRow> ReadManifest(const Statement& statement, const DomainRoots& roots);
std::optional<Catalog::HighWater> ReadHighWater(const Statement& statement);

Status WriteDomain(Statement& statement, const DomainRow& row);
Status WriteSegment(Statement& statement, const StoredSegment& segment, const DomainRoot& root);
Status WriteManifest(Statement& statement, const ManifestRow& row, const DomainRoot& root);
Status WriteHighWater(Statement& statement, const Catalog::HighWater& row);

}  // namespace skippy
