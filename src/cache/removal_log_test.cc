// Goal: what was removed is found again by its tokens, and only by them. Method: hand-made entries.
#include "cache/removal_log.h"

#include <gtest/gtest.h>

#include "index/prefix_index.h"

namespace skippy {
namespace {

constexpr const char* kNameSpace = "ns";

PathHash HashOf(const StateIdentity& state, std::span<const Token> tokens) {
  PathHasher hasher(state, kNameSpace);
  hasher.Update(tokens);
  return hasher.Finish();
}

class RemovalLogTest : public ::testing::Test {
 protected:
  void Remove(TokenCount end, RemovalCause cause, int at = 1) {
    const auto head = std::span(tokens_).first(static_cast<std::size_t>(end));
    log_.Add({HashOf(state_, head), end, std::chrono::nanoseconds(at), cause});
  }
  std::optional<RemovedPrefix> Find(std::span<const Token> tokens,
                                    const char* name_space = kNameSpace) const {
    return FindRemovedPrefix(log_.entries(), state_, name_space, tokens);
  }

  const StateIdentity state_{{1, 2, 3}};
  const std::vector<Token> tokens_{5, 6, 7, 8, 9, 10};
  RemovalLog log_;
};

TEST_F(RemovalLogTest, FindsTheLongestPrefixOfThePrompt) {
  EXPECT_FALSE(Find(tokens_));
  Remove(4, RemovalCause::kEviction);
  Remove(2, RemovalCause::kClear);
  EXPECT_EQ(Find(tokens_)->tokens, 4);
  EXPECT_EQ(Find(std::span(tokens_).first(3))->tokens, 2);
  EXPECT_FALSE(Find(std::span(tokens_).first(1)));
}

TEST_F(RemovalLogTest, SaysWhatRemovedItLast) {
  Remove(4, RemovalCause::kEviction, 1);
  Remove(4, RemovalCause::kPrune, 2);
  EXPECT_EQ(Find(tokens_)->cause, RemovalCause::kPrune);
  EXPECT_EQ(Find(tokens_)->removed_at, std::chrono::nanoseconds(2));
}

TEST_F(RemovalLogTest, FindsNothingForOtherTokensOrAnotherNamespace) {
  Remove(4, RemovalCause::kEviction);
  EXPECT_FALSE(Find(std::vector<Token>{5, 6, 7, 0, 9, 10}));
  EXPECT_FALSE(Find(tokens_, "other"));
}

TEST_F(RemovalLogTest, ForgetsTheOldestOnes) {
  Remove(4, RemovalCause::kEviction);
  for (std::size_t i = 0; i < RemovalLog::kEntriesMax; ++i) {
    Remove(2, RemovalCause::kEviction);
  }
  EXPECT_EQ(log_.entries().size(), RemovalLog::kEntriesMax);
  EXPECT_EQ(Find(tokens_)->tokens, 2);
}

}  // namespace
}  // namespace skippy
