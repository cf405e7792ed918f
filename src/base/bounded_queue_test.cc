// Goal: the queue keeps order, never passes its byte bound and ends cleanly when closed.
// Method: direct calls, and one producer/consumer pair for the blocking side.
#include "base/bounded_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace skippy {
namespace {

TEST(BoundedQueueTest, KeepsOrder) {
  BoundedQueue<int> queue(100);
  EXPECT_TRUE(queue.TryPush(1, 10));
  EXPECT_TRUE(queue.TryPush(2, 10));
  EXPECT_EQ(queue.Pop(), 1);
  EXPECT_EQ(queue.Pop(), 2);
  EXPECT_EQ(queue.TryPop(), std::nullopt);
}

TEST(BoundedQueueTest, RefusesWhatWouldPassTheBoundAndLeavesTheItem) {
  BoundedQueue<std::unique_ptr<int>> queue(100);
  EXPECT_TRUE(queue.TryPush(std::make_unique<int>(1), 60));
  auto refused = std::make_unique<int>(2);
  EXPECT_FALSE(queue.TryPush(std::move(refused), 41));
  ASSERT_NE(refused, nullptr);
  EXPECT_TRUE(queue.TryPush(std::move(refused), 40));
  EXPECT_EQ(queue.waiting_bytes(), 100u);
  EXPECT_FALSE(queue.TryPush(std::make_unique<int>(3), ~std::uint64_t{0}));
  queue.Pop();
  EXPECT_EQ(queue.waiting_bytes(), 40u);
}

TEST(BoundedQueueTest, PopAllTakesEverything) {
  BoundedQueue<int> queue(100);
  queue.TryPush(1, 1);
  queue.TryPush(2, 1);
  EXPECT_EQ(queue.PopAll(), (std::vector<int>{1, 2}));
  EXPECT_EQ(queue.waiting_items(), 0u);
  EXPECT_EQ(queue.waiting_bytes(), 0u);
}

TEST(BoundedQueueTest, ClosedQueueDrainsThenEnds) {
  BoundedQueue<int> queue(100);
  queue.TryPush(7, 1);
  queue.Close();
  EXPECT_FALSE(queue.TryPush(8, 1));
  EXPECT_EQ(queue.Pop(), 7);
  EXPECT_EQ(queue.Pop(), std::nullopt);
  EXPECT_TRUE(queue.PopAll().empty());
}

TEST(BoundedQueueTest, CloseWakesAWaitingConsumer) {
  BoundedQueue<int> queue(100);
  std::vector<int> seen;
  std::thread consumer([&] {
    while (auto item = queue.Pop()) {
      seen.push_back(*item);
    }
  });
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(queue.TryPush(int{i}, 1));
  }
  queue.Close();
  consumer.join();
  EXPECT_EQ(seen.size(), 50u);
}

}  // namespace
}  // namespace skippy
