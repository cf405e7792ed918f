// Goal: what was durable survives, what is damaged is never served, and no fault of the disk is a
// fault of the cache. Method: reopening, crashing and damaging the store over a fault-injecting
// file system, and a few checks of the real one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "cache/cache_test_util.h"

namespace skippy {
namespace {

class CacheDiskTest : public CacheFixture {
 protected:
  std::vector<std::string> PackPaths() {
    std::vector<std::string> out;
    const std::string directory = options_.disk.directory + "/packs";
    const auto names = env_->ListDirectory(directory);
    if (names) {
      for (const std::string& name : *names) out.push_back(directory + "/" + name);
    }
    return out;
  }
  // Flips one bit where the row at `position` of `path` lies; false when it is in no pack.
  bool DamageRow(std::span<const Token> path, TokenCount position) {
    const auto row = RowsOf(path, position, position + 1);
    for (const std::string& pack : PackPaths()) {
      auto file = env_->OpenFile(pack, {.writable = true});
      if (!file) continue;
      std::vector<std::byte> bytes((*file)->FileBytes().value());
      if (!(*file)->ReadAt(0, bytes)) continue;
      const auto at = std::search(bytes.begin(), bytes.end(), row.begin(), row.end());
      if (at == bytes.end()) continue;
      const std::byte flipped = *at ^ std::byte{4};
      return (*file)
          ->WriteAt(static_cast<std::uint64_t>(at - bytes.begin()), {&flipped, 1})
          .has_value();
    }
    return false;
  }
  void Overwrite(const std::string& file_path, std::uint64_t offset, std::size_t byte_count) {
    auto file = env_->OpenFile(file_path, {.writable = true});
    ASSERT_TRUE(file);
    const std::vector<std::byte> junk(byte_count, std::byte{0xa5});
    ASSERT_TRUE((*file)->WriteAt(offset, junk));
  }
};

TEST_F(CacheDiskTest, FindsEverythingAfterReopening) {
  Open();
  const auto trunk = MakePath(1, 700);
  const auto branch =
      Join(std::vector<Token>(trunk.begin(), trunk.begin() + 300), MakePath(2, 500));
  RecordDurably(trunk);
  RecordDurably(branch);
  Reopen();
  ExpectRestores(trunk, 700);
  ExpectRestores(branch, 800);
  const CacheStatus status = cache_->GetStatus();
  EXPECT_EQ(status.disk.manifests, 2U);
  EXPECT_EQ(status.reconciliation.removed_orphan_bytes, 0U);
  EXPECT_EQ(status.reconciliation.removed_prefix_links, 0U);
}

// Proves D58, D62 and D64.
// Proves E12.
TEST_F(CacheDiskTest, ServesTheGoodPrefixOfADamagedPack) {
  Open();
  const auto path = MakePath(3, 1000);
  RecordDurably(path);
  ASSERT_TRUE(DamageRow(path, 300));
  const Restored restored = Restore(path);
  EXPECT_TRUE(restored.failed);
  EXPECT_FALSE(restored.wrong_byte);
  EXPECT_EQ(restored.tokens, 256);
  EXPECT_EQ(Found(path), 256);
  ExpectRestores(path, 256);
  CacheStatus status = cache_->GetStatus();
  EXPECT_EQ(status.disk.quarantined_objects, 1U);
  EXPECT_EQ(status.activity.corrupt_entries, 1U);
  EXPECT_EQ(status.disk.quarantined_bytes, 256 * kTestRowBytes);
  Reopen();
  ExpectRestores(path, 256);
  status = cache_->GetStatus();
  EXPECT_EQ(status.disk.quarantined_objects, 0U);
  EXPECT_EQ(status.disk.manifests, 1U);
  RecordDurably(path);
  ExpectRestores(path, 1000);
}

TEST_F(CacheDiskTest, CountsADamagedSegmentOnceForTwoReaders) {
  Open();
  const auto path = MakePath(4, 256);
  RecordDurably(path);
  PrefixMatch first = Lookup(path);
  PrefixMatch second = Lookup(path);
  ASSERT_TRUE(DamageRow(path, 10));
  EXPECT_TRUE(RestoreAndCheck(*cache_, std::move(first), path).failed);
  EXPECT_TRUE(RestoreAndCheck(*cache_, std::move(second), path).failed);
  EXPECT_EQ(cache_->GetStatus().disk.quarantined_objects, 1U);
  EXPECT_EQ(Found(path), 0);
}

// Proves D26.
TEST_F(CacheDiskTest, DeletesNothingBecauseOfAReadError) {
  Open();
  const auto path = MakePath(5, 256);
  RecordDurably(path);
  fault_env_->Inject({.kind = FileOpKind::kRead, .path_contains = "/packs/"});
  EXPECT_TRUE(Restore(path).failed);
  ExpectRestores(path, 256);
  EXPECT_EQ(cache_->GetStatus().disk.quarantined_objects, 0U);
}

TEST_F(CacheDiskTest, StartsColdWhenAPackIsGone) {
  Open();
  const auto path = MakePath(6, 500);
  RecordDurably(path);
  cache_.reset();
  for (const std::string& pack : PackPaths()) ASSERT_TRUE(env_->RemoveFile(pack));
  Open();
  EXPECT_EQ(Found(path), 0);
  EXPECT_EQ(cache_->GetStatus().reconciliation.removed_prefix_links, 1U);
  RecordDurably(path);
  Reopen();
  ExpectRestores(path, 500);
}

TEST_F(CacheDiskTest, StartsColdWithADamagedCatalogAndSaysSo) {
  Open();
  const auto path = MakePath(7, 500);
  RecordDurably(path);
  cache_.reset();
  Overwrite("/cache/root/catalog.db", 0, 4096);
  Open();
  const CacheStatus status = cache_->GetStatus();
  EXPECT_EQ(status.disk_state, TierState::kActive) << status.disk_reason;
  EXPECT_NE(status.activity.last_error.find("catalog was damaged"), std::string::npos);
  EXPECT_TRUE(env_->Stat("/cache/root/catalog.db.corrupt-1"));
  EXPECT_EQ(Found(path), 0);
  RecordDurably(path);
  Reopen();
  ExpectRestores(path, 500);
}

// Proves D3.
TEST_F(CacheDiskTest, DegradesASecondOwnerOfTheRoot) {
  Open();
  const auto path = MakePath(8, 300);
  RecordDurably(path);
  auto second = Cache::Open(options_, env_);
  ASSERT_TRUE(second);
  const CacheStatus status = (*second)->GetStatus();
  EXPECT_EQ(status.disk_state, TierState::kDegraded);
  EXPECT_EQ(status.disk_reason, "storage_unavailable: owned by another process");
  EXPECT_FALSE((*second)->OpenDomain(SpecOf(1, 1, "")));
  EXPECT_TRUE((*second)->Close());
  ExpectRestores(path, 300);
}

// Proves P6.
TEST_F(CacheDiskTest, DegradesOnARootThatCannotBeWritten) {
  for (const FileOpKind kind : {FileOpKind::kCreateDirectory, FileOpKind::kCreateFile}) {
    fault_env_->Inject({.kind = kind, .repeat = Fault::kForever});
  }
  Open();
  const CacheStatus status = cache_->GetStatus();
  EXPECT_EQ(status.disk_state, TierState::kDegraded);
  EXPECT_EQ(status.disk_reason.rfind("storage_unavailable: ", 0), 0U) << status.disk_reason;
  EXPECT_TRUE(Lookup(MakePath(9, 10)).empty());
}

// Proves D9.
TEST_F(CacheDiskTest, DegradesOnANetworkFileSystem) {
  fault_env_->SetFilesystem(FilesystemKind::kNetwork);
  Open();
  EXPECT_EQ(cache_->GetStatus().disk_state, TierState::kDegraded);
}

// Proves D40.
TEST_F(CacheDiskTest, RefusesWritesBelowTheReserveUntilSpaceReturns) {
  options_.disk.minimum_free_bytes = 100 * kMiB;
  Open();
  const auto path = MakePath(10, 300);
  RecordDurably(path);
  fault_env_->SetFreeBytes(100 * kMiB);
  const auto refused = MakePath(11, 300);
  RecordInVain(refused);
  CacheStatus status = cache_->GetStatus();
  EXPECT_EQ(status.disk_state, TierState::kReadOnlyLowSpace);
  EXPECT_EQ(status.activity.last_refusal, RefusalReason::kReadOnlyLowSpace);
  EXPECT_EQ(Found(refused), 0);
  ExpectRestores(path, 300);
  fault_env_->SetFreeBytes(kGiB);
  RecordDurably(refused);
  EXPECT_EQ(cache_->GetStatus().disk_state, TierState::kActive);
  ExpectRestores(refused, 300);
}

// Proves D57.
TEST_F(CacheDiskTest, ForgetsWhatCouldNotBeWritten) {
  Open();
  const auto path = MakePath(12, 600);
  RecordDurably(std::span<const Token>(path.data(), 256));
  fault_env_->Inject({.kind = FileOpKind::kWrite, .path_contains = "/packs/"});
  RecordInVain(path);
  CacheStatus status = cache_->GetStatus();
  EXPECT_EQ(status.disk_state, TierState::kDegraded);
  EXPECT_EQ(status.disk_reason.rfind("storage_error: ", 0), 0U) << status.disk_reason;
  EXPECT_EQ(status.activity.last_refusal, RefusalReason::kStorageError);
  EXPECT_EQ(Found(path), 256);
  RecordDurably(path);
  EXPECT_EQ(cache_->GetStatus().disk_state, TierState::kActive);
  Reopen();
  ExpectRestores(path, 600);
}

TEST_F(CacheDiskTest, ForgetsWhatTheCatalogRefused) {
  Open();
  const auto path = MakePath(13, 300);
  const auto other = MakePath(14, 300);
  RecordDurably(path);
  fault_env_->Inject(
      {.kind = FileOpKind::kSync, .repeat = Fault::kForever, .path_contains = "catalog.db"});
  RecordInVain(other);
  EXPECT_EQ(cache_->GetStatus().disk_state, TierState::kDegraded);
  EXPECT_EQ(Found(other), 0);
  ExpectRestores(path, 300);
  EXPECT_EQ(cache_->GetStatus().activity.write_queue_bytes, 0U);
  fault_env_->ClearFaults();
  Reopen();
  ExpectRestores(path, 300);
}

// Proves D20 and D69.
TEST_F(CacheDiskTest, ServesWhatWasDurableWhenThePowerGoes) {
  const auto base = MakePath(15, 500);
  const auto grown = Join(base, MakePath(16, 400));
  for (const CrashPolicy policy : {CrashPolicy::kApplyAll, CrashPolicy::kDropAll,
                                   CrashPolicy::kTearLast, CrashPolicy::kRandom}) {
    Open();
    RecordDurably(base);
    ASSERT_EQ(Record(*cache_, domain_, grown), RefusalReason::kNone);
    CrashAndOpen(policy, /*seed=*/17);
    EXPECT_GE(Found(base), 500);
    const Restored restored = Restore(grown);
    EXPECT_FALSE(restored.wrong_byte);
    EXPECT_FALSE(restored.failed);
    EXPECT_GE(restored.tokens, 500);
    ASSERT_TRUE(cache_->Clear(std::nullopt));
  }
}

TEST_F(CacheDiskTest, NeverServesAWrongByteWhateverSyncWasTheLast) {
  const auto base = MakePath(18, 300);
  const auto grown = Join(base, MakePath(19, 300));
  for (std::uint64_t sync = 1; sync < 60; sync += 2) {
    MakeFileSystem();
    fault_env_->StopAtSync(sync);
    Open();
    const bool base_kept = Record(*cache_, domain_, base) == RefusalReason::kNone &&
                           cache_->Flush() && !fault_env_->stopped();
    const bool grown_kept = Record(*cache_, domain_, grown) == RefusalReason::kNone &&
                            cache_->Flush() && !fault_env_->stopped();
    CrashAndOpen(CrashPolicy::kRandom, /*seed=*/sync);
    const Restored restored = Restore(grown);
    EXPECT_FALSE(restored.wrong_byte) << "sync " << sync;
    EXPECT_FALSE(restored.failed) << "sync " << sync;
    EXPECT_GE(restored.tokens, grown_kept ? 600 : base_kept ? 300 : 0) << "sync " << sync;
    cache_.reset();
  }
}

// A directory of the real file system.
class CachePosixTest : public CacheFixture {
 protected:
  CachePosixTest()
      : base_(std::filesystem::temp_directory_path() /
              ("skippy-cache-test-" + std::to_string(getpid()))) {
    std::filesystem::remove_all(base_);
    std::filesystem::create_directories(base_);
    env_ = Env::Posix();
    options_.disk.directory = (base_ / "a" / "root").string();
  }
  ~CachePosixTest() override {
    cache_.reset();
    std::filesystem::remove_all(base_);
  }

  const std::filesystem::path base_;
};

TEST_F(CachePosixTest, ServesFromACopyOfTheRootAsAKilledProcessLeavesIt) {
  Open();
  const auto path = MakePath(20, 900);
  RecordDurably(path);
  const auto copy = base_ / "copy";
  std::filesystem::copy(options_.disk.directory, copy, std::filesystem::copy_options::recursive);
  cache_.reset();
  std::filesystem::permissions(copy, std::filesystem::perms::owner_all);
  options_.disk.directory = copy.string();
  Open();
  ExpectRestores(path, 900);
}

// Proves D11 and D36.
TEST_F(CachePosixTest, KeepsTheRootPrivateAndWithinItsBudget) {
  Open();
  for (std::uint32_t i = 0; i < 8; ++i) RecordDurably(MakePath(30 + i, 512));
  EXPECT_LE(PhysicalBytes(), options_.disk.budget_bytes);
  EXPECT_EQ(env_->Stat(options_.disk.directory)->mode, 0700U);
  EXPECT_EQ(env_->Stat(options_.disk.directory + "/packs")->mode, 0700U);
  EXPECT_EQ(env_->Stat(options_.disk.directory + "/catalog.db")->mode, 0600U);
}

// Proves D7 and D8.
TEST_F(CachePosixTest, RefusesALinkAsRootAndInsideIt) {
  std::filesystem::create_directories(base_ / "real");
  std::filesystem::create_directory_symlink(base_ / "real", base_ / "link");
  options_.disk.directory = (base_ / "link").string();
  Open();
  EXPECT_EQ(cache_->GetStatus().disk_state, TierState::kDegraded);
  std::filesystem::permissions(base_ / "real", std::filesystem::perms::owner_all);
  std::filesystem::create_directory_symlink(base_, base_ / "real" / "packs");
  options_.disk.directory = (base_ / "real").string();
  Open();
  EXPECT_EQ(cache_->GetStatus().disk_state, TierState::kDegraded);
  EXPECT_NE(cache_->GetStatus().disk_reason.find("symbolic link"), std::string::npos);
}

TEST_F(CachePosixTest, LeavesADirectoryOfSomebodyElseAlone) {
  const auto home = base_ / "home";
  std::filesystem::create_directories(home / "documents");
  std::filesystem::permissions(home, std::filesystem::perms(0755));
  options_.disk.directory = home.string();
  Open();
  EXPECT_EQ(cache_->GetStatus().disk_state, TierState::kDegraded);
  EXPECT_EQ(env_->Stat(home.string())->mode, 0755U);
}

}  // namespace
}  // namespace skippy
