// Goal: what is clearly slower than computing is declined, and nothing else is.
#include "engine/cost_model.h"

#include <gtest/gtest.h>

namespace skippy {
namespace {

constexpr std::uint64_t kBytes = 1 << 20;

TEST(CostModelTest, RestoresWhileItKnowsTooLittle) {
  CostModel costs;
  EXPECT_TRUE(costs.ShouldRestore(1000, kBytes, kBytes));
  costs.AddPrefill(1000, 10);
  costs.AddRestore(kBytes, 100000);
  EXPECT_TRUE(costs.ShouldRestore(1000, kBytes, kBytes)) << "one restore may be a hiccup";
  costs.AddRestore(kBytes, 100000);
  EXPECT_FALSE(costs.ShouldRestore(1000, kBytes, kBytes));
}

TEST(CostModelTest, OneFastRestoreOrOneSlowPrefillIsBelieved) {
  CostModel costs;
  costs.AddPrefill(1000, 10);
  costs.AddRestore(kBytes, 100000);
  costs.AddRestore(kBytes, 1);
  EXPECT_TRUE(costs.ShouldRestore(1000, kBytes, kBytes));
  CostModel slow;
  slow.AddPrefill(1000, 10);
  slow.AddPrefill(1000, 100000);
  slow.AddRestore(kBytes, 10000);
  slow.AddRestore(kBytes, 10000);
  EXPECT_TRUE(slow.ShouldRestore(1000, kBytes, kBytes));
}

TEST(CostModelTest, GrowsWithTokensAndBytes) {
  CostModel costs;
  costs.AddPrefill(1000, 1000);
  for (int i = 0; i < 2; ++i) {
    costs.AddRestore(kBytes, 1000);
  }
  EXPECT_TRUE(costs.ShouldRestore(1000, kBytes, kBytes));
  EXPECT_FALSE(costs.ShouldRestore(1000, 4 * kBytes, 4 * kBytes));
  EXPECT_TRUE(costs.ShouldRestore(4000, 4 * kBytes, 4 * kBytes));
}

TEST(CostModelTest, ShortPrefillsSayNothing) {
  CostModel costs;
  costs.AddPrefill(1, 0.001);
  costs.AddRestore(kBytes, 100000);
  costs.AddRestore(kBytes, 100000);
  EXPECT_TRUE(costs.ShouldRestore(1000, kBytes, kBytes));
}

TEST(CostModelTest, TriesAgainNowAndThen) {
  CostModel costs;
  costs.AddPrefill(1000, 10);
  costs.AddRestore(kBytes, 100000);
  costs.AddRestore(kBytes, 100000);
  int tries = 0;
  for (int i = 0; i < 2 * CostModel::kTryEvery; ++i) {
    tries += costs.ShouldRestore(1000, kBytes, kBytes) ? 1 : 0;
  }
  EXPECT_EQ(tries, 2);
  for (int i = 0; i < 8; ++i) {
    costs.AddRestore(kBytes, 1);
  }
  EXPECT_TRUE(costs.ShouldRestore(1000, kBytes, kBytes));
}

TEST(CostModelTest, WhatWasMeasuredAtStartHoldsFromTheFirstRequest) {
  CostModel costs;
  costs.SetPrefill(0.01);
  EXPECT_TRUE(costs.ShouldRestore(1000, kBytes, kBytes)) << "nothing is known of the disk";
  costs.SetDisk(1000.0 / kBytes);
  EXPECT_FALSE(costs.ShouldRestore(1000, kBytes, kBytes));
  EXPECT_TRUE(costs.ShouldRestore(1000, kBytes, kBytes / 100)) << "most of it is in RAM";
  EXPECT_TRUE(costs.ShouldRestore(100000, kBytes, kBytes)) << "computing takes longer";
}

TEST(CostModelTest, WhatRequestsShowedCountsMoreThanTheStart) {
  CostModel costs;
  costs.SetPrefill(0.01);
  costs.SetDisk(1000.0 / kBytes);
  costs.AddRestore(kBytes, 1);
  EXPECT_TRUE(costs.ShouldRestore(1000, kBytes, kBytes)) << "the disk is not that slow";
  costs.AddRestore(kBytes, 1);
  EXPECT_TRUE(costs.ShouldRestore(1000, kBytes, kBytes));
}

}  // namespace
}  // namespace skippy
