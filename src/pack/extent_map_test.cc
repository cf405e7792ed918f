// Goal: the map of free blocks never loses, invents or hands out a block twice. Method: examples,
// and random operations against one bool per block; the seed is printed on failure.
#include "pack/extent_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace skippy {
namespace {

constexpr PackId kPack{1};
constexpr PackId kOther{2};

Extent At(std::uint32_t first_block, std::uint32_t block_count, PackId pack = kPack) {
  return Extent{pack, first_block, block_count};
}

TEST(ExtentMapTest, MergesFreedNeighbours) {
  ExtentMap map;
  map.Add(At(10, 5));
  map.Add(At(20, 5));
  EXPECT_EQ(map.range_count(), 2u);
  map.Add(At(15, 5));
  EXPECT_EQ(map.range_count(), 1u);
  EXPECT_EQ(map.block_count(), 15u);
  EXPECT_TRUE(map.Take(At(10, 15)));
}

TEST(ExtentMapTest, DoesNotMergeAcrossPacks) {
  ExtentMap map;
  map.Add(At(1, 9));
  map.Add(At(10, 5, kOther));
  EXPECT_EQ(map.range_count(), 2u);
  EXPECT_EQ(map.BlocksOf(kPack), 9u);
  EXPECT_EQ(map.BlocksOf(kOther), 5u);
  EXPECT_EQ(map.BlocksOf(PackId{9}), 0u);
}

TEST(ExtentMapTest, PrefersTheSmallestRangeThatFitsAndTheLowestOfThose) {
  ExtentMap map;
  map.Add(At(1, 100));
  map.Add(At(200, 8, kOther));
  map.Add(At(300, 8));
  EXPECT_EQ(map.Allocate(8).value(), ExtentList{At(300, 8)});
  EXPECT_EQ(map.Allocate(7).value(), ExtentList{At(200, 7, kOther)});
  EXPECT_EQ(map.Allocate(50).value(), ExtentList{At(1, 50)});
}

TEST(ExtentMapTest, SplitsOnlyWhenNoRangeFits) {
  ExtentMap map;
  map.Add(At(1, 10));
  map.Add(At(20, 6));
  map.Add(At(40, 3));
  const auto extents = map.Allocate(15);
  EXPECT_EQ(extents.value(), (ExtentList{At(1, 10), At(20, 5)}));
  EXPECT_FALSE(map.Allocate(5));
  EXPECT_EQ(map.block_count(), 4u);
}

TEST(ExtentMapTest, TakesNothingThatIsNotWhollyThere) {
  ExtentMap map;
  map.Add(At(10, 10));
  EXPECT_FALSE(map.Take(At(9, 2)));
  EXPECT_FALSE(map.Take(At(19, 2)));
  EXPECT_FALSE(map.Take(At(12, 0)));
  EXPECT_FALSE(map.Take(At(12, 2, kOther)));
  EXPECT_FALSE(map.Take(At(12, 0xFFFFFFFFu)));
  EXPECT_EQ(map.block_count(), 10u);
}

TEST(ExtentMapTest, NamesThePartsThatAreMissing) {
  ExtentMap map;
  map.Add(At(10, 10));
  EXPECT_EQ(map.PartsMissing(At(5, 20)), (std::vector<Extent>{At(5, 5), At(20, 5)}));
  EXPECT_TRUE(map.PartsMissing(At(12, 3)).empty());
  EXPECT_EQ(map.PartsMissing(At(12, 3, kOther)), (std::vector<Extent>{At(12, 3, kOther)}));
}

TEST(ExtentMapTest, ReachesTheLastBlockNumber) {
  ExtentMap map;
  map.Add(At(0xFFFFFFF0u, 0x10));
  EXPECT_TRUE(map.Take(At(0xFFFFFFFFu, 1)));
  EXPECT_EQ(map.block_count(), 0xFu);
}

// One bool per block of one pack.
class ExtentMapModelTest : public testing::TestWithParam<unsigned> {
 protected:
  static constexpr std::uint32_t kBlocks = 200;

  Extent RandomExtent() {
    const auto first = static_cast<std::uint32_t>(random_() % kBlocks);
    const auto count = static_cast<std::uint32_t>(random_() % (kBlocks - first) % 20 + 1);
    return At(first, std::min(count, kBlocks - first));
  }
  bool All(const Extent& extent, bool value) const {
    const auto first = model_.begin() + extent.first_block;
    return std::all_of(first, first + extent.block_count, [=](bool b) { return b == value; });
  }
  void Set(const Extent& extent, bool value) {
    std::fill_n(model_.begin() + extent.first_block, extent.block_count, value);
  }
  void AddRandom() {
    const Extent extent = RandomExtent();
    if (All(extent, false)) {
      map_.Add(extent);
      Set(extent, true);
    }
  }
  void TakeRandom() {
    const Extent extent = RandomExtent();
    const bool there = All(extent, true);
    ASSERT_EQ(map_.Take(extent), there);
    if (there) {
      Set(extent, false);
    }
  }
  void AllocateRandom() {
    const std::uint64_t wanted = random_() % 40;
    const auto extents = map_.Allocate(wanted);
    ASSERT_EQ(extents.has_value(), wanted <= Count());
    std::uint64_t got = 0;
    for (const Extent& extent : extents.value_or(ExtentList{})) {
      ASSERT_TRUE(All(extent, true));
      Set(extent, false);
      got += extent.block_count;
    }
    ASSERT_EQ(got, extents ? wanted : 0);
  }
  std::uint64_t Count() const {
    return static_cast<std::uint64_t>(std::count(model_.begin(), model_.end(), true));
  }
  std::size_t Runs() const {
    std::size_t runs = 0;
    for (std::uint32_t i = 0; i < kBlocks; ++i) {
      runs += model_[i] && (i == 0 || !model_[i - 1]);
    }
    return runs;
  }

  std::mt19937 random_{GetParam()};
  ExtentMap map_;
  std::vector<bool> model_ = std::vector<bool>(kBlocks, false);
};

TEST_P(ExtentMapModelTest, AgreesWithABitmap) {
  for (int step = 0; step < 3000; ++step) {
    switch (random_() % 4) {
      case 0:
        TakeRandom();
        break;
      case 1:
        AllocateRandom();
        break;
      default:
        AddRandom();
        break;
    }
    ASSERT_EQ(map_.block_count(), Count()) << "seed " << GetParam() << " step " << step;
    ASSERT_EQ(map_.range_count(), Runs()) << "seed " << GetParam() << " step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ExtentMapModelTest, testing::Range(1u, 9u));

}  // namespace
}  // namespace skippy
