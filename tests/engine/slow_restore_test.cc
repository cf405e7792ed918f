// Goal: the cache is never slower than none for long: where restoring takes longer than computing,
// prompts are computed. Method: restores that begin late, counts of tokens and of decisions.
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

INSTANTIATE_TEST_SUITE_P(Families, SlowRestoreTest, testing::Values("llama"), FamilyTestName);
INSTANTIATE_TEST_SUITE_P(Families, SlowRestoreFromRamTest, testing::Values("llama"),
                         FamilyTestName);

}  // namespace
}  // namespace skippy
