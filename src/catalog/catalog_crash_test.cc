// The catalog over the fault env: power cuts at every change, failing calls, full disks and flipped
// bits. A commit that returned success is there after the power is back, one that did not return
// is there wholly or not at all, and a damaged file never yields a wrong row.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <set>
#include <string>

#include "catalog/catalog.h"
#include "env/fault_env.h"

namespace skippy {
namespace {

const std::string kPath = "/store/catalog.db";
constexpr std::uint64_t kWalLimitBytes = 64 * kKiB;

template <class Digest>
Digest Filled(std::uint8_t value) {
  Digest digest;
  digest.bytes.fill(value);
  return digest;
}

SegmentRow MakeSegment(std::uint64_t id) {
  SegmentRow row;
  row.id = SegmentId{id};
  row.domain = DomainId{1};
  row.token_count = kMaxSegmentTokens;
  row.end_hash = Filled<PathHash>(static_cast<std::uint8_t>(id));
  row.digest = Filled<SegmentDigest>(static_cast<std::uint8_t>(id + 1));
  row.byte_count = id;
  row.extents = {{PackId{1}, static_cast<std::uint32_t>(id), 1}};
  return row;
}

std::vector<Token> TokensOf(std::uint64_t id) {
  return std::vector<Token>(kMaxSegmentTokens, static_cast<Token>(id));
}

// Batch n adds segments 10n .. 10n+9 and manifest n, and removes batch n-3.
CatalogBatch MakeBatch(std::uint64_t n) {
  CatalogBatch batch;
  if (n == 1) {
    batch.add_domains = {
        {DomainId{1}, {Filled<ModelIdentity>(1), Filled<StateIdentity>(2), "", ""}}};
  }
  for (std::uint64_t id = 10 * n; id < 10 * n + 10; ++id) {
    batch.add_segments.push_back(MakeSegment(id));
    batch.add_segment_tokens.push_back(TokensOf(id));
    if (n > 3) {
      batch.remove_segments.push_back(SegmentId{id - 30});
    }
  }
  if (n > 3) {
    batch.remove_manifests = {ManifestId{n - 3}};
  }
  batch.add_manifests = {{ManifestId{n}, DomainId{1}, SegmentId{10 * n}, 1, n, 0}};
  return batch;
}

std::set<std::uint64_t> ManifestsAfter(std::uint64_t batches) {
  std::set<std::uint64_t> out;
  for (std::uint64_t n = batches > 3 ? batches - 2 : 1; n <= batches; ++n) {
    out.insert(n);
  }
  return out;
}

std::unique_ptr<FaultEnv> MakeEnv() {
  auto env = std::make_unique<FaultEnv>();
  env->CreateDirectories("/store");
  EXPECT_TRUE(env->SyncDirectory("/"));
  return env;
}

// Opens and commits batches 1.. until `count` or the first error. Returns how many succeeded.
std::uint64_t RunScript(Env* env, std::uint64_t count) {
  auto catalog = Catalog::Open(env, {kPath, kWalLimitBytes});
  if (!catalog) {
    return 0;
  }
  for (std::uint64_t n = 1; n <= count; ++n) {
    if (!(*catalog)->Commit(MakeBatch(n))) {
      return n - 1;
    }
  }
  return (*catalog)->Close() ? count : count;
}

// Every loaded row is one that was written, and everything hangs together.
void CheckContents(Catalog& catalog, std::set<std::uint64_t>& manifests) {
  std::set<std::uint64_t> segments;
  const auto report = catalog.Load({
      .domain = [](const DomainRow& row) { ASSERT_EQ(row.id, DomainId{1}); },
      .segment =
          [&](const SegmentRow& row) {
            const auto id = static_cast<std::uint64_t>(row.id);
            ASSERT_EQ(row.extents, MakeSegment(id).extents);
            ASSERT_EQ(row.digest, MakeSegment(id).digest);
            ASSERT_EQ(row.byte_count, id);
            segments.insert(id);
          },
      .manifest =
          [&](const ManifestRow& row) {
            ASSERT_EQ(static_cast<std::uint64_t>(row.tip), 10 * row.last_use);
            manifests.insert(static_cast<std::uint64_t>(row.id));
          },
  });
  ASSERT_TRUE(report) << report.error().text;
  ASSERT_TRUE(report->bad_segments.empty() && report->bad_manifests.empty());
  ASSERT_EQ(segments.size(), 10 * manifests.size());
  for (const std::uint64_t id : segments) {
    const auto tokens = catalog.LoadWithTokens(SegmentId{id});
    ASSERT_TRUE(tokens) << tokens.error().text;
    ASSERT_EQ(tokens->tokens, TokensOf(id));
  }
}

// Proves P4 for the catalog: crash safety under power cuts between any two changes.
TEST(CatalogCrashTest, KeepsEveryAcknowledgedBatchAndNoHalfBatch) {
  constexpr std::uint64_t kBatches = 8;
  const auto whole = MakeEnv();
  const std::uint64_t changes_before = whole->change_count();
  ASSERT_EQ(RunScript(whole.get(), kBatches), kBatches);
  const std::uint64_t last = whole->change_count();
  int points = 0;
  for (std::uint64_t at = changes_before + 1; at <= last + 1; at += at % 3 + 1) {
    const auto env = MakeEnv();
    env->StopAtChange(at);
    const std::uint64_t acknowledged = RunScript(env.get(), kBatches);
    for (const CrashPolicy policy : {CrashPolicy::kApplyAll, CrashPolicy::kDropAll,
                                     CrashPolicy::kTearLast, CrashPolicy::kRandom}) {
      SCOPED_TRACE("change " + std::to_string(at) + ", policy and seed " +
                   std::to_string(static_cast<int>(policy)));
      ++points;
      const auto after = env->AfterCrash(policy, at);
      auto catalog = Catalog::Open(after.get(), {kPath, kWalLimitBytes});
      ASSERT_TRUE(catalog) << catalog.error().text;
      std::set<std::uint64_t> manifests;
      CheckContents(**catalog, manifests);
      ASSERT_FALSE(::testing::Test::HasFatalFailure());
      if (manifests != ManifestsAfter(acknowledged)) {
        ASSERT_EQ(manifests, ManifestsAfter(acknowledged + 1)) << acknowledged << " acknowledged";
      }
      ASSERT_GE((*catalog)->LoadHighWater().value().manifest, acknowledged);
      ASSERT_TRUE((*catalog)->Commit(MakeBatch((manifests.empty() ? 0 : *manifests.rbegin()) + 1)));
    }
  }
  std::printf("%d crash points over %llu changes\n", points,
              static_cast<unsigned long long>(last - changes_before));
}

TEST(CatalogCrashTest, ReportsAFailedSyncAndNeverAcknowledgesAgain) {
  const auto env = MakeEnv();
  const auto catalog = std::move(Catalog::Open(env.get(), {kPath, kWalLimitBytes})).value();
  ASSERT_TRUE(catalog->Commit(MakeBatch(1)));
  env->Inject({.kind = FileOpKind::kSync, .path_contains = "-wal"});
  const Status failed = catalog->Commit(MakeBatch(2));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kIo) << failed.error().text;
  const auto after = env->AfterCrash(CrashPolicy::kDropAll, 1);
  EXPECT_FALSE(catalog->Commit(MakeBatch(3)));
  const auto reopened = std::move(Catalog::Open(after.get(), {kPath, kWalLimitBytes})).value();
  std::set<std::uint64_t> manifests;
  CheckContents(*reopened, manifests);
  EXPECT_EQ(manifests, ManifestsAfter(1));
}

TEST(CatalogCrashTest, ReportsAFullDiskAndGoesOnWhenSpaceReturns) {
  const auto env = MakeEnv();
  const auto catalog = std::move(Catalog::Open(env.get(), {kPath, kWalLimitBytes})).value();
  ASSERT_TRUE(catalog->Commit(MakeBatch(1)));
  env->SetFreeBytes(0);
  Status failed;
  std::uint64_t n = 2;
  for (; n < 20 && failed; ++n) {
    failed = catalog->Commit(MakeBatch(n));
  }
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kNoSpace) << failed.error().text;
  env->SetFreeBytes(kGiB);
  ASSERT_TRUE(catalog->Commit(MakeBatch(n - 1))) << "the failed batch left nothing behind";
  std::set<std::uint64_t> manifests;
  CheckContents(*catalog, manifests);
  EXPECT_EQ(manifests, ManifestsAfter(n - 1));
}

TEST(CatalogCrashTest, ReportsAFailedReadAsSuchAndNotAsCorruption) {
  const auto env = MakeEnv();
  ASSERT_EQ(RunScript(env.get(), 3), 3U);
  const auto catalog = std::move(Catalog::Open(env.get(), {kPath, kWalLimitBytes})).value();
  env->Inject({.kind = FileOpKind::kRead, .repeat = Fault::kForever});
  const auto tokens = catalog->LoadWithTokens(SegmentId{25});
  ASSERT_FALSE(tokens);
  EXPECT_EQ(tokens.error().code, ErrorCode::kIo) << tokens.error().text;
  env->ClearFaults();
  EXPECT_EQ(catalog->LoadWithTokens(SegmentId{25}).value().tokens, TokensOf(25));
}

// Proves E6.
TEST(CatalogCrashTest, MakesACommitDurableWithOneSync) {
  const auto env = MakeEnv();
  const auto catalog = std::move(Catalog::Open(env.get(), {kPath, 16 * kMiB})).value();
  ASSERT_TRUE(catalog->Commit(MakeBatch(1)));
  const std::uint64_t before = env->sync_count();
  ASSERT_TRUE(catalog->Commit(MakeBatch(2)));
  EXPECT_EQ(env->sync_count() - before, 1U);
}

// Proves that no flipped bit of the file is ever taken for data: all bytes that are not zero and a
// sample of the rest.
TEST(CatalogCrashTest, NeverGivesOutAWrongRowFromAFileWithAFlippedBit) {
  const auto env = MakeEnv();
  ASSERT_EQ(RunScript(env.get(), 1), 1U);
  const auto file = std::move(env->OpenFile(kPath, {.writable = true})).value();
  std::vector<std::byte> good(file->FileBytes().value());
  ASSERT_EQ(file->ReadAt(0, good).value(), good.size());
  int refused = 0;
  int damaged = 0;
  int whole = 0;
  for (std::size_t at = 0; at < good.size(); at += at < 4096 || good[at] != std::byte{0} ? 7 : 97) {
    SCOPED_TRACE("byte " + std::to_string(at));
    ASSERT_TRUE(file->Truncate(0));
    std::vector<std::byte> bytes = good;
    bytes[at] ^= static_cast<std::byte>(1 << at % 8);
    ASSERT_TRUE(file->WriteAt(0, bytes));
    auto catalog = Catalog::Open(env.get(), {kPath, kWalLimitBytes});
    if (!catalog) {
      ++refused;
      continue;
    }
    std::vector<SegmentId> ids;
    const auto report = (*catalog)->Load({.domain = {},
                                          .segment =
                                              [&](const SegmentRow& row) {
                                                const auto id = static_cast<std::uint64_t>(row.id);
                                                ASSERT_EQ(row.extents, MakeSegment(id).extents);
                                                ASSERT_EQ(row.digest, MakeSegment(id).digest);
                                                ids.push_back(row.id);
                                              },
                                          .manifest = {}});
    bool all = report && ids.size() == 10;
    for (const SegmentId id : ids) {
      const auto tokens = (*catalog)->LoadWithTokens(id);
      all = all && tokens;
      ASSERT_TRUE(!tokens || tokens->tokens == TokensOf(static_cast<std::uint64_t>(id)));
    }
    ASSERT_FALSE(::testing::Test::HasFatalFailure());
    ++(all ? whole : damaged);
  }
  std::printf("flipped bits: %d refused at open, %d damaged rows, %d without effect\n", refused,
              damaged, whole);
  EXPECT_GT(refused, 0);
  EXPECT_GT(damaged, 0);
}

class FullCatalog {
 public:
  FullCatalog(Env* env, std::uint64_t segments, std::uint64_t wal_limit_bytes)
      : catalog_(std::move(Catalog::Open(env, {kPath, wal_limit_bytes})).value()) {
    EXPECT_TRUE(catalog_->Commit({.add_domains = MakeBatch(1).add_domains}));
    for (std::uint64_t id = 1; id <= segments; id += kStep) {
      CatalogBatch batch;
      for (std::uint64_t i = id; i < id + kStep; ++i) {
        batch.add_segments.push_back(MakeSegment(i));
        batch.add_segment_tokens.push_back(TokensOf(i));
      }
      EXPECT_TRUE(catalog_->Commit(batch));
      log_bytes_max_ = std::max(log_bytes_max_, env->Stat(kPath + "-wal").value().file_bytes);
    }
  }
  Catalog* operator->() { return catalog_.get(); }
  std::uint64_t log_bytes_max() const { return log_bytes_max_; }

  static constexpr std::uint64_t kStep = 100;

 private:
  std::unique_ptr<Catalog> catalog_;
  std::uint64_t log_bytes_max_ = 0;
};

// Proves D36 for the catalog's part: the log never grows past its allowance.
TEST(CatalogSizeTest, EmptiesTheLogAtItsLimitAndGivesFreePagesBack) {
  constexpr std::uint64_t kLimit = 512 * kKiB;
  constexpr std::uint64_t kSegments = 8'000;
  const auto env = MakeEnv();
  FullCatalog catalog(env.get(), kSegments, kLimit);
  EXPECT_LE(catalog.log_bytes_max(), 2 * kLimit);
  const std::uint64_t full = catalog->PhysicalBytes().value();
  EXPECT_GE(full, kSegments * kMaxSegmentTokens * sizeof(Token));
  for (std::uint64_t id = 1; id <= kSegments; id += FullCatalog::kStep) {
    CatalogBatch batch;
    for (std::uint64_t i = id; i < id + FullCatalog::kStep; ++i) {
      batch.remove_segments.push_back(SegmentId{i});
    }
    ASSERT_TRUE(catalog->Commit(batch));
  }
  ASSERT_TRUE(catalog->Close());
  EXPECT_LT(env->Stat(kPath).value().allocated_bytes, full * 6 / 10);
}

// Rows are read and verified at start, tokens are not. The figures are printed, not judged.
TEST(CatalogSizeTest, LoadsManySegmentsWithoutReadingTheirTokens) {
  constexpr std::uint64_t kSegments = 20'000;
  const auto env = MakeEnv();
  FullCatalog catalog(env.get(), kSegments, 16 * kMiB);
  std::uint64_t bytes_read = 0;
  env->SetHook(
      [&](const FileOp& op) { bytes_read += op.kind == FileOpKind::kRead ? op.byte_count : 0; });
  std::uint64_t loaded = 0;
  const std::clock_t start = std::clock();
  const auto report = catalog->Load(
      {.domain = {}, .segment = [&](const SegmentRow&) { ++loaded; }, .manifest = {}});
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  ASSERT_TRUE(report);
  EXPECT_EQ(loaded, kSegments);
  EXPECT_LT(bytes_read, kSegments * 300);
  std::printf("1M segments: %.2f s of processor time, %.0f MB read\n",
              seconds * 1e6 / static_cast<double>(kSegments),
              static_cast<double>(bytes_read) / static_cast<double>(kSegments));
}

}  // namespace
}  // namespace skippy
