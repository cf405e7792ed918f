// Goal: whatever a client cancels, wherever its request is, nothing of it stays: no lane, no cell,
// no lease, no buffer; and the next request is served. Method: a thousand requests with common
// beginnings in all families, more at once than there are lanes and in fewer cells than they want,
// cancelled at random moments between submission and end.
#include <deque>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "family_engine.h"

namespace skippy {
namespace {

constexpr int kCancels = 200;
constexpr std::size_t kAtOnce = 6;
constexpr unsigned kSeed = 20260801;

class CancellationTest : public FamilyEngineTest {
 protected:
  CancellationTest() {
    options_.context_tokens = 1024;
    options_.ubatch_tokens = 64;
    options_.parallel = 3;
    options_.resident_sequences_max = 2;
  }

  // Of few beginnings, so that requests meet each other's running, resident and recorded state.
  std::vector<Token> SomePrompt() {
    const TokenCount head = 64 + static_cast<TokenCount>(random_() % 300);
    const std::vector<Token> path = Text(head, 1 + static_cast<unsigned>(random_() % 3));
    return Join(path, Text(1 + static_cast<TokenCount>(random_() % 60),
                           static_cast<unsigned>(random_() % 1000)));
  }

  // A moment that has nothing to do with what the engine is doing.
  void LetTimePass() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(random_() % 6000);
    while (std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
  }

  // The status is that of the last step.
  template <class Condition>
  void WaitFor(const char* what, Condition condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition(engine_->GetStatus())) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << what;
      std::this_thread::yield();
    }
  }

  void ExpectNothingInUse() {
    WaitFor("lanes", [](const EngineStatus& status) {
      return status.requests_total == kCancels && status.lanes_busy == 0 && status.queued == 0;
    });
    engine_->ForgetResidents();
    WaitFor("cells", [](const EngineStatus& status) {
      return status.resident_sequences == 0 && status.cells_used == 0;
    });
    ASSERT_TRUE(cache_->Flush());
    EXPECT_EQ(cache_->GetStatus().activity.write_queue_bytes, 0u);
    // What a lease or a recording still held would stay.
    const auto cleared = cache_->Clear(std::nullopt);
    ASSERT_TRUE(cleared) << cleared.error().text;
    EXPECT_EQ(cache_->GetStatus().disk.unique_segments, 0u);
    EXPECT_EQ(cache_->GetStatus().disk.manifests, 0u);
  }

  std::mt19937 random_{kSeed};
};

// Proves F11.
TEST_P(CancellationTest, LeavesNothingBehindWhereverItHappens) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::deque<std::unique_ptr<Generation>> running;
  for (int i = 0; i < kCancels; ++i) {
    if (i % 50 == 49) {
      engine_->ForgetResidents();  // what follows is restored
    }
    const std::vector<Token> prompt = SomePrompt();
    running.push_back(Submit(prompt, static_cast<TokenCount>(random_() % prompt.size())));
    if (running.size() == kAtOnce) {
      LetTimePass();
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(random_() % kAtOnce));
    }
  }
  running.clear();
  ExpectNothingInUse();
  EXPECT_GT(engine_->GetStatus().cancelled_total, 0u);
  EXPECT_GT(engine_->GetStatus().restores_total, 0u);
  EXPECT_EQ(Collect(*Submit(Text(300, 99), 0)).computed_tokens, 300);
}

INSTANTIATE_TEST_SUITE_P(Families, CancellationTest,
                         testing::Values("llama", "granitehybrid", "mamba2", "gemma2", "deepseek4"),
                         FamilyTestName);

}  // namespace
}  // namespace skippy
