// Goal: users of models whose state cannot be cut anywhere pay for new tokens only, too: turn after
// turn, after a restart, from RAM, after an edit of the last message, and beside each other.
// Method: the whole engine over a real cache root, a generated model of each kind, counts of
// computed tokens.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "family_engine.h"

namespace skippy {
namespace {

constexpr TokenCount kSystemTokens = 300;
constexpr TokenCount kMessageTokens = 40;
// What an edit of the last message may cost beyond the message itself.
constexpr TokenCount kEditSlackTokens = 65;

class ConversationTest : public FamilyEngineTest {
 protected:
  // One more turn of the conversation.
  RequestTimings Say(unsigned seed) {
    const auto before = static_cast<TokenCount>(history_.size());
    history_ = Join(std::move(history_), Text(before == 0 ? kSystemTokens : kMessageTokens, seed));
    const RequestTimings timings = Collect(*Submit(history_, before));
    history_.insert(history_.end(), kReplyTokens, kReplyToken);
    return timings;
  }

  std::vector<Token> history_;
};

// Proves P9.
TEST_P(ConversationTest, ComputesNewTokensOnlyAlsoAfterARestart) {
  EXPECT_EQ(Say(1).computed_tokens, kSystemTokens);
  for (unsigned turn = 2; turn <= 5; ++turn) {
    EXPECT_LE(Say(turn).computed_tokens, kMessageTokens + 1) << "turn " << turn;
  }
  Stop();
  Start();
  const RequestTimings sixth = Say(6);
  EXPECT_LE(sixth.computed_tokens, kMessageTokens + 1);
  EXPECT_EQ(sixth.cached_l1_tokens, 0);
  EXPECT_GE(sixth.cached_l3_tokens, kSystemTokens);
}

TEST_P(ConversationTest, EditOfTheLastMessageComputesTheMessage) {
  Say(1);
  const std::vector<Token> before = history_;
  Say(2);
  const auto position = static_cast<TokenCount>(before.size());
  const auto edit = [&](unsigned seed) {
    return Collect(*Submit(Join(before, Text(kMessageTokens, seed)), position));
  };
  const RequestTimings resident = edit(3);
  EXPECT_LE(resident.computed_tokens, kMessageTokens + kEditSlackTokens);
  EXPECT_EQ(resident.cached_l3_tokens, 0);
  Stop();
  Start();
  const RequestTimings restored = edit(4);
  EXPECT_LE(restored.computed_tokens, kMessageTokens + kEditSlackTokens);
  EXPECT_EQ(restored.cached_l1_tokens, 0);
}

TEST_P(ConversationTest, RepeatedPromptComputesOneTokenFromMemoryAndFromDisk) {
  const std::vector<Token> prompt = Text(kSystemTokens, 1);
  Collect(*Submit(prompt, 0));
  const RequestTimings resident = Collect(*Submit(prompt, 0));
  EXPECT_EQ(resident.computed_tokens, 1);
  EXPECT_EQ(resident.cached_l1_tokens, kSystemTokens - 1);
  Stop();
  Start();
  const RequestTimings restored = Collect(*Submit(prompt, 0));
  EXPECT_EQ(restored.computed_tokens, 1);
  EXPECT_EQ(restored.cached_l3_tokens, kSystemTokens - 1);
}

TEST_P(ConversationTest, CommonHeadOfRequestsAtOnceIsComputedOnce) {
  constexpr int kRequests = 4;
  const std::vector<Token> head = Text(kSystemTokens, 1);
  std::vector<std::unique_ptr<Generation>> running;
  for (unsigned i = 0; i < kRequests; ++i) {
    running.push_back(Submit(Join(head, Text(kMessageTokens, 10 + i)), 0));
  }
  TokenCount computed = 0;
  for (const auto& generation : running) {
    computed += Collect(*generation).computed_tokens;
  }
  EXPECT_LE(computed, kSystemTokens + kRequests * kMessageTokens + 64);
}

TEST_P(ConversationTest, StateOfAnotherPathIsNeverUsed) {
  Say(1);
  std::vector<Token> other = history_;
  other.front() = (other.front() + 1) % vocabulary_;
  EXPECT_EQ(Collect(*Submit(other, 0)).cached_tokens(), 0);
}

// The same from the RAM tier, without a restart and without a disk.
class ConversationInRamTest : public ConversationTest {
 protected:
  Result<std::unique_ptr<Cache>> OpenCache() override { return OpenRamCache(); }

  void ExpectFromRam(const RequestTimings& timings, TokenCount most_computed) {
    EXPECT_LE(timings.computed_tokens, most_computed);
    EXPECT_GE(timings.cached_l2_tokens, kSystemTokens);
    EXPECT_EQ(timings.cached_l1_tokens, 0);
    EXPECT_EQ(timings.cached_l3_tokens, 0);
    const RamUsage ram = cache_->GetStatus().ram;
    EXPECT_LE(ram.resident_bytes + ram.in_flight_bytes, kRamBudgetBytes);
  }
};

TEST_P(ConversationInRamTest, ComputesNewTokensOnlyWhenTheEngineForgot) {
  for (unsigned turn = 1; turn <= 5; ++turn) Say(turn);
  engine_->ForgetResidents();
  ExpectFromRam(Say(6), kMessageTokens + 1);
}

TEST_P(ConversationInRamTest, EditOfTheLastMessageComputesTheMessage) {
  Say(1);
  const std::vector<Token> before = history_;
  Say(2);
  engine_->ForgetResidents();
  ExpectFromRam(Collect(*Submit(Join(before, Text(kMessageTokens, 3)),
                                static_cast<TokenCount>(before.size()))),
                kMessageTokens + kEditSlackTokens);
}

// Proves C33.
TEST_P(ConversationInRamTest, AModelThatIsUnloadedLeavesNothingInRam) {
  Say(1);
  EXPECT_GT(cache_->GetStatus().ram.resident_bytes, 0U);
  engine_.reset();
  EXPECT_EQ(cache_->GetStatus().ram.resident_bytes, 0U);
  EXPECT_EQ(cache_->GetStatus().ram.entries, 0U);
}

const auto kFamilies =
    testing::Values("llama", "granitehybrid", "qwen3next", "falcon-h1", "nemotron_h", "mamba",
                    "mamba2", "gemma2", "gpt-oss", "deepseek4");
INSTANTIATE_TEST_SUITE_P(Families, ConversationTest, kFamilies, FamilyTestName);
INSTANTIATE_TEST_SUITE_P(Families, ConversationInRamTest, kFamilies, FamilyTestName);

}  // namespace
}  // namespace skippy
