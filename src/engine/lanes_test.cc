// Goal: the table counts shared cells once and never loses one, whatever the order of operations.
#include "engine/lanes.h"

#include <gtest/gtest.h>

#include <random>

namespace skippy {
namespace {

TEST(LaneTableTest, CountsSharedCellsOnce) {
  LaneTable table(3, 100);
  table.Append(NthLane(0), 10);
  table.Share(NthLane(0), NthLane(1), 6);
  table.Append(NthLane(1), 4);
  EXPECT_EQ(table.cells_used(), 14u);
  EXPECT_EQ(table.CellsHeldBy({NthLane(1)}), 10u);
  EXPECT_EQ(table.CellsHeldBy({NthLane(0), NthLane(1)}), 14u);
}

TEST(LaneTableTest, FreesACellWithItsLastHolder) {
  LaneTable table(2, 100);
  table.Append(NthLane(0), 10);
  table.Share(NthLane(0), NthLane(1), 10);
  table.Truncate(NthLane(0), 0);
  EXPECT_EQ(table.cells_used(), 10u);
  table.Truncate(NthLane(1), 3);
  EXPECT_EQ(table.cells_used(), 3u);
  EXPECT_EQ(table.cells_free(), 97u);
  EXPECT_EQ(table.Length(NthLane(1)), 3);
}

TEST(LaneTableTest, ReturnsEveryCellAfterRandomOperations) {
  const unsigned seed = 7;
  std::mt19937 random(seed);
  LaneTable table(6, 10000);
  for (int i = 0; i < 2000; ++i) {
    const LaneId lane = NthLane(static_cast<int>(random() % 6));
    const LaneId other = NthLane(static_cast<int>(random() % 6));
    if (table.Length(lane) == 0 && lane != other) {
      table.Share(other, lane, static_cast<TokenCount>(random() % (table.Length(other) + 1)));
    } else if (random() % 3 == 0) {
      table.Truncate(lane, static_cast<TokenCount>(random() % (table.Length(lane) + 1)));
    } else if (table.Length(lane) < 500) {
      table.Append(lane, static_cast<TokenCount>(random() % 40));
    }
    std::vector<LaneId> all;
    for (int n = 0; n < 6; ++n) {
      all.push_back(NthLane(n));
    }
    ASSERT_EQ(table.cells_used(), table.CellsHeldBy(all)) << "seed " << seed << " step " << i;
  }
  for (int n = 0; n < 6; ++n) {
    table.Truncate(NthLane(n), 0);
  }
  EXPECT_EQ(table.cells_used(), 0u);
}

TEST(LaneTableTest, ASharedCellIsEachHoldersInPart) {
  LaneTable lanes(3, 100);
  lanes.Append(NthLane(0), 10);
  EXPECT_DOUBLE_EQ(lanes.CellShare(NthLane(0)), 10);
  lanes.Share(NthLane(0), NthLane(1), 6);
  lanes.Append(NthLane(1), 2);
  EXPECT_DOUBLE_EQ(lanes.CellShare(NthLane(0)), 4 + 3);
  EXPECT_DOUBLE_EQ(lanes.CellShare(NthLane(1)), 2 + 3);
  EXPECT_DOUBLE_EQ(lanes.CellShare(NthLane(2)), 0);
}

}  // namespace
}  // namespace skippy
