// Goal: the budget holds, the least recently used goes first, and what is in use stays. Method: a
// store of a few packs that is filled several times over.
#include <gtest/gtest.h>

#include <chrono>

#include "cache/cache_test_util.h"

namespace skippy {
namespace {

class CacheEvictionTest : public CacheFixture {
 protected:
  CacheEvictionTest() {
    options_.disk.budget_bytes = 12 * kMiB;
    options_.disk.pack_bytes = 512 * kKiB;
  }
  // 128 KiB each; 40 or so fit.
  static std::vector<Token> Path(std::uint32_t seed) { return MakePath(1000 + seed, 256); }
  void Fill(std::uint32_t first, std::uint32_t count) {
    for (std::uint32_t i = first; i < first + count; ++i) RecordDurably(Path(i));
  }
};

// Proves D36 and D44.
// Proves D25, D42, D48, E13.
TEST_F(CacheEvictionTest, NeverPassesTheBudget) {
  Open();
  for (std::uint32_t i = 0; i < 150; ++i) {
    RecordDurably(Path(i));
    ASSERT_LE(PhysicalBytes(), options_.disk.budget_bytes) << i;
    ASSERT_LE(cache_->GetStatus().disk.used_bytes, options_.disk.budget_bytes) << i;
    ASSERT_EQ(Found(Path(i)), 256) << i;
  }
  const CacheStatus status = cache_->GetStatus();
  EXPECT_GT(status.disk.evicted_manifests, 50U);
  EXPECT_EQ(status.activity.records_dropped, 0U);
  EXPECT_EQ(status.disk_state, TierState::kActive);
  Reopen();
  ExpectRestores(Path(149), 256);
}

// Proves D27, D47.
TEST_F(CacheEvictionTest, EvictsTheLeastRecentlyUsedFirstAlsoAfterReopening) {
  Open();
  Fill(0, 30);
  EXPECT_FALSE(Lookup(Path(0)).empty());
  Reopen();
  EXPECT_FALSE(Lookup(Path(1)).empty());
  for (std::uint32_t i = 30; Found(Path(2)) > 0 && i < 100; ++i) Fill(i, 1);
  EXPECT_EQ(Found(Path(2)), 0);
  EXPECT_EQ(Found(Path(0)), 256) << "its use was remembered";
  EXPECT_EQ(Found(Path(1)), 256);
  Fill(100, 20);
  Reopen();
  for (std::uint32_t i = 110; i < 120; ++i) EXPECT_EQ(Found(Path(i)), 256) << i;
}

TEST_F(CacheEvictionTest, KeepsWhatIsRetainedThroughChurnAndReopening) {
  Open();
  {
    auto recording = cache_->StartRecording(domain_, ResumeRule::kAnyToken);
    const auto now = std::chrono::duration_cast<std::chrono::seconds>(env_->WallNow());
    recording->Retain(now + std::chrono::hours(24));
    ASSERT_EQ(RecordInto(*cache_, *recording, Path(0)), RefusalReason::kNone);
    recording->Publish(Path(0), 256);
  }
  Fill(1, 60);
  EXPECT_EQ(Found(Path(0)), 256);
  EXPECT_EQ(Found(Path(1)), 0);
  Reopen();
  Fill(100, 60);
  ExpectRestores(Path(0), 256);
  ASSERT_TRUE(cache_->Prune(0, std::nullopt));
  EXPECT_EQ(Found(Path(0)), 0) << "a budget is harder than a wish";
}

// Case A9.
TEST_F(CacheEvictionTest, RemovesWhatTheEngineCannotUse) {
  Open();
  RecordDurably(Path(0));
  RecordDurably(Path(1));
  Reopen();
  {
    WakeSignal wake;
    auto restore = cache_->StartRestore(Lookup(Path(0)), Path(0), wake.callback());
    while (restore->Poll() == Restore::State::kPending) wake.WaitAfter(0);
    ASSERT_EQ(restore->Poll(), Restore::State::kReady);
    restore->Reject();
  }
  EXPECT_EQ(Found(Path(0)), 0);
  EXPECT_EQ(cache_->GetStatus().activity.corrupt_entries, 1U);
  RecordDurably(Path(0));
  Reopen();
  ExpectRestores(Path(0), 256);
  ExpectRestores(Path(1), 256);
}

TEST_F(CacheEvictionTest, PrefersTheUsedOfTwoEquallyOldPrefixes) {
  Open();
  Fill(0, 20);
  EXPECT_FALSE(Lookup(Path(0)).empty());
  ASSERT_TRUE(cache_->Prune(cache_->GetStatus().disk.used_bytes - kMiB, std::nullopt));
  EXPECT_EQ(Found(Path(0)), 256);
  EXPECT_EQ(Found(Path(1)), 0);
  EXPECT_EQ(Found(Path(19)), 256);
}

TEST_F(CacheEvictionTest, KeepsASharedHeadAsLongAsAPrefixBelowIt) {
  Open();
  const auto head = MakePath(1, 256);
  const auto left = Join(head, MakePath(2, 256));
  const auto right = Join(head, MakePath(3, 256));
  RecordDurably(head);
  RecordDurably(left);
  RecordDurably(right);
  for (std::uint32_t i = 0; i < 200; ++i) {
    RecordDurably(Path(i));
    EXPECT_FALSE(Lookup(right).empty());
    ASSERT_EQ(Found(right), 512) << i;
  }
  EXPECT_EQ(Found(left), 256);
  ExpectRestores(right, 512);
}

// Proves D60.
// Proves D60.
TEST_F(CacheEvictionTest, NeverEvictsALeasedChain) {
  Open();
  const auto leased = MakePath(4, 1024);
  RecordDurably(leased);
  PrefixMatch match = Lookup(leased);
  Fill(0, 200);
  ASSERT_TRUE(cache_->Clear(std::nullopt));
  const Restored restored = RestoreAndCheck(*cache_, std::move(match), leased);
  EXPECT_EQ(restored.tokens, 1024);
  EXPECT_FALSE(restored.wrong_byte || restored.failed);
}

// Proves D41.
// Proves D41.
TEST_F(CacheEvictionTest, RefusesARecordWhenEverythingIsInUse) {
  Open();
  std::vector<PrefixMatch> leases;
  std::uint32_t next = 0;
  while (cache_->GetStatus().activity.records_dropped == 0 && next < 200) {
    RecordDurably(Path(next));
    leases.push_back(Lookup(Path(next)));
    ++next;
  }
  const CacheStatus status = cache_->GetStatus();
  EXPECT_EQ(status.activity.last_refusal, RefusalReason::kInsufficientSpace);
  EXPECT_EQ(Found(Path(next - 1)), 0);
  EXPECT_EQ(Found(Path(0)), 256);
  leases.clear();
  RecordDurably(Path(next));
  EXPECT_EQ(Found(Path(next)), 256);
}

// Proves D46.
TEST_F(CacheEvictionTest, AccountsForWhatAPruneFreed) {
  Open();
  Fill(0, 40);
  const std::uint64_t before = PhysicalBytes();
  const std::uint64_t target = cache_->GetStatus().disk.used_bytes - 2 * kMiB;
  const auto freed = cache_->Prune(target, std::nullopt);
  ASSERT_TRUE(freed);
  EXPECT_LE(cache_->GetStatus().disk.used_bytes, target);
  const std::uint64_t after = PhysicalBytes();
  // The catalog writes its own file meanwhile.
  EXPECT_NEAR(static_cast<double>(before - after), static_cast<double>(*freed), 256.0 * 1024);
  EXPECT_EQ(*freed % 4096, 0U);
  EXPECT_EQ(Found(Path(39)), 256);
  EXPECT_EQ(Found(Path(0)), 0);
}

TEST_F(CacheEvictionTest, PrunesToTheTargetThoughWhatStaysIsSpread) {
  Open();
  Fill(0, 40);
  std::vector<PrefixMatch> leases;
  for (std::uint32_t i = 0; i < 40; i += 5) {
    if (Found(Path(i)) > 0) leases.push_back(Lookup(Path(i)));
  }
  const std::uint64_t kept_bytes = leases.size() * 256 * kTestRowBytes;
  const std::uint64_t before = PhysicalBytes();
  const std::uint64_t target =
      cache_->GetStatus().disk.used_bytes - cache_->GetStatus().disk.payload_bytes + kept_bytes;
  const auto freed = cache_->Prune(target, std::nullopt);
  ASSERT_TRUE(freed);
  EXPECT_LE(cache_->GetStatus().disk.used_bytes, target);
  EXPECT_NEAR(static_cast<double>(before - PhysicalBytes()), static_cast<double>(*freed),
              256.0 * 1024);
  for (std::uint32_t i = 0; i < 40; i += 5) ExpectRestores(Path(i), Found(Path(i)));
}

// Proves D47.
TEST_F(CacheEvictionTest, ClearsOneModelOnly) {
  Open();
  Fill(0, 4);
  const DomainId other = *cache_->OpenDomain(SpecOf(2, 9, ""));
  const auto path = MakePath(5, 300);
  ASSERT_EQ(Record(*cache_, other, path), RefusalReason::kNone);
  ASSERT_TRUE(cache_->Clear(SpecOf(1, 1, "").model));
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(Found(Path(i)), 0);
  EXPECT_EQ(cache_->Peek(other, path, 300, ResumeRule::kAnyToken), 300);
  ASSERT_TRUE(cache_->Clear(std::nullopt));
  EXPECT_EQ(cache_->Peek(other, path, 300, ResumeRule::kAnyToken), 0);
  const CacheStatus status = cache_->GetStatus();
  EXPECT_EQ(status.disk.manifests, 0U);
  EXPECT_EQ(status.disk.unique_segments, 0U);
  EXPECT_EQ(status.disk.payload_bytes, 0U);
}

TEST_F(CacheEvictionTest, ClearsEverythingForGood) {
  Open();
  Fill(0, 6);
  ASSERT_GT(*cache_->Clear(std::nullopt), 0U);
  Reopen();
  EXPECT_EQ(cache_->GetStatus().disk.unique_segments, 0U);
  EXPECT_EQ(cache_->GetStatus().reconciliation.removed_orphan_bytes, 0U);
}

// More than is given up under one hold of the lock.
TEST_F(CacheEvictionTest, ClearsThousandsOfPrefixesInOneCall) {
  constexpr std::uint32_t kPrefixes = 5000;
  options_.disk.budget_bytes = 64 * kMiB;
  Open();
  for (std::uint32_t i = 0; i < kPrefixes; ++i) {
    ASSERT_EQ(Record(*cache_, domain_, MakePath(i, 1)), RefusalReason::kNone);
  }
  ASSERT_TRUE(cache_->Flush());
  ASSERT_EQ(cache_->GetStatus().disk.unique_segments, kPrefixes);
  EXPECT_GE(*cache_->Clear(std::nullopt), kPrefixes * 4096ULL);
  EXPECT_EQ(cache_->GetStatus().disk.unique_segments, 0U);
  Reopen();
  EXPECT_EQ(cache_->GetStatus().disk.unique_segments, 0U);
  EXPECT_EQ(cache_->GetStatus().disk.manifests, 0U);
}

// Proves D50.
TEST_F(CacheEvictionTest, ShrinksAndGrowsWhileItRuns) {
  Open();
  Fill(0, 40);
  ASSERT_TRUE(cache_->SetDiskLimits(8 * kMiB, 0));
  EXPECT_LE(PhysicalBytes(), 8 * kMiB);
  EXPECT_EQ(cache_->GetStatus().disk_state, TierState::kActive);
  Fill(40, 40);
  EXPECT_LE(PhysicalBytes(), 8 * kMiB);
  ASSERT_TRUE(cache_->SetDiskLimits(16 * kMiB, 0));
  Fill(80, 40);
  EXPECT_GT(cache_->GetStatus().disk.payload_bytes, 4 * kMiB);
  EXPECT_EQ(cache_->GetStatus().disk.budget_bytes, 16 * kMiB);
}

TEST_F(CacheEvictionTest, ComesBackUnderASmallerBudgetWhenOpened) {
  Open();
  Fill(0, 40);
  cache_.reset();
  options_.disk.budget_bytes = 8 * kMiB;
  Open();
  EXPECT_LE(PhysicalBytes(), 8 * kMiB);
  EXPECT_EQ(Found(Path(39)), 256);
}

// Proves N2.
TEST_F(CacheEvictionTest, SaysThatABudgetIsTooSmall) {
  options_.disk.budget_bytes = 2 * kMiB;
  Open();
  const CacheStatus status = cache_->GetStatus();
  EXPECT_EQ(status.disk_state, TierState::kDegraded);
  EXPECT_EQ(status.disk_reason.rfind("budget_below_entry_floor", 0), 0U);
  options_.disk.budget_bytes = 12 * kMiB;
  Open();
  EXPECT_EQ(cache_->SetDiskLimits(kMiB, 0).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace skippy
