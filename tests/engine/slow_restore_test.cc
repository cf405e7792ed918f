// Goal: the cache is never slower than none for long: where restoring takes longer than computing,
// prompts are computed. Method: restores that begin late, counts of tokens and of decisions.
#include <atomic>

#include "base/mutex.h"
#include "env/fault_env.h"
#include "family_engine.h"

namespace skippy {
namespace {

constexpr TokenCount kPromptTokens = 200;

class SlowRestoreTest : public FamilyEngineTest {
 protected:
  void ComputesOnceRestoresWereSlow();
};

class SlowRestoreFromRamTest : public SlowRestoreTest {
 protected:
  Result<std::unique_ptr<Cache>> OpenCache() override { return OpenRamCache(); }
};

void SlowRestoreTest::ComputesOnceRestoresWereSlow() {
  for (unsigned i = 0; i < 3; ++i) {
    EXPECT_EQ(Collect(*Submit(Text(kPromptTokens, i), 0)).computed_tokens, kPromptTokens);
  }
  engine_->ForgetResidents();
  failing_->Delay(std::chrono::milliseconds(1500));
  for (unsigned i = 0; i < 2; ++i) {
    EXPECT_EQ(Collect(*Submit(Text(kPromptTokens, i), 0)).cached_tokens(), kPromptTokens - 1);
  }
  EXPECT_EQ(engine_->GetStatus().declined_because_recompute_faster, 0u);
  EXPECT_EQ(Collect(*Submit(Text(kPromptTokens, 2), 0)).computed_tokens, kPromptTokens);
  EXPECT_EQ(engine_->GetStatus().declined_because_recompute_faster, 1u);
  EXPECT_EQ(engine_->GetStatus().restores_total, 2u);
}

TEST_P(SlowRestoreTest, PromptsAreComputedOnceRestoresWereSlow) { ComputesOnceRestoresWereSlow(); }

// Proves C35: RAM has no privilege over computing.
TEST_P(SlowRestoreFromRamTest, PromptsAreComputedOnceRestoresWereSlow) {
  ComputesOnceRestoresWereSlow();
  EXPECT_EQ(engine_->GetStatus().cached_l3_tokens_total, 0u);
  EXPECT_GT(engine_->GetStatus().cached_l2_tokens_total, 0u);
}

// The cache over a file system of its own, whose every read of a pack takes a while once told so.
class SlowDiskTest : public FamilyEngineTest {
 protected:
  static constexpr std::chrono::milliseconds kReadTime{500};
  static constexpr TokenCount kLongTokens = 4000;

  SlowDiskTest() {
    disk_.SetHook([this](const FileOp& op) {
      if (op.kind == FileOpKind::kRead && op.path.find("pack-") != std::string::npos) {
        ++pack_reads_;
        if (is_slow_) WaitFor(kReadTime);
      }
    });
    options_.context_tokens = 2 * kLongTokens;
  }
  Result<std::unique_ptr<Cache>> OpenCache() override {
    CacheOptions options;
    options.disk.mode = DiskMode::kFixed;
    options.disk.directory = "/root";
    options.disk.budget_bytes = 256 * kMiB;
    options.disk.minimum_free_bytes = kGiB;
    return Cache::Open(options, &disk_);
  }
  // Of one reading thread: the others wait for themselves.
  static void WaitFor(std::chrono::milliseconds time) {
    Mutex mu;
    CondVar never;
    MutexLock lock(mu);
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
      never.WaitFor(mu, end - std::chrono::steady_clock::now());
    }
  }

  FaultEnv disk_;
  std::atomic<bool> is_slow_ = false;
  std::atomic<int> pack_reads_ = 0;
};

TEST_P(SlowDiskTest, TheFirstRequestAfterARestartIsComputed) {
  const std::vector<Token> prompt = Text(kLongTokens, 1);
  EXPECT_EQ(Collect(*Submit(prompt, 0)).computed_tokens, kLongTokens);
  ASSERT_TRUE(cache_->Flush());
  Stop();
  is_slow_ = true;
  Start();
  const int reads_before = pack_reads_;
  const RequestTimings first = Collect(*Submit(prompt, 0));
  EXPECT_EQ(first.computed_tokens, kLongTokens);
  EXPECT_EQ(pack_reads_, reads_before) << "nothing is read for a prompt that is computed";
  EXPECT_EQ(engine_->GetStatus().declined_because_recompute_faster, 1u);
  EXPECT_EQ(cache_->GetStatus().activity.bytes_read, 0u);
}

TEST_P(SlowDiskTest, AFastDiskIsUsedFromTheFirstRequestOn) {
  const std::vector<Token> prompt = Text(kLongTokens, 1);
  Collect(*Submit(prompt, 0));
  ASSERT_TRUE(cache_->Flush());
  Stop();
  Start();
  EXPECT_EQ(Collect(*Submit(prompt, 0)).computed_tokens, 1);
  EXPECT_EQ(engine_->GetStatus().declined_because_recompute_faster, 0u);
}

INSTANTIATE_TEST_SUITE_P(Families, SlowDiskTest, testing::Values("llama"), FamilyTestName);
INSTANTIATE_TEST_SUITE_P(Families, SlowRestoreTest, testing::Values("llama"), FamilyTestName);
INSTANTIATE_TEST_SUITE_P(Families, SlowRestoreFromRamTest, testing::Values("llama"),
                         FamilyTestName);

}  // namespace
}  // namespace skippy
