// The catalog against a real file system: what was committed is what is loaded, a batch is one
// step, and no damaged row or file is ever taken for a good one.
#include "catalog/catalog.h"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <string>

namespace skippy {
namespace {

namespace fs = std::filesystem;

template <class Digest>
Digest Filled(std::uint8_t value) {
  Digest digest;
  digest.bytes.fill(value);
  return digest;
}

DomainRow MakeDomain(std::uint32_t id) {
  return {DomainId{id},
          {Filled<ModelIdentity>(1), Filled<StateIdentity>(static_cast<std::uint8_t>(id)),
           std::string("name\0space", 10), "a model"}};
}

SegmentRow MakeSegment(std::uint64_t id, std::uint64_t parent, TokenCount first) {
  SegmentRow row;
  row.id = SegmentId{id};
  row.domain = DomainId{1};
  row.parent = SegmentId{parent};
  row.first_token = first;
  row.token_count = 4;
  row.end_hash = Filled<PathHash>(static_cast<std::uint8_t>(id));
  row.digest = Filled<SegmentDigest>(static_cast<std::uint8_t>(id + 100));
  row.byte_count = 5000 + id;
  row.extents = {{PackId{1}, 7, 1}, {PackId{2}, 0xFFFFFFFF, static_cast<std::uint32_t>(id)}};
  return row;
}

std::vector<Token> TokensOf(const SegmentRow& row) {
  std::vector<Token> tokens(static_cast<std::size_t>(row.token_count));
  std::iota(tokens.begin(), tokens.end(), static_cast<Token>(row.first_token) - 2);
  return tokens;
}

ManifestRow MakeManifest(std::uint64_t id, std::uint64_t tip) {
  return {ManifestId{id}, DomainId{1}, SegmentId{tip}, 8, 10 + id, id};
}

void Add(CatalogBatch& batch, const SegmentRow& row) {
  batch.add_segments.push_back(row);
  batch.add_segment_tokens.push_back(TokensOf(row));
}

struct Loaded {
  std::map<DomainId, DomainRow> domains;
  std::map<SegmentId, SegmentRow> segments;
  std::map<ManifestId, ManifestRow> manifests;
  CatalogLoadReport report;
};

class CatalogTest : public ::testing::Test {
 protected:
  CatalogTest() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    directory_ = fs::canonical(fs::temp_directory_path()) /
                 ("skippy_catalog_" + std::to_string(::getpid()) + "_" + test->name());
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    path_ = directory_ / "catalog.db";
  }
  ~CatalogTest() override {
    catalog_.reset();
    fs::remove_all(directory_);
  }

  Status TryOpen() {
    catalog_.reset();
    auto opened = Catalog::Open(Env::Posix(), {.path = path_});
    if (!opened) {
      return opened.error();
    }
    catalog_ = std::move(*opened);
    return {};
  }
  void Open() {
    const Status opened = TryOpen();
    ASSERT_TRUE(opened) << opened.error().text;
  }
  void Close() {
    const Status closed = catalog_->Close();
    ASSERT_TRUE(closed) << closed.error().text;
    catalog_.reset();
  }
  void Commit(const CatalogBatch& batch) {
    const Status committed = catalog_->Commit(batch);
    ASSERT_TRUE(committed) << committed.error().text;
  }
  // Domain 1; segments 1 <- 2 <- 3 and a checkpoint 4; manifests 1 (tip 3) and 2 (tip 4).
  void CommitSample() {
    CatalogBatch batch;
    batch.add_domains = {MakeDomain(1)};
    Add(batch, MakeSegment(1, 0, 0));
    Add(batch, MakeSegment(2, 1, 4));
    Add(batch, MakeSegment(3, 2, 6));
    SegmentRow checkpoint = MakeSegment(4, 2, 8);
    checkpoint.kind = SegmentKind::kCheckpoint;
    checkpoint.token_count = 0;
    Add(batch, checkpoint);
    batch.add_manifests = {MakeManifest(1, 3), MakeManifest(2, 4)};
    Commit(batch);
  }
  Loaded Load() {
    Loaded out;
    auto report = catalog_->Load({
        .domain = [&](DomainRow row) { out.domains[row.id] = row; },
        .segment =
            [&](SegmentRow row) {
              EXPECT_TRUE(row.parent == SegmentId::kNone || out.segments.contains(row.parent));
              out.segments[row.id] = row;
            },
        .manifest = [&](ManifestRow row) { out.manifests[row.id] = row; },
    });
    EXPECT_TRUE(report) << report.error().text;
    out.report = report.value_or(CatalogLoadReport{});
    return out;
  }
  // Changes the closed database behind the catalog's back.
  void Tamper(const std::string& sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
    char* error = nullptr;
    ASSERT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
    ASSERT_EQ(sqlite3_close(db), SQLITE_OK);
  }
  std::vector<std::string> FileNames() const {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(directory_)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }
  std::string ReadFile() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  void WriteFile(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }

  fs::path directory_;
  std::string path_;
  std::unique_ptr<Catalog> catalog_;
};

TEST_F(CatalogTest, GivesBackWhatWasCommittedAfterAReopen) {
  Open();
  CommitSample();
  Close();
  EXPECT_FALSE(fs::exists(path_ + "-wal")) << "a closed catalog is one file";
  Open();
  const Loaded loaded = Load();
  EXPECT_TRUE(loaded.report.bad_segments.empty() && loaded.report.bad_manifests.empty());
  ASSERT_EQ(loaded.domains.size(), 1U);
  const DomainRow& domain = loaded.domains.at(DomainId{1});
  EXPECT_EQ(domain.spec.name_space, MakeDomain(1).spec.name_space);
  EXPECT_EQ(domain.spec.model_name, "a model");
  EXPECT_EQ(domain.spec.state, MakeDomain(1).spec.state);
  ASSERT_EQ(loaded.segments.size(), 4U);
  const SegmentRow& segment = loaded.segments.at(SegmentId{3});
  const SegmentRow expected = MakeSegment(3, 2, 6);
  EXPECT_EQ(segment.parent, expected.parent);
  EXPECT_EQ(segment.first_token, expected.first_token);
  EXPECT_EQ(segment.end_hash, expected.end_hash);
  EXPECT_EQ(segment.digest, expected.digest);
  EXPECT_EQ(segment.byte_count, expected.byte_count);
  EXPECT_EQ(segment.extents, expected.extents);
  EXPECT_EQ(loaded.segments.at(SegmentId{4}).kind, SegmentKind::kCheckpoint);
  ASSERT_EQ(loaded.manifests.size(), 2U);
  EXPECT_EQ(loaded.manifests.at(ManifestId{2}).tip, SegmentId{4});
  EXPECT_EQ(loaded.manifests.at(ManifestId{2}).last_use, 12U);
  EXPECT_EQ(catalog_->LoadWithTokens(SegmentId{3}).value().tokens, TokensOf(expected));
  EXPECT_TRUE(catalog_->LoadWithTokens(SegmentId{4}).value().tokens.empty());
  EXPECT_EQ(catalog_->LoadSegment(SegmentId{3}).value().digest, expected.digest);
  EXPECT_EQ(catalog_->LoadSegment(SegmentId{9}).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(catalog_->LoadWithTokens(SegmentId{9}).error().code, ErrorCode::kNotFound);
}

TEST_F(CatalogTest, KeepsCommitsThatAreStillInTheLog) {
  Open();
  CommitSample();
  const fs::path copy = directory_ / "copy";
  fs::create_directory(copy);
  fs::copy(path_, copy / "catalog.db");
  fs::copy(path_ + "-wal", copy / "catalog.db-wal");
  Close();
  path_ = copy / "catalog.db";
  Open();
  EXPECT_EQ(Load().segments.size(), 4U);
}

TEST_F(CatalogTest, AppliesRemovalsBeforeAdditions) {
  Open();
  CommitSample();
  CatalogBatch batch;
  batch.remove_manifests = {ManifestId{2}};
  batch.remove_segments = {SegmentId{4}, SegmentId{3}, SegmentId{77}};
  Add(batch, MakeSegment(3, 1, 2));
  batch.add_manifests = {MakeManifest(2, 3)};
  Commit(batch);
  const Loaded loaded = Load();
  EXPECT_EQ(loaded.segments.at(SegmentId{3}).parent, SegmentId{1});
  EXPECT_FALSE(loaded.segments.contains(SegmentId{4}));
  EXPECT_EQ(loaded.manifests.at(ManifestId{2}).tip, SegmentId{3});
  EXPECT_EQ(catalog_->LoadWithTokens(SegmentId{3}).value().tokens, TokensOf(MakeSegment(3, 1, 2)));
}

TEST_F(CatalogTest, AppliesNothingOfABatchThatFails) {
  Open();
  CommitSample();
  CatalogBatch batch;
  batch.remove_manifests = {ManifestId{1}};
  batch.add_domains = {MakeDomain(2)};
  Add(batch, MakeSegment(10, 3, 10));
  Add(batch, MakeSegment(3, 2, 4));
  const Status taken = catalog_->Commit(batch);
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kAlreadyExists) << taken.error().text;
  CatalogBatch foreign;
  foreign.remove_manifests = {ManifestId{1}};
  Add(foreign, MakeSegment(11, 0, 0));
  foreign.add_segments[0].domain = DomainId{2};
  EXPECT_EQ(catalog_->Commit(foreign).error().code, ErrorCode::kInvalidArgument);
  CatalogBatch older;
  Add(older, MakeSegment(12, 13, 4));
  EXPECT_EQ(catalog_->Commit(older).error().code, ErrorCode::kInvalidArgument);
  const Loaded loaded = Load();
  EXPECT_EQ(loaded.segments.size(), 4U);
  EXPECT_EQ(loaded.domains.size(), 1U);
  EXPECT_EQ(loaded.manifests.size(), 2U);
  EXPECT_EQ(catalog_->LoadHighWater().value().segment, 4U);
  Commit({.remove_manifests = {ManifestId{1}}});
  EXPECT_EQ(Load().manifests.size(), 1U);
}

TEST_F(CatalogTest, TouchesWhatIsThereAndIgnoresTheRest) {
  Open();
  CommitSample();
  CatalogBatch batch;
  batch.touches = {{ManifestId{1}, 500, 7}, {ManifestId{9}, 501, 1}};
  Commit(batch);
  Close();
  Open();
  const Loaded loaded = Load();
  EXPECT_EQ(loaded.manifests.size(), 2U);
  EXPECT_EQ(loaded.manifests.at(ManifestId{1}).last_use, 500U);
  EXPECT_EQ(loaded.manifests.at(ManifestId{1}).hits, 7U);
  EXPECT_EQ(catalog_->LoadHighWater().value().use_clock, 501U);
}

TEST_F(CatalogTest, NeverForgetsTheHighestIds) {
  Open();
  EXPECT_EQ(catalog_->LoadHighWater().value().segment, 0U);
  CommitSample();
  CatalogBatch batch;
  batch.remove_segments = {SegmentId{4}, SegmentId{3}};
  batch.remove_manifests = {ManifestId{2}, ManifestId{1}};
  Commit(batch);
  Close();
  Open();
  const Catalog::HighWater high = catalog_->LoadHighWater().value();
  EXPECT_EQ(high.segment, 4U);
  EXPECT_EQ(high.manifest, 2U);
  EXPECT_EQ(high.domain, 1U);
  EXPECT_EQ(high.use_clock, 12U);
}

TEST_F(CatalogTest, TakesTheHighestIdsFromTheRowsWhenTheirOwnRowIsDamaged) {
  for (const char* column : {"segment", "manifest", "domain", "use_clock"}) {
    SCOPED_TRACE(column);
    fs::remove(path_);
    Open();
    CommitSample();
    Close();
    Tamper(std::string("UPDATE high_water SET ") + column + " = 0");
    Open();
    const Catalog::HighWater high = catalog_->LoadHighWater().value();
    EXPECT_EQ(high.segment, 4U);
    EXPECT_EQ(high.manifest, 2U);
    EXPECT_EQ(high.domain, 1U);
    EXPECT_EQ(high.use_clock, 12U);
    Close();
  }
}

TEST_F(CatalogTest, IsPrivateAndOpenOnce) {
  Open();
  CommitSample();
  for (const std::string& file : {path_, path_ + "-wal"}) {
    EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write)
        << file;
  }
  const auto second = Catalog::Open(Env::Posix(), {.path = path_});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kBusy) << second.error().text;
  Close();
  EXPECT_EQ(FileNames(), std::vector<std::string>{"catalog.db"});
  fs::permissions(path_, fs::perms::all);
  Open();
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(CatalogTest, AnswersUnavailableAfterClose) {
  Open();
  ASSERT_TRUE(catalog_->Close());
  ASSERT_TRUE(catalog_->Close()) << "closing twice is allowed";
  EXPECT_EQ(catalog_->Commit({}).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(catalog_->LoadSegment(SegmentId{1}).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(catalog_->PhysicalBytes().error().code, ErrorCode::kUnavailable);
}

struct BadFile {
  const char* what;
  std::function<std::string(std::string)> change;
  ErrorCode expected;
};

// Proves D28.
TEST_F(CatalogTest, RefusesFilesThatAreNotItsOwnAndLeavesThemAlone) {
  Open();
  CommitSample();
  Close();
  const std::string good = ReadFile();
  const BadFile cases[] = {
      {"garbage in the header", [](std::string s) { return s.replace(0, 16, 16, 'x'); },
       ErrorCode::kCorrupt},
      {"only garbage", [](const std::string&) { return std::string(10'000, 'x'); },
       ErrorCode::kCorrupt},
      {"shorter than a header", [](const std::string& s) { return s.substr(0, 50); },
       ErrorCode::kCorrupt},
      {"cut after the header", [](const std::string& s) { return s.substr(0, 100); },
       ErrorCode::kCorrupt},
      {"cut in the middle", [](const std::string& s) { return s.substr(0, s.size() / 2); },
       ErrorCode::kCorrupt},
      {"another application", [](std::string s) { return s.replace(68, 1, 1, 'x'); },
       ErrorCode::kCorrupt},
      {"a later version", [](std::string s) { return s.replace(63, 1, 1, '\3'); },
       ErrorCode::kUnsupported},
      {"an earlier version", [](std::string s) { return s.replace(63, 1, 1, '\1'); },
       ErrorCode::kUnsupported},
  };
  for (const BadFile& bad : cases) {
    SCOPED_TRACE(bad.what);
    const std::string bytes = bad.change(good);
    WriteFile(bytes);
    const Status opened = TryOpen();
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, bad.expected) << opened.error().text;
    EXPECT_EQ(ReadFile(), bytes);
  }
  WriteFile(good);
  Open();
  EXPECT_EQ(Load().segments.size(), 4U);
}

TEST_F(CatalogTest, RefusesASchemaThatIsNotItsOwn) {
  for (const char* sql : {"CREATE TABLE more(x)", "ALTER TABLE segments ADD COLUMN more INTEGER",
                          "DROP TABLE manifests", "PRAGMA journal_mode=DELETE"}) {
    SCOPED_TRACE(sql);
    fs::remove(path_);
    Open();
    CommitSample();
    Close();
    Tamper(sql);
    const Status opened = TryOpen();
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, ErrorCode::kCorrupt) << opened.error().text;
  }
}

TEST_F(CatalogTest, StartsAfreshOnAnEmptyFileWithoutReplayingAStrayLog) {
  Open();
  CommitSample();
  const fs::path kept = directory_ / "kept";
  fs::copy(path_ + "-wal", kept);
  Close();
  WriteFile("");
  fs::copy(kept, path_ + "-wal");
  Open();
  EXPECT_TRUE(Load().segments.empty());
  EXPECT_TRUE(Load().domains.empty());
}

TEST_F(CatalogTest, FinishesWhatACrashLeftOfACreation) {
  std::ofstream(path_ + ".new") << "half a database";
  std::ofstream(path_ + ".new-wal") << "half a log";
  Open();
  CommitSample();
  Close();
  EXPECT_EQ(FileNames(), std::vector<std::string>{"catalog.db"});
}

// One bit, or the storage class, of one column of one row.
struct Flip {
  const char* table;
  const char* column;
  const char* value;
};

const std::vector<Flip> kSegmentFlips = {
    {"segments", "id", "1000"},
    {"segments", "domain", "2"},
    {"segments", "domain", "3"},
    {"segments", "parent", "0"},
    {"segments", "parent", "5"},
    {"segments", "kind", "1"},
    {"segments", "kind", "2"},
    {"segments", "first_token", "7"},
    {"segments", "first_token", "-1"},
    {"segments", "token_count", "5"},
    {"segments", "end_hash", "x'03030303030303030303030303030302'"},
    {"segments", "end_hash", "x''"},
    {"segments", "payload_digest", "zeroblob(32)"},
    {"segments", "byte_count", "byte_count ^ 1"},
    {"segments", "extents", "x'010000000700000001000000'"},
    {"segments", "extents", "x'01'"},
    {"segments", "extents", "x''"},
    {"segments", "tokens_digest", "zeroblob(32)"},
    {"segments", "head_hash", "7"},
    {"segments", "row_digest", "zeroblob(32)"},
};

// Proves that a flipped bit in any field of a segment's row is detected before use.
TEST_F(CatalogTest, DetectsAChangeOfAnyColumnOfASegment) {
  Open();
  CommitSample();
  Commit({.add_domains = {MakeDomain(2)}});  // a domain to be mistaken for
  Close();
  const std::string good = ReadFile();
  for (Flip flip : kSegmentFlips) {
    if (std::string(flip.value) == "byte_count ^ 1") {
      flip.value = "5002";
    }
    SCOPED_TRACE(std::string(flip.column) + " = " + flip.value);
    WriteFile(good);
    Tamper(std::string("UPDATE segments SET ") + flip.column + " = " + flip.value +
           " WHERE id = 3");
    Open();
    const SegmentId id{std::string(flip.column) == "id" ? 1000U : 3U};
    const Loaded loaded = Load();
    EXPECT_EQ(loaded.report.bad_segments, std::vector<SegmentId>{id});
    EXPECT_EQ(loaded.report.bad_manifests, std::vector<ManifestId>{ManifestId{1}});
    EXPECT_FALSE(loaded.segments.contains(SegmentId{3}));
    EXPECT_EQ(loaded.segments.size(), 3U);
    EXPECT_EQ(catalog_->LoadSegment(id).error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(catalog_->LoadWithTokens(id).error().code, ErrorCode::kCorrupt);
    CatalogBatch removal;
    removal.remove_segments = loaded.report.bad_segments;
    removal.remove_manifests = loaded.report.bad_manifests;
    Commit(removal);
    const Loaded after = Load();
    EXPECT_TRUE(after.report.bad_segments.empty() && after.report.bad_manifests.empty());
    EXPECT_EQ(after.segments.size(), 3U);
    Close();
  }
}

TEST_F(CatalogTest, TakesEverythingBelowABadSegmentForBad) {
  Open();
  CommitSample();
  Close();
  Tamper("UPDATE segments SET byte_count = 1 WHERE id = 1");
  Open();
  const Loaded loaded = Load();
  EXPECT_TRUE(loaded.segments.empty());
  EXPECT_EQ(loaded.report.bad_segments.size(), 4U);
  EXPECT_EQ(loaded.report.bad_manifests.size(), 2U);
}

// Proves that a flipped bit in any field of a manifest's row is detected before use.
TEST_F(CatalogTest, DetectsAChangeOfAnyColumnOfAManifest) {
  Open();
  CommitSample();
  Commit({.add_domains = {MakeDomain(2)}});
  Close();
  const std::string good = ReadFile();
  for (const Flip& flip :
       {Flip{"manifests", "id", "1000"}, Flip{"manifests", "domain", "2"},
        Flip{"manifests", "tip", "2"}, Flip{"manifests", "token_count", "9"},
        Flip{"manifests", "token_count", "-1"}, Flip{"manifests", "last_use", "13"},
        Flip{"manifests", "hits", "3"}, Flip{"manifests", "row_digest", "zeroblob(32)"}}) {
    SCOPED_TRACE(std::string(flip.column) + " = " + flip.value);
    WriteFile(good);
    Tamper(std::string("UPDATE manifests SET ") + flip.column + " = " + flip.value +
           " WHERE id = 2");
    Open();
    const ManifestId id{std::string(flip.column) == "id" ? 1000U : 2U};
    CatalogBatch touch;
    touch.touches = {{id, 99, 99}};
    Commit(touch);
    const Loaded loaded = Load();
    EXPECT_EQ(loaded.report.bad_manifests, std::vector<ManifestId>{id})
        << "a touch must not make a bad row good";
    EXPECT_EQ(loaded.manifests.size(), 1U);
    EXPECT_EQ(loaded.segments.size(), 4U);
    Close();
  }
}

// Proves A11 for the catalog: rows are bound to what their domain stands for.
TEST_F(CatalogTest, DetectsAChangeOfAnyColumnOfADomain) {
  Open();
  CommitSample();
  Close();
  const std::string good = ReadFile();
  for (const Flip& flip :
       {Flip{"domains", "id", "2"}, Flip{"domains", "model_identity", "zeroblob(32)"},
        Flip{"domains", "state_identity", "zeroblob(32)"},
        Flip{"domains", "state_identity", "zeroblob(31)"}, Flip{"domains", "name_space", "x''"},
        Flip{"domains", "model_name", "x''"}, Flip{"domains", "row_digest", "zeroblob(32)"}}) {
    SCOPED_TRACE(std::string(flip.column) + " = " + flip.value);
    WriteFile(good);
    Tamper(std::string("UPDATE domains SET ") + flip.column + " = " + flip.value);
    Open();
    const Loaded loaded = Load();
    EXPECT_EQ(loaded.report.bad_domains, 1U);
    EXPECT_EQ(loaded.report.bad_segments.size(), 4U) << "a bad domain's segments are bad";
    EXPECT_EQ(loaded.report.bad_manifests.size(), 2U);
    EXPECT_TRUE(loaded.domains.empty() && loaded.segments.empty() && loaded.manifests.empty());
    CatalogBatch removal;
    removal.remove_segments = loaded.report.bad_segments;
    removal.remove_manifests = loaded.report.bad_manifests;
    removal.add_domains = {MakeDomain(5)};
    Commit(removal);
    EXPECT_EQ(Load().report.bad_domains, 0U) << "bad domains go with the next commit";
    EXPECT_EQ(Load().domains.size(), 1U);
    Close();
  }
}

TEST_F(CatalogTest, DetectsADomainThatWasSwappedForAnother) {
  Open();
  CommitSample();
  Commit({.add_domains = {MakeDomain(2)}});
  Close();
  // Two whole rows with sound parts change places: only the binding to the identity tells.
  Tamper(
      "UPDATE domains SET id = 100 + id; UPDATE domains SET id = 103 - id;"
      "UPDATE domains SET id = id");
  Open();
  const Loaded loaded = Load();
  EXPECT_TRUE(loaded.segments.empty());
  EXPECT_EQ(loaded.report.bad_segments.size(), 4U);
}

TEST_F(CatalogTest, DetectsAChangeOfTokensWhenTheyAreLoaded) {
  Open();
  CommitSample();
  Close();
  const std::string good = ReadFile();
  for (const char* sql :
       {"UPDATE segment_tokens SET tokens = zeroblob(16) WHERE segment = 3",
        "UPDATE segment_tokens SET tokens = x'01' WHERE segment = 3",
        "UPDATE segment_tokens SET tokens = x'' WHERE segment = 3",
        "UPDATE segment_tokens SET segment = 50 WHERE segment = 3",
        "UPDATE segment_tokens SET tokens = (SELECT tokens FROM segment_tokens WHERE segment = 1)"
        " WHERE segment = 3",
        "DELETE FROM segment_tokens WHERE segment = 3"}) {
    SCOPED_TRACE(sql);
    WriteFile(good);
    Tamper(sql);
    Open();
    EXPECT_EQ(Load().segments.size(), 4U);
    EXPECT_EQ(catalog_->LoadWithTokens(SegmentId{3}).error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(catalog_->LoadWithTokens(SegmentId{2}).value().tokens,
              TokensOf(MakeSegment(2, 1, 4)));
    Commit({.remove_segments = {SegmentId{3}}});
    CatalogBatch again;
    Add(again, MakeSegment(50, 2, 6));  // the number that stray tokens may have had
    Commit(again);
    EXPECT_EQ(catalog_->LoadWithTokens(SegmentId{50}).value().tokens,
              TokensOf(MakeSegment(50, 2, 6)));
    Close();
  }
}

}  // namespace
}  // namespace skippy
