// Goal: aligned, reused and bounded memory. Method: direct calls.
#include "cache/buffer_pool.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace skippy {
namespace {

TEST(BufferPoolTest, GivesAlignedBlocksOfExactlyTheBytesAskedFor) {
  const auto pool = BufferPool::Create({.charged_bytes = 1 << 20, .idle_bytes = 1 << 20});
  const auto buffer = pool->Acquire(5000);
  EXPECT_EQ(buffer->bytes().size(), 5000U);
  EXPECT_EQ(buffer->blocks().size(), 8192U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->bytes().data()) % 4096, 0U);
}

TEST(BufferPoolTest, UsesAReturnedBufferAgain) {
  const auto pool = BufferPool::Create({.charged_bytes = 1 << 20, .idle_bytes = 1 << 20});
  const std::byte* first = pool->Acquire(8000)->bytes().data();
  EXPECT_EQ(pool->idle_bytes(), 8192U);
  EXPECT_EQ(pool->Acquire(6000)->bytes().data(), first);
}

TEST(BufferPoolTest, DoesNotSpendALargeBufferOnASmallRequest) {
  const auto pool = BufferPool::Create({.charged_bytes = 1 << 20, .idle_bytes = 1 << 20});
  pool->Acquire(64 * 1024).reset();
  const auto small = pool->Acquire(100);
  EXPECT_EQ(pool->idle_bytes(), 64U * 1024);
}

TEST(BufferPoolTest, KeepsNoMoreIdleBytesThanAllowed) {
  const auto pool = BufferPool::Create({.charged_bytes = 1 << 20, .idle_bytes = 8192});
  auto a = pool->Acquire(8192);
  auto b = pool->Acquire(8192);
  a.reset();
  b.reset();
  EXPECT_EQ(pool->idle_bytes(), 8192U);
}

// Proves D70.
TEST(BufferPoolTest, RefusesChargedBytesOverTheBoundUntilSomeReturn) {
  const auto pool = BufferPool::Create({.charged_bytes = 16384, .idle_bytes = 0});
  auto a = pool->AcquireCharged(8192);
  auto b = pool->AcquireCharged(8000);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(pool->charged_bytes(), 16384U);
  EXPECT_FALSE(pool->AcquireCharged(1));
  a.reset();
  EXPECT_TRUE(pool->AcquireCharged(1));
}

TEST(BufferPoolTest, BuffersOutliveTheOwnersReference) {
  auto pool = BufferPool::Create({.charged_bytes = 16384, .idle_bytes = 8192});
  auto buffer = pool->AcquireCharged(10);
  pool.reset();
  buffer->bytes()[0] = std::byte{1};
}

}  // namespace
}  // namespace skippy
