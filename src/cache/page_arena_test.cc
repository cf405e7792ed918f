// Goal: memory that is given back is given back, and never handed out twice. Method: random
// allocations are filled with a pattern of their own; residency and locks are asked of the kernel.
#include "cache/page_arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

namespace skippy {
namespace {

constexpr std::size_t kPage = PageArena::kPageBytes;

std::size_t ResidentPages(std::byte* data, std::size_t byte_count) {
  std::vector<unsigned char> pages(byte_count / kPage);
  EXPECT_EQ(mincore(data, byte_count, pages.data()), 0);
  return static_cast<std::size_t>(
      std::ranges::count_if(pages, [](unsigned char page) { return (page & 1) != 0; }));
}

// Resident pages that the kernel has locked, over the whole process.
std::uint64_t LockedBytes() {
  constexpr std::uint64_t kKiB = 1024;
  std::ifstream smaps("/proc/self/smaps");
  std::uint64_t total = 0;
  for (std::string word; smaps >> word;) {
    std::uint64_t kibibytes = 0;
    if (word == "Locked:" && smaps >> kibibytes) total += kibibytes * kKiB;
  }
  return total;
}

TEST(PageArenaTest, LocksWhatIsWrittenAndNothingElseAndFreesItAtOnce) {
  const std::uint64_t before = LockedBytes();
  PageArena arena(/*lock_pages=*/true);
  ASSERT_EQ(arena.lock_error(), "");
  EXPECT_EQ(LockedBytes(), before);
  std::byte* const data = arena.Allocate(64 * kPage);
  std::memset(data, 1, 48 * kPage);
  EXPECT_EQ(LockedBytes(), before + 48 * kPage);
  arena.Free(data + 16 * kPage, 48 * kPage);
  EXPECT_EQ(LockedBytes(), before + 16 * kPage);
  EXPECT_EQ(ResidentPages(data, 64 * kPage), 16U);
  arena.Free(data, 16 * kPage);
  EXPECT_EQ(LockedBytes(), before);
  EXPECT_EQ(arena.Allocate(kPage), data);
}

// In a process of its own: a privilege that was given up does not come back.
TEST(PageArenaTest, WorksUnlockedWhereTheSystemRefusesAndSaysWhy) {
  const auto refused = [] {
    const rlimit none{0, 0};
    if (setrlimit(RLIMIT_MEMLOCK, &none) != 0) return false;
    constexpr uid_t kNobody = 65534;
    if (geteuid() == 0 && setresuid(kNobody, kNobody, kNobody) != 0) return false;
    PageArena arena(/*lock_pages=*/true);
    std::byte* const data = arena.Allocate(kPage);
    std::memset(data, 1, kPage);
    arena.Free(data, kPage);
    return arena.lock_error().find("ulimit -l") != std::string::npos &&
           arena.allocated_bytes() == 0;
  };
  EXPECT_EXIT(std::_Exit(refused() ? 0 : 1), testing::ExitedWithCode(0), "");
}

TEST(PageArenaTest, GivesPagesBackToTheSystem) {
  PageArena arena;
  std::byte* const kept = arena.Allocate(kPage);
  std::byte* const data = arena.Allocate(64 * kPage);
  std::memset(data, 1, 64 * kPage);
  EXPECT_EQ(ResidentPages(data, 64 * kPage), 64U);
  arena.Free(data + 32 * kPage, 32 * kPage);
  EXPECT_EQ(ResidentPages(data, 64 * kPage), 32U);
  arena.Free(data, 32 * kPage);
  EXPECT_EQ(ResidentPages(data, 64 * kPage), 0U);
  EXPECT_EQ(arena.allocated_bytes(), kPage);
  arena.Free(kept, kPage);
}

TEST(PageArenaTest, UsesJoinedHolesAgain) {
  PageArena arena;
  std::byte* const a = arena.Allocate(2 * kPage);
  std::byte* const b = arena.Allocate(3 * kPage);
  std::byte* const c = arena.Allocate(kPage);
  arena.Free(a, 2 * kPage);
  arena.Free(b, 3 * kPage);
  EXPECT_EQ(arena.Allocate(5 * kPage), a);
  arena.Free(a, 5 * kPage);
  arena.Free(c, kPage);
}

TEST(PageArenaTest, NeverHandsOutTheSamePageTwice) {
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  PageArena arena;
  struct Block {
    std::byte* data;
    std::size_t byte_count;
    unsigned char mark;
  };
  std::vector<Block> blocks;
  std::uint64_t live = 0;
  for (int i = 0; i < 4000; ++i) {
    if (blocks.empty() || random() % 5 < 3) {
      const std::size_t byte_count = kPage * (1 + random() % 16);
      const Block block{arena.Allocate(byte_count), byte_count,
                        static_cast<unsigned char>(random())};
      std::memset(block.data, block.mark, byte_count);
      blocks.push_back(block);
      live += byte_count;
    } else {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      const Block block = blocks.back();
      blocks.pop_back();
      for (std::size_t at = 0; at < block.byte_count; at += kPage) {
        ASSERT_EQ(static_cast<unsigned char>(block.data[at]), block.mark) << "seed " << kSeed;
      }
      arena.Free(block.data, block.byte_count);
      live -= block.byte_count;
    }
    ASSERT_EQ(arena.allocated_bytes(), live);
  }
  for (const Block& block : blocks) arena.Free(block.data, block.byte_count);
  EXPECT_EQ(arena.allocated_bytes(), 0U);
}

}  // namespace
}  // namespace skippy
