// Goal: the RAM tier on the request path: what was recorded or read stays one copy away, within its
// budget at every moment, with a disk tier below and without one.
// Method: a cache over an in-memory file system; every restored byte is compared with the path it
// must come from, and where it came from is asked of the cache's own counters.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <set>

#include "cache/cache_test_util.h"

namespace skippy {
namespace {

constexpr std::uint64_t kSegmentBytes = kMaxSegmentTokens * kTestRowBytes;

class CacheRamTest : public CacheFixture {
 protected:
  void OpenRamOnly(std::uint64_t budget_bytes) {
    options_.disk.mode = DiskMode::kOff;
    options_.ram.budget_bytes = budget_bytes;
    Open();
  }
  void OpenBoth(std::uint64_t budget_bytes) {
    options_.ram.budget_bytes = budget_bytes;
    Open();
  }
  RamUsage Ram() { return cache_->GetStatus().ram; }
  std::uint64_t Fills() { return cache_->GetStatus().activity.fills; }
  void ExpectWithinBudget() {
    const RamUsage ram = Ram();
    EXPECT_LE(ram.resident_bytes + ram.in_flight_bytes, ram.budget_bytes);
  }
};

TEST_F(CacheRamTest, KeepsWhatWasRecordedWithoutADisk) {
  OpenRamOnly(8 * kMiB);
  const auto path = MakePath(1, 700);
  RecordDurably(path);
  ExpectRestores(path, 700);
  const RamUsage ram = Ram();
  EXPECT_EQ(ram.resident_bytes, 2 * kSegmentBytes + 188 * kTestRowBytes + 2048);  // whole pages
  EXPECT_EQ(ram.in_flight_bytes, 0U);
  EXPECT_EQ(ram.entries, 1U);
  EXPECT_EQ(ram.segments, 3U);
  EXPECT_EQ(ram.hits, 1U);
  EXPECT_EQ(Fills(), 0U);
}

TEST_F(CacheRamTest, LocksItsMemoryWhenAsked) {
  OpenRamOnly(8 * kMiB);
  EXPECT_FALSE(Ram().locked);
  options_.ram.lock_pages = true;
  OpenRamOnly(8 * kMiB);
  const auto path = MakePath(1, 700);
  RecordDurably(path);
  ExpectRestores(path, 700);
  const RamUsage ram = Ram();
  EXPECT_TRUE(ram.locked) << ram.lock_error;
  EXPECT_GT(ram.resident_bytes, 0U);
}

TEST_F(CacheRamTest, EvictsWhatIsRetainedLast) {
  OpenRamOnly(8 * kMiB);
  {
    auto recording = cache_->StartRecording(domain_, ResumeRule::kAnyToken);
    recording->Retain(std::chrono::duration_cast<std::chrono::seconds>(env_->WallNow()) +
                      std::chrono::hours(1));
    ASSERT_EQ(RecordInto(*cache_, *recording, MakePath(1, 700)), RefusalReason::kNone);
    recording->Publish(MakePath(1, 700), 700);
  }
  for (std::uint32_t seed = 2; seed < 60; ++seed) RecordDurably(MakePath(seed, 700));
  EXPECT_GT(Ram().evictions, 50U);
  EXPECT_EQ(Found(MakePath(2, 700)), 0);
  ExpectRestores(MakePath(1, 700), 700);
  ExpectWithinBudget();
  ASSERT_TRUE(cache_->Clear(std::nullopt));
  EXPECT_EQ(Ram().resident_bytes, 0U);
}

TEST_F(CacheRamTest, NothingIsWrittenWithoutADisk) {
  OpenRamOnly(8 * kMiB);
  RecordDurably(MakePath(1, 300));
  const auto status = cache_->GetStatus();
  EXPECT_EQ(status.activity.bytes_written, 0U);
  EXPECT_EQ(status.disk_state, TierState::kOff);
  EXPECT_FALSE(env_->Stat(options_.disk.directory));
}

TEST_F(CacheRamTest, IsOffWithABudgetOfNothing) {
  OpenRamOnly(0);
  EXPECT_FALSE(cache_->OpenDomain(SpecOf(1, 1, "")));
  EXPECT_EQ(cache_->AcquireBuffer(10), nullptr);
  EXPECT_FALSE(cache_->SetRamLimit(kMiB));
}

// Ten conversations of 500 tokens on a head of 8,000. Proves C2, C7, U27.
TEST_F(CacheRamTest, HoldsASharedHeadOnce) {
  OpenRamOnly(64 * kMiB);
  const auto head = MakePath(1, 8000);
  for (std::uint32_t i = 0; i < 10; ++i) RecordDurably(Join(head, MakePath(100 + i, 500)));
  const std::uint64_t unique_bytes = (8000 + 10 * 500) * kTestRowBytes;
  const RamUsage ram = Ram();
  RecordProperty("physical_over_unique_percent",
                 static_cast<int>(100 * ram.resident_bytes / unique_bytes));
  EXPECT_LE(ram.resident_bytes, unique_bytes + unique_bytes / 20);
  EXPECT_GE(ram.logical_bytes, 10 * std::uint64_t{8500} * kTestRowBytes);
  for (std::uint32_t i = 0; i < 10; ++i) ExpectRestores(Join(head, MakePath(100 + i, 500)), 8500);
}

TEST_F(CacheRamTest, EvictsTheLeastRecentlyUsedConversationFromItsEnd) {
  OpenRamOnly(8 * kSegmentBytes);
  const auto a = MakePath(1, 4 * kMaxSegmentTokens);
  const auto b = MakePath(2, 4 * kMaxSegmentTokens);
  RecordDurably(a);
  RecordDurably(b);
  ExpectRestores(a, 4 * kMaxSegmentTokens);
  RecordDurably(MakePath(3, 2 * kMaxSegmentTokens));
  EXPECT_EQ(Found(a), 4 * kMaxSegmentTokens);
  EXPECT_EQ(Found(b), 2 * kMaxSegmentTokens);
  ExpectRestores(b, 2 * kMaxSegmentTokens);
  EXPECT_EQ(Ram().evictions, 2U);
  ExpectWithinBudget();
}

TEST_F(CacheRamTest, AConversationLargerThanTheBudgetKeepsItsHead) {
  OpenRamOnly(4 * kSegmentBytes);
  const auto path = MakePath(1, 6 * kMaxSegmentTokens);
  EXPECT_NE(Record(*cache_, domain_, path), RefusalReason::kNone);
  ASSERT_TRUE(cache_->Flush());
  ExpectRestores(path, 4 * kMaxSegmentTokens);
  ExpectWithinBudget();
  EXPECT_EQ(cache_->GetStatus().activity.last_refusal, RefusalReason::kInsufficientSpace);
}

TEST_F(CacheRamTest, ASegmentLargerThanTheBudgetIsRefused) {
  OpenRamOnly(kSegmentBytes);
  EXPECT_EQ(cache_->AcquireBuffer(2 * kSegmentBytes), nullptr);
  EXPECT_EQ(cache_->GetStatus().activity.last_refusal, RefusalReason::kSkippedOversize);
}

// Proves C26.
TEST_F(CacheRamTest, WhatIsDurableStaysInRamToo) {
  OpenBoth(8 * kMiB);
  const auto path = MakePath(1, 1000);
  RecordDurably(path);
  ExpectRestores(path, 1000);
  EXPECT_EQ(Fills(), 0U);
  Reopen();
  ExpectRestores(path, 1000);
  EXPECT_EQ(Fills(), 1U);
}

TEST_F(CacheRamTest, ReadsFromDiskWhatLeftRam) {
  OpenBoth(4 * kSegmentBytes);
  const auto a = MakePath(1, 4 * kMaxSegmentTokens);
  const auto b = MakePath(2, 4 * kMaxSegmentTokens);
  RecordDurably(a);
  RecordDurably(b);
  ExpectRestores(b, 4 * kMaxSegmentTokens);
  EXPECT_EQ(Fills(), 0U);
  ExpectRestores(a, 4 * kMaxSegmentTokens);
  EXPECT_EQ(Fills(), 1U);
  ExpectWithinBudget();
}

// Proves C27, C30.
TEST_F(CacheRamTest, PromotesASecondFillWithinTenMinutes) {
  OpenBoth(64 * kMiB);
  const auto path = MakePath(1, 1000);
  RecordDurably(path);
  Reopen();
  const std::uint64_t written = cache_->GetStatus().activity.bytes_written;
  ExpectRestores(path, 1000);
  EXPECT_EQ(Ram().promotions, 0U);
  ExpectRestores(path, 1000);
  EXPECT_EQ(Ram().promotions, 4U);
  EXPECT_EQ(Fills(), 2U);
  ExpectRestores(path, 1000);
  EXPECT_EQ(Fills(), 2U);
  EXPECT_EQ(Ram().promotions, 4U);
  EXPECT_EQ(cache_->GetStatus().activity.bytes_written, written);
}

// Proves C27.
TEST_F(CacheRamTest, PromotesALongFillAtOnce) {
  OpenBoth(64 * kMiB);
  const auto path = MakePath(1, 4096);
  RecordDurably(path);
  Reopen();
  ExpectRestores(path, 4096);
  ExpectRestores(path, 4096);
  EXPECT_EQ(Fills(), 1U);
}

TEST_F(CacheRamTest, DoesNotPromoteMoreThanHalfTheBudget) {
  OpenBoth(8 * kMiB);
  const auto path = MakePath(1, 9000);
  RecordDurably(path);
  Reopen();
  for (int i = 0; i < 3; ++i) ExpectRestores(path, 9000);
  EXPECT_EQ(Ram().promotions, 0U);
  EXPECT_EQ(Fills(), 3U);
}

// Proves C31.
TEST_F(CacheRamTest, WhatLeavesTheDiskLeavesRam) {
  OpenBoth(64 * kMiB);
  const auto path = MakePath(1, 1000);
  RecordDurably(path);
  ASSERT_TRUE(cache_->Clear(std::nullopt));
  EXPECT_EQ(Found(path), 0);
  EXPECT_EQ(Ram().resident_bytes, 0U);
}

TEST_F(CacheRamTest, ClearDropsOneModel) {
  OpenRamOnly(64 * kMiB);
  const auto path = MakePath(1, 1000);
  RecordDurably(path);
  const auto other = cache_->OpenDomain(SpecOf(2, 2, ""));
  ASSERT_TRUE(other);
  const auto others = MakePath(2, 1000);
  ASSERT_EQ(Record(*cache_, *other, others), RefusalReason::kNone);
  const auto freed = cache_->Clear(SpecOf(2, 2, "").model);
  ASSERT_TRUE(freed);
  EXPECT_GE(*freed, 1000 * kTestRowBytes);
  EXPECT_EQ(cache_->Peek(*other, others, 1000, ResumeRule::kAnyToken), 0);
  ExpectRestores(path, 1000);
}

// Proves A13.
TEST_F(CacheRamTest, AnotherIdentityOrNamespaceIsAMiss) {
  OpenRamOnly(64 * kMiB);
  const auto path = MakePath(1, 300);
  RecordDurably(path);
  for (const DomainSpec& spec : {SpecOf(1, 2, ""), SpecOf(1, 1, "tenant")}) {
    const auto domain = cache_->OpenDomain(spec);
    ASSERT_TRUE(domain);
    EXPECT_EQ(cache_->Peek(*domain, path, 300, ResumeRule::kAnyToken), 0);
  }
}

// Proves C33.
TEST_F(CacheRamTest, UnloadingAModelDropsItsRamAndKeepsItsDisk) {
  OpenBoth(64 * kMiB);
  const auto path = MakePath(1, 1000);
  RecordDurably(path);
  cache_->DropRam(SpecOf(1, 1, "").model);
  EXPECT_EQ(Ram().resident_bytes, 0U);
  ExpectRestores(path, 1000);
  EXPECT_EQ(Fills(), 1U);
}

// Proves C33: what waits for the writer is in RAM as well.
TEST_F(CacheRamTest, UnloadingAModelDropsWhatWasRecordedJustNow) {
  OpenRamOnly(64 * kMiB);
  for (std::uint32_t i = 0; i < 20; ++i) {
    ASSERT_EQ(Record(*cache_, domain_, MakePath(i, 2000)), RefusalReason::kNone);
    cache_->DropRam(SpecOf(1, 1, "").model);
    ASSERT_EQ(Ram().resident_bytes + Ram().in_flight_bytes, 0U) << i;
    ASSERT_TRUE(cache_->Flush());
    ASSERT_EQ(Ram().resident_bytes, 0U) << i;
  }
}

TEST_F(CacheRamTest, PruneShrinksRamAlone) {
  OpenRamOnly(64 * kMiB);
  RecordDurably(MakePath(1, 4 * kMaxSegmentTokens));
  ASSERT_TRUE(cache_->Prune(kSegmentBytes, std::nullopt));
  EXPECT_EQ(Ram().resident_bytes, kSegmentBytes);
}

TEST_F(CacheRamTest, ASmallerBudgetTakesEffectAtOnce) {
  OpenRamOnly(8 * kSegmentBytes);
  const auto path = MakePath(1, 8 * kMaxSegmentTokens);
  RecordDurably(path);
  ASSERT_TRUE(cache_->SetRamLimit(4 * kSegmentBytes));
  EXPECT_EQ(Ram().resident_bytes, 4 * kSegmentBytes);
  ExpectRestores(path, 4 * kMaxSegmentTokens);
  ASSERT_TRUE(cache_->SetRamLimit(0));
  EXPECT_EQ(Ram().resident_bytes, 0U);
  ASSERT_TRUE(cache_->SetRamLimit(8 * kSegmentBytes));
  RecordDurably(path);
  ExpectRestores(path, 8 * kMaxSegmentTokens);
}

// Proves C20.
TEST_F(CacheRamTest, ARestoreKeepsItsBytesWhateverIsEvicted) {
  OpenRamOnly(4 * kSegmentBytes);
  const auto path = MakePath(1, 4 * kMaxSegmentTokens);
  RecordDurably(path);
  WakeSignal wake;
  auto restore = cache_->StartRestore(Lookup(path), path, wake.callback());
  ASSERT_TRUE(cache_->SetRamLimit(0));
  for (TokenCount first = 0; first < 4 * kMaxSegmentTokens; first += kMaxSegmentTokens) {
    ASSERT_EQ(restore->Poll(), Restore::State::kReady);
    const auto expected = RowsOf(path, first, first + kMaxSegmentTokens);
    EXPECT_TRUE(std::ranges::equal(restore->bytes(), expected));
    restore->Pop();
  }
  restore.reset();
  ASSERT_TRUE(cache_->SetRamLimit(0));
  EXPECT_EQ(Ram().resident_bytes + Ram().in_flight_bytes, 0U);
}

TEST_F(CacheRamTest, BuffersOnTheirWayInCountAgainstTheBudget) {
  OpenRamOnly(2 * kSegmentBytes);
  auto a = cache_->AcquireBuffer(kSegmentBytes);
  auto b = cache_->AcquireBuffer(kSegmentBytes);
  EXPECT_EQ(Ram().in_flight_bytes, 2 * kSegmentBytes);
  EXPECT_EQ(cache_->AcquireBuffer(1), nullptr);
  b.reset();
  EXPECT_EQ(Ram().in_flight_bytes, kSegmentBytes);
  EXPECT_NE(cache_->AcquireBuffer(1), nullptr);
}

TEST_F(CacheRamTest, AFailingDiskLeavesWhatRamHolds) {
  OpenBoth(64 * kMiB);
  fault_env_->Inject(
      {.kind = FileOpKind::kWrite, .repeat = Fault::kForever, .path_contains = "/packs/"});
  const auto path = MakePath(1, 1000);
  RecordInVain(path);
  EXPECT_EQ(cache_->GetStatus().disk_state, TierState::kDegraded);
  ExpectRestores(path, 1000);
  EXPECT_EQ(Fills(), 0U);
}

// Budget sampled all the while. Proves C12, C29.
TEST_F(CacheRamTest, NeverPassesItsBudgetUnderConcurrentUse) {
  OpenBoth(12 * kSegmentBytes);
  std::atomic<bool> done = false;
  std::atomic<std::uint64_t> over = 0;
  std::thread sampler([&] {
    while (!done) {
      const RamUsage ram = Ram();
      if (ram.resident_bytes + ram.in_flight_bytes > 12 * kSegmentBytes) ++over;
    }
  });
  std::vector<std::thread> users;
  std::atomic<int> wrong = 0;
  for (std::uint32_t user = 0; user < 4; ++user) {
    users.emplace_back([&, user] {
      std::mt19937 random(user);
      for (int i = 0; i < 40; ++i) {
        const auto path = Join(MakePath(1, 300), MakePath(10 + random() % 6, 100 + random() % 700));
        if (RestoreAndCheck(*cache_, Lookup(path), path).wrong_byte) ++wrong;
        Record(*cache_, domain_, path);
      }
    });
  }
  for (std::thread& user : users) user.join();
  done = true;
  sampler.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(over, 0U);
  ASSERT_TRUE(cache_->Flush());
  ExpectWithinBudget();
}

}  // namespace
}  // namespace skippy
