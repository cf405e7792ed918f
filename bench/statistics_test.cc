// Goal: figures that benches print are computed right. Method: small samples by hand.
#include "bench/statistics.h"

#include <gtest/gtest.h>

namespace skippy::bench {
namespace {

TEST(StatisticsTest, InterpolatesBetweenSamples) {
  EXPECT_DOUBLE_EQ(Median({4, 1, 3, 2}), 2.5);
  EXPECT_DOUBLE_EQ(Median({5, 1, 3}), 3);
  EXPECT_DOUBLE_EQ(Quantile({10, 20}, 0.1), 11);
  EXPECT_DOUBLE_EQ(Quantile({7}, 0.9), 7);
  EXPECT_DOUBLE_EQ(Median({}), 0);
}

TEST(StatisticsTest, AlignsColumnsOfTheTable) {
  EXPECT_EQ(FormatTable({{"", "ms"}, {"cold", "12.5"}}), "        ms\ncold  12.5\n");
}

}  // namespace
}  // namespace skippy::bench
