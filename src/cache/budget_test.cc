// Goal: one budget covers the whole root. Method: plans over a range of budgets, checked by sums.
#include "cache/budget.h"

#include <gtest/gtest.h>

#include <bit>

#include "skippy/options.h"

namespace skippy {
namespace {

// Proves D36.
TEST(BudgetTest, NeverPlansMoreThanTheBudget) {
  for (std::uint64_t budget = 8 * kMiB; budget < 200 * kGiB; budget += budget / 3 + 4097) {
    const auto plan = PlanBudget({.budget_bytes = budget});
    if (!plan) continue;
    EXPECT_LE(plan->catalog_allowance_bytes + plan->pack_capacity_bytes, budget);
    EXPECT_TRUE(std::has_single_bit(plan->pack_bytes));
    EXPECT_EQ(plan->pack_capacity_bytes % plan->pack_bytes, 0U);
  }
}

TEST(BudgetTest, CutsALargeBudgetIntoDefaultPacksAndASmallOneIntoAtLeastEight) {
  EXPECT_EQ(PlanBudget({.budget_bytes = 64 * kGiB})->pack_bytes, 256 * kMiB);
  const auto small = PlanBudget({.budget_bytes = 256 * kMiB});
  EXPECT_GE(small->pack_capacity_bytes / small->pack_bytes, 8U);
}

// Proves D51.
TEST(BudgetTest, RefusesABudgetWithoutRoomForOnePack) {
  const auto plan = PlanBudget({.budget_bytes = 5 * kMiB});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().text.rfind("budget_below_entry_floor", 0), 0U);
}

TEST(BudgetTest, LeavesACatalogThatHasGrownItsBytes) {
  const auto plan = PlanBudget({.budget_bytes = kGiB, .catalog_bytes = 100 * kMiB});
  EXPECT_EQ(plan->catalog_allowance_bytes, 100 * kMiB);
}

// Proves J2.
TEST(BudgetTest, TakesTheSmallestOfTheThreeAutoBounds) {
  EXPECT_EQ(AutoBudgetBytes(100 * kGiB, 0, 16 * kGiB), 20 * kGiB);
  EXPECT_EQ(AutoBudgetBytes(18 * kGiB, 0, 16 * kGiB), 2 * kGiB);
  EXPECT_EQ(AutoBudgetBytes(4096 * kGiB, 0, 16 * kGiB), 64 * kGiB);
  EXPECT_EQ(AutoBudgetBytes(1 * kGiB, 3 * kGiB, 16 * kGiB), 4 * kGiB / 5);
}

}  // namespace
}  // namespace skippy
