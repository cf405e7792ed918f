// Goal: the start that a prompt gets is the longest one, never another namespace's, and never costs
// a deeper session its rows.
#include "engine/l1_table.h"

#include <gtest/gtest.h>

#include <numeric>

namespace skippy {
namespace {

class L1TableTest : public ::testing::Test {
 protected:
  std::vector<Token> Tokens(TokenCount count, Token first = 1) {
    std::vector<Token> out(static_cast<std::size_t>(count));
    std::iota(out.begin(), out.end(), first);
    return out;
  }

  // A sequence of `tokens` of which `rows` are computed.
  void Run(int n, std::vector<Token> tokens, TokenCount rows, TokenCount prompt_tokens) {
    Sequence sequence;
    sequence.shareable = true;
    sequence.prompt_tokens = prompt_tokens;
    sequence.tokens = std::move(tokens);
    table_.Start(NthLane(n), std::move(sequence));
    lanes_.Append(NthLane(n), rows);
  }

  std::optional<PrefixSource> Find(const std::vector<Token>& tokens) {
    return table_.FindPrefix("", tokens, static_cast<TokenCount>(tokens.size()) - 1);
  }

  LaneTable lanes_{4, 10000};
  L1Table table_{&lanes_, Leaving::kAnywhere};
};

TEST_F(L1TableTest, RepeatedPromptTakesItsResidentOverUpToTheLastToken) {
  Run(0, Tokens(60), 59, 50);
  table_.Keep(NthLane(0));
  const auto source = Find(Tokens(50));
  ASSERT_TRUE(source);
  EXPECT_EQ(source->tokens, 49);
  EXPECT_TRUE(source->take_over);
}

TEST_F(L1TableTest, OfEquallyGoodSequencesTheOneOfTheSameKeyGoesOn) {
  for (int n = 0; n < 2; ++n) {
    std::vector<Token> tokens = Tokens(60);
    tokens[50] = 1000 + n;
    Run(n, std::move(tokens), 59, 40);
    table_.at(NthLane(n)).affinity_key = n == 0 ? "a" : "b";
    table_.Keep(NthLane(n));
  }
  for (int n = 0; n < 2; ++n) {
    const auto source = table_.FindPrefix("", Tokens(50), 49, n == 0 ? "a" : "b");
    ASSERT_TRUE(source);
    EXPECT_EQ(source->lane, NthLane(n));
    EXPECT_EQ(source->tokens, 49);
  }
  // A key never costs a shorter start.
  EXPECT_EQ(table_.FindPrefix("", table_.at(NthLane(1)).tokens, 58, "a")->lane, NthLane(1));
}

TEST_F(L1TableTest, ShortDivergentPromptLeavesTheDeepSessionAlone) {
  Run(0, Tokens(1000), 999, 990);
  table_.Keep(NthLane(0));
  std::vector<Token> branch = Tokens(100);
  branch.push_back(5000);
  branch.push_back(5001);
  const auto source = Find(branch);
  ASSERT_TRUE(source);
  EXPECT_EQ(source->tokens, 100);
  EXPECT_FALSE(source->take_over);
}

TEST_F(L1TableTest, LongestPrefixWinsOverTheLastUsed) {
  Run(0, Tokens(100), 99, 90);
  Run(1, Tokens(40), 39, 30);
  table_.Keep(NthLane(0));
  table_.Keep(NthLane(1));
  const auto source = Find(Tokens(80));
  ASSERT_TRUE(source);
  EXPECT_EQ(source->lane, NthLane(0));
  EXPECT_EQ(source->tokens, 79);
}

TEST_F(L1TableTest, RunningSequenceSharesOnlyWhatIsComputed) {
  Run(0, Tokens(100), 30, 100);
  const auto source = Find(Tokens(100));
  ASSERT_TRUE(source);
  EXPECT_EQ(source->tokens, 30);
  EXPECT_FALSE(source->take_over);
  EXPECT_EQ(table_.FindPromised("", Tokens(100), 99)->tokens, 99);
  EXPECT_FALSE(table_.FindPromised("", Tokens(30), 29));
}

TEST_F(L1TableTest, NamespacesSeeNothingOfEachOther) {
  Run(0, Tokens(100), 99, 90);
  EXPECT_FALSE(table_.FindPrefix("other", Tokens(50), 49));
  EXPECT_FALSE(table_.FindPromised("other", Tokens(100), 100));
}

TEST_F(L1TableTest, AppendOnlyMemoryContinuesWholeResidentsOnly) {
  L1Table table(&lanes_, Leaving::kAtEnd);
  Sequence sequence;
  sequence.shareable = true;
  sequence.tokens = Tokens(20);
  table.Start(NthLane(0), sequence);
  lanes_.Append(NthLane(0), 19);
  EXPECT_FALSE(table.FindPrefix("", Tokens(40), 39));
  table.Keep(NthLane(0));
  const auto source = table.FindPrefix("", Tokens(40), 39);
  ASSERT_TRUE(source);
  EXPECT_TRUE(source->take_over);
  EXPECT_EQ(source->tokens, 19);
  EXPECT_FALSE(table.FindPrefix("", Tokens(15), 14));
}

TEST_F(L1TableTest, SequencesWithCheckpointsAreLeftThereOrAtTheirEnd) {
  L1Table table(&lanes_, Leaving::kAtCheckpoints);
  Sequence sequence;
  sequence.shareable = true;
  sequence.prompt_tokens = 90;
  sequence.tokens = Tokens(100);
  for (const TokenCount position : {30, 60}) {
    sequence.checkpoints.Add(std::make_shared<const Checkpoint>(Checkpoint{position, {}}));
  }
  table.Start(NthLane(0), sequence);
  lanes_.Append(NthLane(0), 99);
  EXPECT_FALSE(table.FindPrefix("", Tokens(30), 29));
  EXPECT_EQ(table.FindPrefix("", Tokens(50), 49)->tokens, 30);
  EXPECT_EQ(table.FindPrefix("", Tokens(200), 199)->tokens, 60) << "its end still moves";
  table.Keep(NthLane(0));
  const auto whole = table.FindPrefix("", Tokens(200), 199);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->tokens, 99);
  EXPECT_TRUE(whole->take_over);
  EXPECT_FALSE(table.FindPrefix("", Tokens(80), 79)->take_over);
}

TEST_F(L1TableTest, CheckpointsOfIdleSequencesGoBeforeThoseOfRunningOnes) {
  Sequence sequence;
  sequence.tokens = Tokens(10);
  sequence.checkpoints.Add(std::make_shared<const Checkpoint>(Checkpoint{5, {}}));
  for (int n = 0; n < 3; ++n) {
    table_.Start(NthLane(n), sequence);
    lanes_.Append(NthLane(n), 9);
  }
  table_.Keep(NthLane(1));
  EXPECT_EQ(table_.LeastRecentWithCheckpoints(NthLane(0)), NthLane(1));
  table_.Release(NthLane(1));
  EXPECT_EQ(table_.LeastRecentWithCheckpoints(NthLane(0)), NthLane(2));
  table_.Release(NthLane(2));
  EXPECT_EQ(table_.LeastRecentWithCheckpoints(NthLane(0)), NthLane(0));
}

TEST_F(L1TableTest, NamesTheResidentsThatAddNothing) {
  Run(0, Tokens(50), 49, 40);
  Run(1, Tokens(80), 79, 70);
  Run(2, Tokens(20, 900), 19, 10);
  table_.Keep(NthLane(0));
  table_.Keep(NthLane(2));
  table_.Keep(NthLane(1));
  EXPECT_EQ(table_.Redundant(NthLane(1)), std::vector<LaneId>{NthLane(0)});
  EXPECT_EQ(table_.Redundant(NthLane(0)), std::vector<LaneId>{NthLane(0)});
  EXPECT_TRUE(table_.Redundant(NthLane(2)).empty());
}

TEST_F(L1TableTest, EvictsTheLeastRecentResidentFirst) {
  Run(0, Tokens(10), 9, 5);
  Run(1, Tokens(10, 100), 9, 5);
  table_.Keep(NthLane(1));
  table_.Keep(NthLane(0));
  EXPECT_EQ(table_.LeastRecentResident(std::nullopt), NthLane(1));
  EXPECT_EQ(table_.LeastRecentResident(NthLane(1)), NthLane(0));
}

}  // namespace
}  // namespace skippy
