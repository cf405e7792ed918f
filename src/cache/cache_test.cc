// Goal: what is recorded is found and restored, byte for byte, and nothing else is. Method: the
// whole library over an in-memory file system, with payloads that depend on path and position.
#include "skippy/cache.h"

#include <gtest/gtest.h>

#include "cache/cache_test_util.h"

namespace skippy {
namespace {

using CacheTest = CacheFixture;

TEST_F(CacheTest, RestoresWhatWasRecorded) {
  Open();
  const auto path = MakePath(1, 1000);
  RecordDurably(path);
  const PrefixMatch match = Lookup(path);
  ASSERT_EQ(match.tokens, 1000);
  ASSERT_EQ(match.segments.size(), 4U);
  EXPECT_EQ(match.segments[3].row_count, 1000 - 768);
  ExpectRestores(path, 1000);
  const CacheStatus status = cache_->GetStatus();
  EXPECT_EQ(status.disk_state, TierState::kActive);
  EXPECT_EQ(status.disk.manifests, 1U);
  EXPECT_EQ(status.disk.unique_segments, 4U);
  EXPECT_EQ(status.disk.payload_bytes, 1000 * kTestRowBytes);
  EXPECT_EQ(status.activity.bytes_written, 1000 * kTestRowBytes);
  EXPECT_EQ(status.activity.bytes_read, 1000 * kTestRowBytes);
  EXPECT_EQ(status.activity.writes, 1U);
  EXPECT_EQ(status.activity.fills, 1U);
  EXPECT_EQ(status.activity.hits, 2U);
  EXPECT_EQ(status.activity.write_queue_bytes, 0U);
  ASSERT_EQ(status.inventory.size(), 1U);
  EXPECT_EQ(status.inventory[0].token_count, 1000);
  EXPECT_EQ(status.inventory[0].payload_kind, "segments");
}

TEST_F(CacheTest, IsReadableBeforeItIsDurable) {
  Open();
  const auto path = MakePath(2, 700);
  auto recording = cache_->StartRecording(domain_, ResumeRule::kAnyToken);
  ASSERT_EQ(RecordInto(*cache_, *recording, path), RefusalReason::kNone);
  ExpectRestores(path, 700);
}

TEST_F(CacheTest, CutsInsideASegment) {
  Open();
  const auto path = MakePath(3, 600);
  RecordDurably(path);
  const std::span<const Token> head(path.data(), 300);
  const PrefixMatch match = Lookup(head);
  ASSERT_EQ(match.tokens, 300);
  EXPECT_EQ(match.segments.back().rows_used, 44);
  EXPECT_EQ(match.segments.back().row_count, 256);
  ExpectRestores(head, 300);
}

TEST_F(CacheTest, CountsAMissForAnUnknownPath) {
  Open();
  RecordDurably(MakePath(4, 300));
  EXPECT_TRUE(Lookup(MakePath(5, 300)).empty());
  EXPECT_EQ(cache_->GetStatus().activity.misses, 1U);
  EXPECT_EQ(cache_->GetStatus().activity.hits, 0U);
}

// Proves D34.
// Proves E4.
TEST_F(CacheTest, WritesOnlyWhatABranchAdds) {
  Open();
  const auto trunk = MakePath(6, 500);
  const auto one = Join(trunk, MakePath(7, 400));
  const auto two = Join(trunk, MakePath(8, 300));
  RecordDurably(one);
  const std::uint64_t before = cache_->GetStatus().activity.bytes_written;
  RecordDurably(two);
  EXPECT_EQ(cache_->GetStatus().activity.bytes_written - before, 300 * kTestRowBytes);
  ExpectRestores(one, 900);
  ExpectRestores(two, 800);
}

TEST_F(CacheTest, WritesNothingForAPathThatIsKnown) {
  Open();
  const auto path = MakePath(9, 500);
  RecordDurably(path);
  const CacheStatus before = cache_->GetStatus();
  RecordDurably(path);
  const CacheStatus after = cache_->GetStatus();
  EXPECT_EQ(after.activity.bytes_written, before.activity.bytes_written);
  EXPECT_EQ(after.disk.manifests, 1U);
}

TEST_F(CacheTest, LetsTheFirstOfTwoRecordingsOfOnePathWin) {
  Open();
  const auto path = MakePath(10, 256);
  auto first = cache_->StartRecording(domain_, ResumeRule::kAnyToken);
  auto second = cache_->StartRecording(domain_, ResumeRule::kAnyToken);
  const auto run = second->NextRun(path, 256, true);
  ASSERT_TRUE(run);
  ASSERT_EQ(RecordInto(*cache_, *first, path), RefusalReason::kNone);
  const auto rows = RowsOf(path, 0, 256);
  auto late = cache_->AcquireBuffer(rows.size());
  std::memcpy(late->bytes().data(), rows.data(), rows.size());
  EXPECT_EQ(second->Append(path, *run, std::move(late)), RefusalReason::kNone);
  EXPECT_FALSE(second->NextRun(path, 256, true));
  first->Publish(path, 256);
  ASSERT_TRUE(cache_->Flush());
  EXPECT_EQ(cache_->GetStatus().disk.unique_segments, 1U);
  EXPECT_EQ(cache_->GetStatus().activity.bytes_written, 256 * kTestRowBytes);
}

TEST_F(CacheTest, AsksForFullRunsUntilItIsTimeToFlush) {
  Open();
  const auto path = MakePath(11, 600);
  auto recording = cache_->StartRecording(domain_, ResumeRule::kAnyToken);
  EXPECT_FALSE(recording->NextRun(path, 255, false));
  const auto run = recording->NextRun(path, 300, false);
  ASSERT_TRUE(run);
  EXPECT_EQ(run->first_token, 0);
  EXPECT_EQ(run->token_count, 256);
}

TEST_F(CacheTest, KeepsWhatAnInterruptedRecordingHad) {
  Open();
  const auto path = MakePath(12, 500);
  auto recording = cache_->StartRecording(domain_, ResumeRule::kAnyToken);
  ASSERT_EQ(RecordInto(*cache_, *recording, path), RefusalReason::kNone);
  recording.reset();
  ASSERT_TRUE(cache_->Flush());
  Reopen();
  ExpectRestores(path, 500);
}

TEST_F(CacheTest, PublishesAShorterPrefixOfARecording) {
  Open();
  const auto path = MakePath(13, 500);
  auto recording = cache_->StartRecording(domain_, ResumeRule::kAnyToken);
  ASSERT_EQ(RecordInto(*cache_, *recording, path), RefusalReason::kNone);
  recording->Publish(path, 400);
  recording->Publish(path, 500);
  recording.reset();
  ASSERT_TRUE(cache_->Flush());
  const CacheStatus status = cache_->GetStatus();
  ASSERT_EQ(status.inventory.size(), 2U);
  EXPECT_EQ(status.inventory[0].token_count, 500);
  EXPECT_EQ(status.inventory[1].token_count, 400);
}

// Proves A2 and A13.
TEST_F(CacheTest, KeepsDomainsApart) {
  Open();
  const auto path = MakePath(14, 300);
  RecordDurably(path);
  for (const DomainSpec& spec : {SpecOf(1, 2, ""), SpecOf(1, 1, "tenant"), SpecOf(2, 3, "")}) {
    const auto other = cache_->OpenDomain(spec);
    ASSERT_TRUE(other);
    EXPECT_NE(*other, domain_);
    EXPECT_EQ(cache_->Peek(*other, path, 300, ResumeRule::kAnyToken), 0);
  }
  EXPECT_EQ(*cache_->OpenDomain(SpecOf(1, 1, "")), domain_);
}

TEST_F(CacheTest, RefusesANameSpaceThatIsTooLong) {
  Open();
  const auto domain = cache_->OpenDomain(SpecOf(1, 1, std::string(257, 'x')));
  ASSERT_FALSE(domain);
  EXPECT_EQ(domain.error().code, ErrorCode::kInvalidArgument);
}

// Proves D70.
// Proves D70.
TEST_F(CacheTest, DropsAndCountsARecordWhenTheQueueIsFull) {
  options_.write_queue_bytes = 128 * kKiB;
  Open();
  auto held = cache_->AcquireBuffer(100 * kKiB);
  ASSERT_TRUE(held);
  EXPECT_FALSE(cache_->AcquireBuffer(100 * kKiB));
  const CacheActivity activity = cache_->GetStatus().activity;
  EXPECT_EQ(activity.records_dropped, 1U);
  EXPECT_EQ(activity.last_refusal, RefusalReason::kQueueFull);
  EXPECT_EQ(activity.write_queue_bytes, 100 * kKiB);
}

// Proves D41.
// Proves D18, D41.
TEST_F(CacheTest, RefusesAnEntryAboveTheWholeBudget) {
  options_.disk.budget_bytes = 8 * kMiB;
  Open();
  EXPECT_FALSE(cache_->AcquireBuffer(9 * kMiB));
  EXPECT_EQ(cache_->GetStatus().activity.last_refusal, RefusalReason::kSkippedOversize);
}

TEST_F(CacheTest, WorksWithoutAnyTier) {
  options_.disk.mode = DiskMode::kOff;
  Open();
  const auto domain = cache_->OpenDomain(SpecOf(1, 1, ""));
  ASSERT_FALSE(domain);
  EXPECT_EQ(domain.error().code, ErrorCode::kUnavailable);
  const auto path = MakePath(15, 300);
  EXPECT_TRUE(Lookup(path).empty());
  EXPECT_FALSE(cache_->StartRecording(domain_, ResumeRule::kAnyToken)->NextRun(path, 300, true));
  EXPECT_FALSE(cache_->AcquireBuffer(10));
  EXPECT_TRUE(cache_->Flush());
  EXPECT_EQ(cache_->GetStatus().disk_state, TierState::kOff);
  EXPECT_TRUE(cache_->Close());
}

TEST_F(CacheTest, RefusesOptionsThatMakeNoSense) {
  options_.disk.directory = "relative";
  EXPECT_EQ(Cache::Open(options_, env_).error().code, ErrorCode::kInvalidArgument);
  options_.disk.directory = "/cache/root";
  options_.disk.budget_bytes = 0;
  EXPECT_EQ(Cache::Open(options_, env_).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(CacheTest, ResumesACheckpointFamilyAtItsCheckpoint) {
  Open();
  const auto path = MakePath(16, 500);
  auto recording = cache_->StartRecording(domain_, ResumeRule::kCheckpoint);
  const std::span<const Token> head(path.data(), 400);
  ASSERT_EQ(RecordInto(*cache_, *recording, head), RefusalReason::kNone);
  ASSERT_TRUE(recording->WantsCheckpoint(path, 400));
  auto state = cache_->AcquireBuffer(1000);
  std::memset(state->bytes().data(), 7, 1000);
  ASSERT_EQ(recording->AppendCheckpoint(path, 400, std::move(state)), RefusalReason::kNone);
  EXPECT_FALSE(recording->WantsCheckpoint(path, 400));
  ASSERT_EQ(RecordInto(*cache_, *recording, path), RefusalReason::kNone);
  recording.reset();
  Reopen();
  const PrefixMatch match = cache_->Lookup(domain_, path, 500, ResumeRule::kCheckpoint);
  ASSERT_EQ(match.tokens, 400);
  EXPECT_EQ(match.segments.back().kind, SegmentKind::kCheckpoint);
  EXPECT_EQ(match.segments.back().byte_count, 1000U);
  EXPECT_EQ(cache_->GetStatus().inventory.at(0).payload_kind, "segments+checkpoint");
  EXPECT_EQ(Found(path), 400) << "rows below the last checkpoint serve nobody";
}

TEST_F(CacheTest, MayDropARestoreAtAnyPoint) {
  Open();
  const auto path = MakePath(17, 2000);
  RecordDurably(path);
  for (int polls = 0; polls < 8; ++polls) {
    WakeSignal wake;
    auto restore = cache_->StartRestore(Lookup(path), path, wake.callback());
    for (int i = 0; i < polls; ++i) {
      if (restore->Poll() == Restore::State::kReady) restore->Pop();
    }
  }
  ASSERT_TRUE(cache_->Clear(std::nullopt));
  EXPECT_TRUE(cache_->Close());
}

TEST_F(CacheTest, ObjectsMayOutliveTheCache) {
  Open();
  const auto path = MakePath(18, 600);
  RecordDurably(path);
  PrefixMatch match = Lookup(path);
  auto recording = cache_->StartRecording(domain_, ResumeRule::kAnyToken);
  ASSERT_EQ(RecordInto(*cache_, *recording, MakePath(19, 100)), RefusalReason::kNone);
  auto buffer = cache_->AcquireBuffer(100);
  auto restore = cache_->StartRestore(Lookup(path), path, [] {});
  cache_.reset();
  buffer->bytes()[0] = std::byte{1};
}

}  // namespace
}  // namespace skippy
