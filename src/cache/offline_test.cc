// Goal: a stopped store can be checked, looked into and mended without a server, and nothing is
// lost that could be proven. Method: stores with known damage over an in-memory file system.
#include "cache/offline.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cache/cache_test_util.h"

namespace skippy {
namespace {

class OfflineTest : public CacheFixture {
 protected:
  OfflineOptions Offline() { return {.directory = options_.disk.directory}; }
  void Stop() { cache_.reset(); }
  void FlipByteOf(std::span<const Token> path, TokenCount position) {
    const auto row = RowsOf(path, position, position + 1);
    const std::string directory = options_.disk.directory + "/packs";
    const std::vector<std::string> names = env_->ListDirectory(directory).value();
    for (const std::string& name : names) {
      auto file = std::move(env_->OpenFile(directory + "/" + name, {.writable = true}).value());
      std::vector<std::byte> bytes(file->FileBytes().value());
      ASSERT_TRUE(file->ReadAt(0, bytes));
      const auto at = std::search(bytes.begin(), bytes.end(), row.begin(), row.end());
      if (at == bytes.end()) continue;
      const std::byte flipped = *at ^ std::byte{1};
      ASSERT_TRUE(file->WriteAt(static_cast<std::uint64_t>(at - bytes.begin()), {&flipped, 1}));
      return;
    }
    FAIL() << "the row is in no pack";
  }
};

TEST_F(OfflineTest, FindsASoundStoreClean) {
  Open();
  RecordDurably(MakePath(1, 700));
  RecordDurably(MakePath(2, 100));
  Stop();
  std::uint64_t seen_bytes = 0;
  OfflineOptions options = Offline();
  options.progress = [&](std::uint64_t done, std::uint64_t) { seen_bytes = done; };
  const auto report = VerifyStore(env_, options);
  ASSERT_TRUE(report) << report.error().text;
  EXPECT_TRUE(report->clean());
  EXPECT_EQ(report->manifests, 2U);
  EXPECT_EQ(report->segments, 4U);
  EXPECT_EQ(report->payload_bytes, 800 * kTestRowBytes);
  EXPECT_EQ(seen_bytes, report->payload_bytes);
}

TEST_F(OfflineTest, ReportsDamagedPayloadAndChangesNothing) {
  Open();
  const auto path = MakePath(3, 700);
  RecordDurably(path);
  Stop();
  FlipByteOf(path, 300);
  for (int round = 0; round < 2; ++round) {
    const auto report = VerifyStore(env_, Offline());
    ASSERT_TRUE(report);
    EXPECT_FALSE(report->clean());
    EXPECT_EQ(report->bad_payloads, 1U);
    EXPECT_EQ(report->segments, 3U);
    EXPECT_EQ(report->problems.size(), 1U);
  }
}

// Proves D66.
TEST_F(OfflineTest, RepairsByKeepingTheGoodPrefix) {
  Open();
  const auto path = MakePath(4, 700);
  RecordDurably(path);
  Stop();
  FlipByteOf(path, 300);
  const auto repaired = RepairStore(env_, Offline());
  ASSERT_TRUE(repaired) << repaired.error().text;
  EXPECT_EQ(repaired->bad_payloads, 1U);
  EXPECT_EQ(repaired->segments, 1U);
  EXPECT_EQ(repaired->manifests, 1U);
  EXPECT_TRUE(VerifyStore(env_, Offline())->clean());
  Open();
  ExpectRestores(path, 256);
}

TEST_F(OfflineTest, RefusesWhileAServerOwnsTheStore) {
  Open();
  EXPECT_EQ(VerifyStore(env_, Offline()).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(InspectStore(env_, Offline()).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(RepairStore(env_, Offline()).error().code, ErrorCode::kUnavailable);
}

TEST_F(OfflineTest, CreatesNothingWhereThereIsNoStore) {
  EXPECT_EQ(VerifyStore(env_, Offline()).error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(env_->Stat(options_.disk.directory));
}

TEST_F(OfflineTest, BlamesNothingForAReadError) {
  Open();
  RecordDurably(MakePath(5, 200));
  Stop();
  // The header of the pack is read first.
  fault_env_->Inject({.kind = FileOpKind::kRead, .nth = 2, .path_contains = "/packs/"});
  const auto repaired = RepairStore(env_, Offline());
  ASSERT_TRUE(repaired);
  EXPECT_EQ(repaired->unread_payloads, 1U);
  EXPECT_EQ(repaired->segments, 1U);
  EXPECT_TRUE(VerifyStore(env_, Offline())->clean());
}

TEST_F(OfflineTest, RepairPutsADamagedCatalogAside) {
  Open();
  RecordDurably(MakePath(6, 200));
  Stop();
  auto catalog = env_->OpenFile(options_.disk.directory + "/catalog.db", {.writable = true});
  const std::vector<std::byte> junk(4096, std::byte{0xa5});
  ASSERT_TRUE((*catalog)->WriteAt(0, junk));
  catalog->reset();
  EXPECT_EQ(VerifyStore(env_, Offline()).error().code, ErrorCode::kCorrupt);
  const auto repaired = RepairStore(env_, Offline());
  ASSERT_TRUE(repaired) << repaired.error().text;
  EXPECT_TRUE(repaired->catalog_was_damaged);
  EXPECT_TRUE(VerifyStore(env_, Offline())->clean());
}

TEST_F(OfflineTest, ListsWhatIsThereByDomain) {
  Open();
  RecordDurably(MakePath(7, 300));
  domain_ = cache_->OpenDomain(SpecOf(2, 1, "tenant")).value();
  RecordDurably(MakePath(8, 100));
  Stop();
  const auto domains = InspectStore(env_, Offline());
  ASSERT_TRUE(domains) << domains.error().text;
  ASSERT_EQ(domains->size(), 2U);
  EXPECT_EQ((*domains)[0].segments, 2U);
  EXPECT_EQ((*domains)[0].longest_tokens, 300);
  EXPECT_EQ((*domains)[1].name_space, "tenant");
  EXPECT_EQ((*domains)[1].payload_bytes, 100 * kTestRowBytes);
}

}  // namespace
}  // namespace skippy
