#include "catalog/catalog.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/mutex.h"
#include "catalog/database.h"
#include "catalog/rows.h"
#include "catalog/statement.h"

namespace skippy {
namespace {

// The prepared statements of one connection.
struct Statements {
  Statement begin, commit, rollback;
  Statement read_domains, read_segments, read_manifests, read_high_water;
  Statement read_segment, read_tokens, read_manifest;
  Statement add_domain, add_segment, add_tokens, add_manifest, put_high_water;
  Statement remove_domain, remove_segment, remove_tokens, remove_manifest;

  static Result<Statements> Prepare(sqlite3* db);
};

Result<Statements> Statements::Prepare(sqlite3* db) {
  Statements out;
  const std::pair<Statement*, std::string_view> texts[] = {
      {&out.begin, "BEGIN IMMEDIATE"},
      {&out.commit, "COMMIT"},
      {&out.rollback, "ROLLBACK"},
      {&out.read_domains, "SELECT * FROM domains ORDER BY id"},
      {&out.read_segments, "SELECT * FROM segments ORDER BY id"},
      {&out.read_manifests, "SELECT * FROM manifests ORDER BY id"},
      {&out.read_high_water, "SELECT * FROM high_water"},
      {&out.read_segment, "SELECT * FROM segments WHERE id = ?"},
      {&out.read_tokens, "SELECT tokens FROM segment_tokens WHERE segment = ?"},
      {&out.read_manifest, "SELECT * FROM manifests WHERE id = ?"},
      {&out.add_domain, "INSERT INTO domains VALUES(?, ?, ?, ?, ?, ?)"},
      {&out.add_segment, "INSERT INTO segments VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"},
      {&out.add_tokens, "INSERT INTO segment_tokens VALUES(?, ?)"},
      {&out.add_manifest, "INSERT OR REPLACE INTO manifests VALUES(?, ?, ?, ?, ?, ?, ?, ?)"},
      {&out.put_high_water, "INSERT OR REPLACE INTO high_water VALUES(?, ?, ?, ?, ?, ?)"},
      {&out.remove_domain, "DELETE FROM domains WHERE id = ?"},
      {&out.remove_segment, "DELETE FROM segments WHERE id = ?"},
      {&out.remove_tokens, "DELETE FROM segment_tokens WHERE segment = ?"},
      {&out.remove_manifest, "DELETE FROM manifests WHERE id = ?"},
  };
  for (const auto& [statement, sql] : texts) {
    SKIPPY_ASSIGN_OR_RETURN(*statement, Statement::Prepare(db, sql));
  }
  return out;
}

template <class Id>
std::int64_t IntOf(Id id) {
  return static_cast<std::int64_t>(id);
}

Error NoSegment(SegmentId id, ErrorCode code, std::string_view why) {
  return MakeError(code, "catalog: segment " + std::to_string(IntOf(id)) + " " + std::string(why));
}

// What a damaged row says its number is: enough to remove it.
template <class Id>
Id FirstColumnAs(const Statement& rows) {
  return Id{static_cast<std::uint64_t>(rows.Int(0).value_or(0))};
}

bool Holds(const std::vector<SegmentId>& ascending, SegmentId id) {
  return std::binary_search(ascending.begin(), ascending.end(), id);
}

class SqliteCatalog final : public Catalog {
 public:
  SqliteCatalog(std::unique_ptr<Database> database, Statements statements)
      : database_(std::move(database)), statements_(std::move(statements)) {}
  ~SqliteCatalog() override {
    if (const Status closed = Close(); !closed) {
      LogWarning("{}", closed.error().text);
    }
  }

  Status ReadStart();

  Result<CatalogLoadReport> Load(const Visitor& visitor) override;
  Result<SegmentWithTokens> LoadWithTokens(SegmentId id) override;
  Result<SegmentRow> LoadSegment(SegmentId id) override;
  Status Commit(const CatalogBatch& batch) override;
  Result<HighWater> LoadHighWater() override;
  Result<std::uint64_t> PhysicalBytes() override;
  Status Close() override;

 private:
  Status CheckOpen() const REQUIRES(mu_);
  Status LoadDomains(const Visitor& visitor, CatalogLoadReport& report) REQUIRES(mu_);
  Result<std::vector<SegmentId>> LoadSegments(const Visitor& visitor, CatalogLoadReport& report)
      REQUIRES(mu_);
  Status LoadManifests(const Visitor& visitor, const std::vector<SegmentId>& good,
                       CatalogLoadReport& report) REQUIRES(mu_);
  Result<StoredSegment> FindSegment(SegmentId id) REQUIRES(mu_);
  Status ReadHighWaterRow() REQUIRES(mu_);

  Status Apply(const CatalogBatch& batch) REQUIRES(mu_);
  Status ApplyRemovals(const CatalogBatch& batch) REQUIRES(mu_);
  Status ApplyAdditions(const CatalogBatch& batch) REQUIRES(mu_);
  Status AddSegment(const SegmentRow& row, std::span<const Token> tokens) REQUIRES(mu_);
  Status Touch(const ManifestTouch& touch) REQUIRES(mu_);
  Status RaiseHighWater(const CatalogBatch& batch) REQUIRES(mu_);
  Status RemoveDamage() REQUIRES(mu_);
  Result<DomainRoot> RootOfDomain(DomainId id) const REQUIRES(mu_);

  Mutex mu_;
  std::unique_ptr<Database> database_ GUARDED_BY(mu_);  // null after Close
  Statements statements_ GUARDED_BY(mu_);               // finalised before the database closes
  DomainRoots roots_ GUARDED_BY(mu_);                   // of every good domain row
  HighWater high_water_ GUARDED_BY(mu_);
  // Found by loads and removed with the next commit: nobody else could name them.
  std::vector<std::int64_t> bad_domains_ GUARDED_BY(mu_);
  bool stray_tokens_ GUARDED_BY(mu_) = false;
};

Status SqliteCatalog::CheckOpen() const {
  if (database_ == nullptr) {
    return MakeError(ErrorCode::kUnavailable, "catalog is closed");
  }
  return {};
}

// What every later call needs: the domains' roots and the high-water marks.
Status SqliteCatalog::ReadStart() {
  const MutexLock lock(mu_);
  CatalogLoadReport ignored;
  SKIPPY_RETURN_IF_ERROR(LoadDomains({}, ignored));
  return ReadHighWaterRow();
}

// The row, and never less than the ids that are in use: that row may be the damaged one.
Status SqliteCatalog::ReadHighWaterRow() {
  std::optional<HighWater> stored;
  {
    const StatementScope scope(statements_.read_high_water);
    SKIPPY_ASSIGN_OR_RETURN(const bool has_row, statements_.read_high_water.Step());
    stored = has_row ? ReadHighWater(statements_.read_high_water) : std::nullopt;
  }
  SKIPPY_ASSIGN_OR_RETURN(const std::int64_t segment,
                          database_->QueryInt("SELECT max(id) FROM segments"));
  SKIPPY_ASSIGN_OR_RETURN(const std::int64_t manifest,
                          database_->QueryInt("SELECT max(id) FROM manifests"));
  SKIPPY_ASSIGN_OR_RETURN(const std::int64_t domain,
                          database_->QueryInt("SELECT max(id) FROM domains"));
  high_water_ = stored.value_or(HighWater{});
  high_water_.segment = std::max(high_water_.segment, static_cast<std::uint64_t>(segment));
  high_water_.manifest = std::max(high_water_.manifest, static_cast<std::uint64_t>(manifest));
  high_water_.domain = std::max(high_water_.domain, static_cast<std::uint32_t>(domain));
  if (!stored) {
    SKIPPY_ASSIGN_OR_RETURN(const std::int64_t clock,
                            database_->QueryInt("SELECT max(last_use) FROM manifests"));
    high_water_.use_clock = static_cast<std::uint64_t>(clock);
  }
  return {};
}

Status SqliteCatalog::LoadDomains(const Visitor& visitor, CatalogLoadReport& report) {
  Statement& rows = statements_.read_domains;
  const StatementScope scope(rows);
  roots_.clear();
  bad_domains_.clear();
  for (;;) {
    SKIPPY_ASSIGN_OR_RETURN(const bool has_row, rows.Step());
    if (!has_row) {
      report.bad_domains = bad_domains_.size();
      return {};
    }
    std::optional<DomainRow> domain = ReadDomain(rows);
    if (!domain) {
      bad_domains_.push_back(rows.Int(0).value_or(0));
      continue;
    }
    roots_[domain->id] = RootOf(domain->spec);
    if (visitor.domain) {
      visitor.domain(std::move(*domain));
    }
  }
}

// Returns the ids of the good ones, ascending.
Result<std::vector<SegmentId>> SqliteCatalog::LoadSegments(const Visitor& visitor,
                                                           CatalogLoadReport& report) {
  Statement& rows = statements_.read_segments;
  const StatementScope scope(rows);
  std::vector<SegmentId> good;
  for (;;) {
    SKIPPY_ASSIGN_OR_RETURN(const bool has_row, rows.Step());
    if (!has_row) {
      stray_tokens_ = stray_tokens_ || !report.bad_segments.empty();
      return good;
    }
    std::optional<StoredSegment> segment = ReadSegment(rows, roots_);
    // Ids ascend in a sound table, and a child is younger than its parent.
    if (!segment || (!good.empty() && segment->row.id <= good.back()) ||
        (segment->row.parent != SegmentId::kNone && !Holds(good, segment->row.parent))) {
      report.bad_segments.push_back(FirstColumnAs<SegmentId>(rows));
      continue;
    }
    good.push_back(segment->row.id);
    if (visitor.segment) {
      visitor.segment(std::move(segment->row));
    }
  }
}

Status SqliteCatalog::LoadManifests(const Visitor& visitor, const std::vector<SegmentId>& good,
                                    CatalogLoadReport& report) {
  Statement& rows = statements_.read_manifests;
  const StatementScope scope(rows);
  for (;;) {
    SKIPPY_ASSIGN_OR_RETURN(const bool has_row, rows.Step());
    if (!has_row) {
      return {};
    }
    const std::optional<ManifestRow> manifest = ReadManifest(rows, roots_);
    if (!manifest || !Holds(good, manifest->tip)) {
      report.bad_manifests.push_back(FirstColumnAs<ManifestId>(rows));
    } else if (visitor.manifest) {
      visitor.manifest(*manifest);
    }
  }
}

Result<CatalogLoadReport> SqliteCatalog::Load(const Visitor& visitor) {
  const MutexLock lock(mu_);
  SKIPPY_RETURN_IF_ERROR(CheckOpen());
  CatalogLoadReport report;
  SKIPPY_RETURN_IF_ERROR(LoadDomains(visitor, report));
  SKIPPY_ASSIGN_OR_RETURN(const std::vector<SegmentId> good, LoadSegments(visitor, report));
  SKIPPY_RETURN_IF_ERROR(LoadManifests(visitor, good, report));
  return report;
}

Result<StoredSegment> SqliteCatalog::FindSegment(SegmentId id) {
  Statement& rows = statements_.read_segment.BindInt(1, IntOf(id));
  const StatementScope scope(rows);
  SKIPPY_ASSIGN_OR_RETURN(const bool has_row, rows.Step());
  if (!has_row) {
    return NoSegment(id, ErrorCode::kNotFound, "does not exist");
  }
  std::optional<StoredSegment> segment = ReadSegment(rows, roots_);
  if (!segment) {
    return NoSegment(id, ErrorCode::kCorrupt, "is not the row that was written");
  }
  return std::move(*segment);
}

Result<SegmentRow> SqliteCatalog::LoadSegment(SegmentId id) {
  const MutexLock lock(mu_);
  SKIPPY_RETURN_IF_ERROR(CheckOpen());
  SKIPPY_ASSIGN_OR_RETURN(StoredSegment segment, FindSegment(id));
  return std::move(segment.row);
}

Result<SegmentWithTokens> SqliteCatalog::LoadWithTokens(SegmentId id) {
  const MutexLock lock(mu_);
  SKIPPY_RETURN_IF_ERROR(CheckOpen());
  SKIPPY_ASSIGN_OR_RETURN(StoredSegment segment, FindSegment(id));
  std::optional<std::vector<Token>> tokens = std::vector<Token>();
  if (segment.row.kind == SegmentKind::kRows) {
    Statement& rows = statements_.read_tokens.BindInt(1, IntOf(id));
    const StatementScope scope(rows);
    SKIPPY_ASSIGN_OR_RETURN(const bool has_row, rows.Step());
    const auto bytes = has_row ? rows.Blob(0) : std::nullopt;
    tokens = bytes ? DecodeTokens(*bytes) : std::nullopt;
  }
  if (!tokens || DigestTokens(*tokens) != segment.tokens ||
      tokens->size() != static_cast<std::size_t>(segment.row.token_count)) {
    stray_tokens_ = true;
    return NoSegment(id, ErrorCode::kCorrupt, "does not have the tokens that were written");
  }
  return SegmentWithTokens{std::move(segment.row), std::move(*tokens)};
}

Result<Catalog::HighWater> SqliteCatalog::LoadHighWater() {
  const MutexLock lock(mu_);
  SKIPPY_RETURN_IF_ERROR(CheckOpen());
  return high_water_;
}

Result<std::uint64_t> SqliteCatalog::PhysicalBytes() {
  const MutexLock lock(mu_);
  SKIPPY_RETURN_IF_ERROR(CheckOpen());
  return database_->PhysicalBytes();
}

Status SqliteCatalog::Close() {
  const MutexLock lock(mu_);
  statements_ = Statements{};
  const std::unique_ptr<Database> database = std::move(database_);
  return database == nullptr ? Status{} : database->Close();
}

Status SqliteCatalog::Commit(const CatalogBatch& batch) {
  SKIPPY_CHECK(batch.add_segments.size() == batch.add_segment_tokens.size(),
               "every added segment comes with its tokens");
  const MutexLock lock(mu_);
  SKIPPY_RETURN_IF_ERROR(CheckOpen());
  SKIPPY_RETURN_IF_ERROR(database_->MakeRoomInLog());
  SKIPPY_RETURN_IF_ERROR(statements_.begin.Run());
  const HighWater before = high_water_;
  Status applied = Apply(batch);
  if (applied) {
    applied = statements_.commit.Run();
  }
  if (!applied) {
    high_water_ = before;
    for (const DomainRow& domain : batch.add_domains) {
      roots_.erase(domain.id);
    }
    // Some failures have ended the transaction already.
    if (sqlite3_get_autocommit(database_->handle()) == 0) {
      if (const Status undone = statements_.rollback.Run(); !undone) {
        LogWarning("{}", undone.error().text);
      }
    }
    return applied;
  }
  bad_domains_.clear();
  stray_tokens_ = false;
  if (!batch.remove_segments.empty() || !batch.remove_manifests.empty()) {
    database_->ReclaimFreePages();
  }
  database_->AfterCommit();
  return {};
}

Status SqliteCatalog::Apply(const CatalogBatch& batch) {
  SKIPPY_RETURN_IF_ERROR(ApplyRemovals(batch));
  SKIPPY_RETURN_IF_ERROR(RemoveDamage());
  SKIPPY_RETURN_IF_ERROR(ApplyAdditions(batch));
  for (const ManifestTouch& touch : batch.touches) {
    SKIPPY_RETURN_IF_ERROR(Touch(touch));
  }
  return RaiseHighWater(batch);
}

Status SqliteCatalog::ApplyRemovals(const CatalogBatch& batch) {
  for (const ManifestId id : batch.remove_manifests) {
    SKIPPY_RETURN_IF_ERROR(statements_.remove_manifest.BindInt(1, IntOf(id)).Run());
  }
  for (const SegmentId id : batch.remove_segments) {
    SKIPPY_RETURN_IF_ERROR(statements_.remove_segment.BindInt(1, IntOf(id)).Run());
    SKIPPY_RETURN_IF_ERROR(statements_.remove_tokens.BindInt(1, IntOf(id)).Run());
  }
  return {};
}

// Domain rows that nobody can use, and tokens whose segment lost its number.
Status SqliteCatalog::RemoveDamage() {
  for (const std::int64_t id : bad_domains_) {
    SKIPPY_RETURN_IF_ERROR(statements_.remove_domain.BindInt(1, id).Run());
  }
  if (stray_tokens_) {
    return database_->Execute(
        "DELETE FROM segment_tokens WHERE segment NOT IN (SELECT id FROM segments)");
  }
  return {};
}

Status SqliteCatalog::ApplyAdditions(const CatalogBatch& batch) {
  for (const DomainRow& domain : batch.add_domains) {
    if (roots_.contains(domain.id)) {
      return MakeError(ErrorCode::kAlreadyExists,
                       "catalog: domain " + std::to_string(IntOf(domain.id)) + " exists");
    }
  }
  for (const DomainRow& domain : batch.add_domains) {
    SKIPPY_RETURN_IF_ERROR(WriteDomain(statements_.add_domain, domain));
    roots_[domain.id] = RootOf(domain.spec);
  }
  for (std::size_t i = 0; i < batch.add_segments.size(); ++i) {
    SKIPPY_RETURN_IF_ERROR(AddSegment(batch.add_segments[i], batch.add_segment_tokens[i]));
  }
  for (const ManifestRow& manifest : batch.add_manifests) {
    SKIPPY_ASSIGN_OR_RETURN(const DomainRoot root, RootOfDomain(manifest.domain));
    SKIPPY_RETURN_IF_ERROR(WriteManifest(statements_.add_manifest, manifest, root));
  }
  return {};
}

Status SqliteCatalog::AddSegment(const SegmentRow& row, std::span<const Token> tokens) {
  if (row.parent >= row.id || tokens.size() != static_cast<std::size_t>(row.token_count)) {
    return NoSegment(row.id, ErrorCode::kInvalidArgument,
                     "is older than its parent or has other tokens than it says");
  }
  SKIPPY_ASSIGN_OR_RETURN(const DomainRoot root, RootOfDomain(row.domain));
  StoredSegment stored{row, DigestTokens(tokens)};
  stored.row.head_hash = HashHead(tokens);
  SKIPPY_RETURN_IF_ERROR(WriteSegment(statements_.add_segment, stored, root));
  if (row.kind == SegmentKind::kCheckpoint) {
    return {};
  }
  const std::vector<std::byte> bytes = EncodeTokens(tokens);
  return statements_.add_tokens.BindInt(1, IntOf(row.id)).BindBlob(2, bytes).Run();
}

// A manifest that is gone, or damaged, stays as it is.
Status SqliteCatalog::Touch(const ManifestTouch& touch) {
  std::optional<ManifestRow> row;
  {
    Statement& rows = statements_.read_manifest.BindInt(1, IntOf(touch.id));
    const StatementScope scope(rows);
    SKIPPY_ASSIGN_OR_RETURN(const bool has_row, rows.Step());
    row = has_row ? ReadManifest(rows, roots_) : std::nullopt;
  }
  if (!row) {
    return {};
  }
  row->last_use = touch.last_use;
  row->hits = touch.hits;
  row->retained_until_s = touch.retained_until_s;
  return WriteManifest(statements_.add_manifest, *row, roots_.at(row->domain));
}

Status SqliteCatalog::RaiseHighWater(const CatalogBatch& batch) {
  HighWater now = high_water_;
  for (const DomainRow& row : batch.add_domains) {
    now.domain = std::max(now.domain, static_cast<std::uint32_t>(row.id));
  }
  for (const SegmentRow& row : batch.add_segments) {
    now.segment = std::max(now.segment, static_cast<std::uint64_t>(row.id));
  }
  for (const ManifestRow& row : batch.add_manifests) {
    now.manifest = std::max(now.manifest, static_cast<std::uint64_t>(row.id));
    now.use_clock = std::max(now.use_clock, row.last_use);
  }
  for (const ManifestTouch& touch : batch.touches) {
    now.use_clock = std::max(now.use_clock, touch.last_use);
  }
  high_water_ = now;
  return WriteHighWater(statements_.put_high_water, now);
}

Result<DomainRoot> SqliteCatalog::RootOfDomain(DomainId id) const {
  const auto root = roots_.find(id);
  if (root == roots_.end()) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "catalog: domain " + std::to_string(IntOf(id)) + " is not registered");
  }
  return root->second;
}

}  // namespace

Result<std::unique_ptr<Catalog>> Catalog::Open(Env* env, const CatalogOptions& options) {
  SKIPPY_ASSIGN_OR_RETURN(std::unique_ptr<Database> database, Database::Open(env, options));
  SKIPPY_ASSIGN_OR_RETURN(Statements statements, Statements::Prepare(database->handle()));
  auto catalog = std::make_unique<SqliteCatalog>(std::move(database), std::move(statements));
  SKIPPY_RETURN_IF_ERROR(catalog->ReadStart());
  return std::unique_ptr<Catalog>(std::move(catalog));
}

}  // namespace skippy
