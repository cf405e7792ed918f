// Goal: a restore that ends anywhere leaves the lane on a state that exists: what was there before,
// what came in good (families that can be cut anywhere), or nothing; never rows without their
// state. What is reported as cached is never computed again. Method: the engine over a cache that
// fails after each number of pieces.
#include <utility>
#include <vector>

#include "family_engine.h"

namespace skippy {
namespace {

constexpr TokenCount kHeadTokens = 200;
constexpr TokenCount kPromptTokens = 700;

class RestoreFailureTest : public FamilyEngineTest {
 protected:
  bool CanBeCutAnywhere() const { return model_.family.resume_rule == ResumeRule::kAnyToken; }

  void Restart() {
    Stop();
    Start();
  }

  // With a token more at the end, so that neither run meets what the other one recorded.
  RequestTimings Ask(std::vector<Token> prompt, Token last) {
    prompt.push_back(last);
    return Collect(*Submit(std::move(prompt), 0));
  }
};

// Proves B19.
TEST_P(RestoreFailureTest, NothingIsLeftOfRowsWithoutTheirState) {
  const std::vector<Token> prompt = Text(kPromptTokens, 1);
  Ask(prompt, 1);
  for (int pieces = 0; pieces < 3; ++pieces) {
    SCOPED_TRACE(pieces);
    Restart();
    failing_->FailAfter(pieces);
    const RequestTimings timings = Ask(prompt, 2 + pieces);
    failed_restores_ = 1;
    EXPECT_EQ(timings.cached_l1_tokens, 0);
    if (CanBeCutAnywhere()) {
      EXPECT_EQ(timings.cached_l3_tokens > 0, pieces > 0);
    } else {
      EXPECT_EQ(timings.cached_l3_tokens, 0);
      EXPECT_EQ(timings.computed_tokens, kPromptTokens + 1);
    }
    failing_->FailAfter(-1);
    EXPECT_GE(Ask(prompt, 100 + pieces).cached_l1_tokens, kPromptTokens / 2) << "lane is good";
  }
}

// Proves B19.
TEST_P(RestoreFailureTest, StateThatWasResidentIsStillThere) {
  const std::vector<Token> prompt = Text(kPromptTokens, 1);
  const std::vector<Token> head(prompt.begin(), prompt.begin() + kHeadTokens);
  Ask(prompt, 1);
  Restart();
  // Leaves the head with a reply that the long prompt does not share.
  Collect(*Submit(head, 0));
  failing_->FailAfter(1);
  const RequestTimings timings = Ask(prompt, 2);
  failed_restores_ = 1;
  EXPECT_GE(timings.cached_l1_tokens, kHeadTokens - 1);
  EXPECT_GE(timings.cached_tokens() + timings.computed_tokens, kPromptTokens + 1);
}

// Case A9: what cannot be imported is met once, and recorded anew.
TEST_P(RestoreFailureTest, BytesThatCannotBeUsedAreForgottenByTheFirstWhoMeetsThem) {
  const std::vector<Token> prompt = Text(kPromptTokens, 1);
  Ask(prompt, 1);
  Restart();
  failing_->Truncate(true);
  const RequestTimings first = Ask(prompt, 1);
  failed_restores_ = 1;
  EXPECT_EQ(first.cached_tokens(), 0);
  EXPECT_EQ(cache_->GetStatus().activity.corrupt_entries, 1U);
  EXPECT_EQ(Ask(prompt, 1).cached_l1_tokens, kPromptTokens);
  Restart();
  EXPECT_EQ(Ask(prompt, 1).cached_l3_tokens, kPromptTokens);
  EXPECT_EQ(cache_->GetStatus().activity.corrupt_entries, 0U);
}

INSTANTIATE_TEST_SUITE_P(Families, RestoreFailureTest,
                         testing::Values("llama", "granitehybrid", "mamba2", "gemma2", "deepseek4"),
                         FamilyTestName);

}  // namespace
}  // namespace skippy
