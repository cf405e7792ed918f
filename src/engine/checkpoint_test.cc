// Goal: checkpoints are taken where prompts are left, and the deepest usable one is found.
#include "engine/checkpoint.h"

#include <gtest/gtest.h>

namespace skippy {
namespace {

CheckpointPtr At(TokenCount position) {
  return std::make_shared<const Checkpoint>(Checkpoint{position, {}});
}

std::vector<TokenCount> Rungs(const CheckpointLadder& ladder) {
  std::vector<TokenCount> out;
  for (auto rung = ladder.Next(0); rung; rung = ladder.Next(*rung)) {
    out.push_back(*rung);
  }
  return out;
}

TEST(CheckpointListTest, FindsTheDeepestAtOrBeforeAPosition) {
  CheckpointList list;
  for (const TokenCount position : {300, 100, 200}) {
    list.Add(At(position));
  }
  EXPECT_EQ(list.Deepest(99), nullptr);
  EXPECT_EQ(list.Deepest(100)->position, 100);
  EXPECT_EQ(list.Deepest(299)->position, 200);
  EXPECT_EQ(list.UpTo(200).items().size(), 2u);
  EXPECT_TRUE(list.Has(300));
  EXPECT_FALSE(list.Has(301));
}

TEST(CheckpointListTest, KeepsTheFirstOfTwoAtOnePosition) {
  CheckpointList list;
  const CheckpointPtr first = At(10);
  list.Add(first);
  list.Add(At(10));
  ASSERT_EQ(list.items().size(), 1u);
  EXPECT_EQ(list.items().front(), first);
}

TEST(CheckpointLadderTest, StopsBeforeTheLastMessageTheLastTokenAndAtPowersOfTwo) {
  EXPECT_EQ(Rungs(CheckpointLadder(1000, 900, true)),
            (std::vector<TokenCount>{256, 512, 900, 999}));
  EXPECT_EQ(Rungs(CheckpointLadder(1000, 900, false)), (std::vector<TokenCount>{900, 999}));
  EXPECT_EQ(Rungs(CheckpointLadder(2, 0, true)), (std::vector<TokenCount>{1}));
  EXPECT_TRUE(Rungs(CheckpointLadder(1, 0, true)).empty());
}

TEST(CheckpointLadderTest, GrowsWithTheLogarithmOfThePrompt) {
  EXPECT_LE(Rungs(CheckpointLadder(1 << 20, 1000, true)).size(), 14u);
}

TEST(CheckpointLadderTest, StopsWhereAnotherRequestLeavesThePrompt) {
  CheckpointLadder ladder(1000, 0, false);
  ladder.Want(640);
  ladder.Want(640);
  EXPECT_EQ(Rungs(ladder), (std::vector<TokenCount>{640, 999}));
  EXPECT_TRUE(ladder.IsRung(640));
  EXPECT_FALSE(ladder.Next(999));
}

}  // namespace
}  // namespace skippy
