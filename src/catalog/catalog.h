// The SQLite database that says which domains, segments and manifests exist and where their bytes
// lie. One writer; every row carries a digest over all its fields, checked before the row is used.
// `sqlite3.h` is included in this folder only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/token_digest.h"
#include "pack/pack_store.h"
#include "skippy/cache.h"
#include "skippy/env.h"
#include "skippy/ids.h"
#include "skippy/result.h"

namespace skippy {

inline constexpr int kCatalogFormatVersion = 2;

struct DomainRow {
  DomainId id = DomainId::kNone;
  DomainSpec spec;
};

// A segment is a node of a tree of token paths: its path is its parent's path up to first_token,
// then its own tokens. A parent may be longer than first_token (a branch inside it).
struct SegmentRow {
  SegmentId id = SegmentId::kNone;
  DomainId domain = DomainId::kNone;
  SegmentId parent = SegmentId::kNone;  // kNone: the path starts here (first_token == 0)
  SegmentKind kind = SegmentKind::kRows;
  TokenCount first_token = 0;  // kCheckpoint: the position it holds at
  TokenCount token_count = 0;  // kRows: 1..kMaxSegmentTokens; kCheckpoint: 0
  PathHash end_hash;           // of the whole path up to its end
  SegmentDigest digest;        // of the payload bytes
  std::uint64_t byte_count = 0;
  ExtentList extents;
  // Of its own tokens. Commit derives them, whatever stands here.
  TokensDigest tokens_digest;
  std::uint64_t head_hash = 0;
};

// A row and what its digest of tokens stands for.
struct SegmentWithTokens {
  SegmentRow row;
  std::vector<Token> tokens;
};

struct ManifestRow {
  ManifestId id = ManifestId::kNone;
  DomainId domain = DomainId::kNone;
  SegmentId tip = SegmentId::kNone;  // last segment, or the checkpoint the prefix resumes at
  TokenCount token_count = 0;        // <= end of the tip
  std::uint64_t last_use = 0;        // logical clock: larger is more recent
  std::uint64_t hits = 0;
  // Seconds since the epoch: until then what is not retained is evicted first. 0: not retained.
  std::uint64_t retained_until_s = 0;
};

struct ManifestTouch {
  ManifestId id = ManifestId::kNone;
  std::uint64_t last_use = 0;
  std::uint64_t hits = 0;
  std::uint64_t retained_until_s = 0;
};

// One durable step: all of it or nothing. Removals are applied before additions.
struct CatalogBatch {
  std::vector<ManifestId> remove_manifests;
  std::vector<SegmentId> remove_segments;
  std::vector<DomainRow> add_domains;
  std::vector<SegmentRow> add_segments;
  std::vector<std::vector<Token>> add_segment_tokens;  // parallel to add_segments
  std::vector<ManifestRow> add_manifests;
  std::vector<ManifestTouch> touches;
  bool empty() const {
    return remove_manifests.empty() && remove_segments.empty() && add_domains.empty() &&
           add_segments.empty() && add_manifests.empty() && touches.empty();
  }
};

// What a load met that cannot be used. Bad rows are not handed out; they are removed by the caller
// with Commit.
struct CatalogLoadReport {
  std::vector<SegmentId> bad_segments;
  std::vector<ManifestId> bad_manifests;
  std::uint64_t bad_domains = 0;
};

struct CatalogOptions {
  std::string path;                           // of the database file
  std::uint64_t wal_limit_bytes = 16 * kMiB;  // checkpoint (TRUNCATE) at this size
};

// Thread-safe: one internal connection under a lock. Every call may do I/O.
class Catalog {
 public:
  virtual ~Catalog() = default;

  // Creates or opens the database: WAL, locking_mode=EXCLUSIVE, synchronous=FULL, 0600.
  //   kUnsupported  another format version: the file is left alone
  //   kCorrupt      SQLite does not accept the file, or its schema is not ours
  static Result<std::unique_ptr<Catalog>> Open(Env* env, const CatalogOptions& options);

  // Visits every good row: domains first, then segments with parents before children, then
  // manifests. Tokens are not part of it (see LoadWithTokens).
  struct Visitor {
    std::function<void(DomainRow)> domain;
    std::function<void(SegmentRow)> segment;
    std::function<void(ManifestRow)> manifest;
  };
  virtual Result<CatalogLoadReport> Load(const Visitor& visitor) = 0;

  // One segment with its tokens, after checking the row, and the tokens against the row's digest.
  // kCorrupt, kNotFound.
  virtual Result<SegmentWithTokens> LoadWithTokens(SegmentId id) = 0;
  // The row of one segment as it is now, checked. For asking again before a quarantine.
  virtual Result<SegmentRow> LoadSegment(SegmentId id) = 0;

  // Applies the batch in one transaction and makes it durable before returning.
  virtual Status Commit(const CatalogBatch& batch) = 0;

  // Highest ids and clock ever used; new ones start above.
  struct HighWater {
    std::uint64_t segment = 0;
    std::uint64_t manifest = 0;
    std::uint32_t domain = 0;
    std::uint64_t use_clock = 0;
  };
  virtual Result<HighWater> LoadHighWater() = 0;

  // Database plus WAL, as they lie on disk.
  virtual Result<std::uint64_t> PhysicalBytes() = 0;
  virtual Status Close() = 0;
};

}  // namespace skippy
