// Goal: the cache is never slower than none for long: where restoring takes longer than computing,
// prompts are computed. Method: restores that begin late, counts of tokens and of decisions.
#include "family_engine.h"

namespace skippy {
namespace {

constexpr TokenCount kPromptTokens = 200;

using SlowRestoreTest = FamilyEngineTest;

TEST_P(SlowRestoreTest, PromptsAreComputedOnceRestoresWereSlow) {
  for (unsigned i = 0; i < 3; ++i) {
    EXPECT_EQ(Collect(*Submit(Text(kPromptTokens, i), 0)).computed_tokens, kPromptTokens);
  }
  engine_->ForgetResidents();
  failing_->Delay(std::chrono::milliseconds(1500));
  for (unsigned i = 0; i < 2; ++i) {
    EXPECT_EQ(Collect(*Submit(Text(kPromptTokens, i), 0)).cached_l3_tokens, kPromptTokens - 1);
  }
  EXPECT_EQ(engine_->GetStatus().declined_because_recompute_faster, 0u);
  EXPECT_EQ(Collect(*Submit(Text(kPromptTokens, 2), 0)).computed_tokens, kPromptTokens);
  EXPECT_EQ(engine_->GetStatus().declined_because_recompute_faster, 1u);
  EXPECT_EQ(engine_->GetStatus().restores_total, 2u);
}

INSTANTIATE_TEST_SUITE_P(Families, SlowRestoreTest, testing::Values("llama"), FamilyTestName);

}  // namespace
}  // namespace skippy
