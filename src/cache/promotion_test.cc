// Goal: which fills earn a place in RAM (C27, C28). Method: direct calls with a clock of the
// test's.
#include "cache/promotion.h"

#include <gtest/gtest.h>

namespace skippy {
namespace {

using std::chrono::minutes;

PromotionTable::Fill FillOf(std::uint64_t tip, TokenCount tokens = 1000) {
  return {
      .tip = static_cast<SegmentId>(tip), .tokens = tokens, .byte_count = 100, .limit_bytes = 1000};
}

// Proves C27.
TEST(PromotionTableTest, TheSecondFillWithinTenMinutesCounts) {
  PromotionTable table;
  EXPECT_FALSE(table.Observe(FillOf(1), minutes(0)));
  EXPECT_TRUE(table.Observe(FillOf(1), minutes(10)));
  EXPECT_FALSE(table.Observe(FillOf(2), minutes(10)));
  EXPECT_FALSE(table.Observe(FillOf(2), minutes(21)));
}

// Proves C27.
TEST(PromotionTableTest, LongPrefixesCountAtOnce) {
  PromotionTable table;
  EXPECT_FALSE(table.Observe(FillOf(1, 4095), minutes(0)));
  EXPECT_TRUE(table.Observe(FillOf(2, 4096), minutes(0)));
}

// Proves C28.
TEST(PromotionTableTest, AnObservationStaysUntilItWasAttempted) {
  PromotionTable table;
  table.Observe(FillOf(1), minutes(0));
  EXPECT_TRUE(table.Observe(FillOf(1), minutes(1)));
  EXPECT_TRUE(table.Observe(FillOf(1), minutes(2)));
  table.MarkAttempted(static_cast<SegmentId>(1));
  EXPECT_FALSE(table.Observe(FillOf(1), minutes(3)));
}

// Proves C27.
TEST(PromotionTableTest, WhatIsTooLargeIsRememberedAsRefused) {
  PromotionTable table;
  PromotionTable::Fill large = FillOf(1, 5000);
  large.byte_count = 1001;
  EXPECT_FALSE(table.Observe(large, minutes(0)));
  EXPECT_FALSE(table.Observe(FillOf(1), minutes(1)));
  EXPECT_FALSE(table.Observe(FillOf(1), minutes(12)));
  EXPECT_TRUE(table.Observe(FillOf(1), minutes(13)));
}

// Proves C28.
TEST(PromotionTableTest, TheOldestObservationGivesWay) {
  PromotionTable table;
  for (std::uint64_t i = 0; i <= PromotionTable::kMaxObservations; ++i) {
    table.Observe(FillOf(1 + i), minutes(1));
  }
  EXPECT_EQ(table.size(), PromotionTable::kMaxObservations);
  EXPECT_FALSE(table.Observe(FillOf(1), minutes(1)));
  EXPECT_TRUE(table.Observe(FillOf(5), minutes(1)));
}

}  // namespace
}  // namespace skippy
