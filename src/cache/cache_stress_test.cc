// Goal: no wrong byte and no leak while recording, looking up, restoring, evicting and clearing run
// at once. Method: several threads over a store that is much too small, with payloads that name
// their path and position; afterwards everything that was held must have been let go.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "cache/cache_test_util.h"

namespace skippy {
namespace {

class CacheStressTest : public CacheFixture {
 protected:
  CacheStressTest() {
    options_.disk.budget_bytes = 10 * kMiB;
    options_.disk.pack_bytes = 512 * kKiB;
    options_.write_queue_bytes = 2 * kMiB;
  }
  // A tree of paths: common heads, different tails.
  static std::vector<Token> RandomPath(std::mt19937& random) {
    std::vector<Token> path =
        MakePath(random() % 4, 200 + static_cast<TokenCount>(random() % 3) * 60);
    path = Join(std::move(path), MakePath(100 + random() % 6, 150));
    return Join(std::move(path),
                MakePath(200 + random() % 8, static_cast<TokenCount>(random() % 400)));
  }
  void Work(std::uint32_t seed, int rounds) {
    std::mt19937 random(seed);
    for (int round = 0; round < rounds; ++round) {
      const auto path = RandomPath(random);
      if (random() % 2 == 0) {
        Record(*cache_, domain_, path);
        continue;
      }
      PrefixMatch match = Lookup(path);
      const TokenCount matched = match.tokens;
      const Restored restored = RestoreAndCheck(*cache_, std::move(match), path);
      if (restored.wrong_byte) ++wrong_;
      if (restored.tokens != matched) ++short_;
    }
  }

  std::atomic<int> wrong_{0};
  std::atomic<int> short_{0};
};

// Proves D55, E15.
TEST_F(CacheStressTest, ServesOnlyRightBytesUnderEvictionAndClear) {
  Open();
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < 4; ++i) threads.emplace_back([this, i] { Work(i + 1, 150); });
  threads.emplace_back([this] {
    for (int i = 0; i < 8; ++i) {
      EXPECT_TRUE(i % 2 == 0 ? cache_->Prune(7 * kMiB, std::nullopt) : cache_->Clear(std::nullopt));
      EXPECT_LE(cache_->GetStatus().disk.used_bytes, options_.disk.budget_bytes);
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong_, 0);
  EXPECT_EQ(short_, 0) << "a leased chain was not served whole";
  ASSERT_TRUE(cache_->Flush());
  const CacheStatus status = cache_->GetStatus();
  EXPECT_EQ(status.disk.quarantined_objects, 0U);
  EXPECT_EQ(status.activity.write_queue_bytes, 0U);
  ASSERT_TRUE(cache_->Clear(std::nullopt));
  EXPECT_EQ(cache_->GetStatus().disk.unique_segments, 0U) << "something still holds a segment";
  EXPECT_EQ(cache_->GetStatus().disk.payload_bytes, 0U);
}

TEST_F(CacheStressTest, LosesNothingBetweenIndexAndDiskOverReopening) {
  Open();
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < 3; ++i) threads.emplace_back([this, i] { Work(i + 11, 60); });
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(cache_->Flush());
  const CacheStatus before = cache_->GetStatus();
  Reopen();
  const CacheStatus after = cache_->GetStatus();
  EXPECT_EQ(after.disk.manifests, before.disk.manifests);
  EXPECT_EQ(after.disk.unique_segments, before.disk.unique_segments);
  EXPECT_EQ(after.disk.payload_bytes, before.disk.payload_bytes);
  EXPECT_EQ(after.reconciliation.removed_orphan_bytes, 0U);
  Work(99, 60);
  EXPECT_EQ(wrong_, 0);
  EXPECT_EQ(short_, 0);
}

}  // namespace
}  // namespace skippy
