// Goal: idle sequences pay for the cells that every step looks at, and leave for a tier below once
// that cost more than bringing them back: nothing of them is computed again. Method: a session
// stays idle beside a busy client; counts of tokens, of moves and of cells, never of time.
#include "family_engine.h"

namespace skippy {
namespace {

constexpr TokenCount kSessionTokens = 600;
constexpr TokenCount kNewTokens = 30;
constexpr int kRequestsMax = 3000;

class IdleSequencesTest : public FamilyEngineTest {
 protected:
  Result<std::unique_ptr<Cache>> OpenCache() override { return OpenRamCache(); }

  std::uint64_t Moved() const { return engine_->GetStatus().idle_sequences_moved_total; }
  // The busy client repeats one prompt; at most `requests_max` times, until something moved.
  void KeepBusy(int requests_max) {
    const std::vector<Token> prompt = Text(40, 77);
    for (int i = 0; i < requests_max && Moved() == 0; ++i) {
      Collect(*Submit(prompt, 0));
    }
  }
};

TEST_P(IdleSequencesTest, MoveBelowAndComeBackWithoutBeingComputedAgain) {
  const std::vector<Token> session = Text(kSessionTokens, 1);
  Collect(*Submit(session, 0));
  KeepBusy(kRequestsMax);
  ASSERT_EQ(Moved(), 1U);
  EXPECT_LT(engine_->GetStatus().resident_tokens, kSessionTokens);
  std::vector<Token> next = session;
  next.insert(next.end(), kReplyTokens - 1, kReplyToken);  // the last token has no row yet
  next = Join(next, Text(kNewTokens, 2));
  const RequestTimings turn = Collect(*Submit(next, 0));
  EXPECT_EQ(turn.computed_tokens, kNewTokens);
  EXPECT_EQ(turn.cached_l2_tokens, kSessionTokens + kReplyTokens - 1);
}

INSTANTIATE_TEST_SUITE_P(Families, IdleSequencesTest,
                         testing::Values("llama", "gemma2", "granitehybrid"), FamilyTestName);

class IdleSequencesThatCannotComeBackTest : public IdleSequencesTest {
 protected:
  // Too small for the session.
  Result<std::unique_ptr<Cache>> OpenCache() override {
    CacheOptions options;
    options.ram.budget_bytes = 64 * kKiB;
    return Cache::Open(options, Env::Posix());
  }
};

TEST_P(IdleSequencesThatCannotComeBackTest, StayInTheEngine) {
  const std::vector<Token> session = Text(kSessionTokens, 1);
  Collect(*Submit(session, 0));
  KeepBusy(400);
  std::vector<Token> next = session;
  next.insert(next.end(), kReplyTokens - 1, kReplyToken);
  const RequestTimings turn = Collect(*Submit(Join(next, Text(kNewTokens, 2)), 0));
  EXPECT_EQ(turn.cached_l1_tokens, kSessionTokens + kReplyTokens - 1);
}

INSTANTIATE_TEST_SUITE_P(Families, IdleSequencesThatCannotComeBackTest, testing::Values("llama"),
                         FamilyTestName);

}  // namespace
}  // namespace skippy
