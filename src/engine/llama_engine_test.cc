// Goal: one engine, many requests: what is computed, what is reused from where, and that nothing is
// left behind. Reuse is asserted by tokens, never by time; in replay mode (one client, nothing else
// resident) text and logprobs must be bit-identical.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "engine/engine_test_support.h"
#include "engine/memory_cache.h"
#include "skippy/options.h"

namespace skippy {
namespace {

using Kind = GenerateEvent::Kind;

struct Reply {
  std::string text;
  std::vector<GeneratedToken> tokens;
  GenerateEvent end;
  bool prompt_done = false;
  const RequestTimings& timings() const { return end.timings; }
};

// Every bit of the numbers counts.
std::string Spell(const GeneratedToken& token) {
  char number[64];
  std::string out;
  const auto add = [&](const TokenLogprob& one) {
    std::snprintf(number, sizeof(number), "%d %a ", one.token, static_cast<double>(one.logprob));
    out += number + one.piece + "; ";
  };
  add(token.chosen);
  std::for_each(token.top.begin(), token.top.end(), add);
  return out;
}

class LlamaEngineTest : public ::testing::Test {
 protected:
  ~LlamaEngineTest() override {
    if (engine_) {
      engine_->Stop();
      EXPECT_EQ(engine_->GetStatus().lanes_busy, 0);
      EXPECT_EQ(engine_->GetStatus().cells_used, 0u);
    }
    engine_.reset();
    EXPECT_EQ(cache_.live_restores(), 0);
    EXPECT_EQ(cache_.live_recordings(), 0);
  }

  void Open(Cache* cache = nullptr) {
    engine_.reset();
    auto opened = OpenLlamaEngine(options_, cache, Env::Posix());
    ASSERT_TRUE(opened) << opened.error().text;
    engine_ = std::move(*opened);
    if (cache != nullptr) {
      WaitUntil([this] { return engine_->Info().identity_known; });
    }
  }

  template <class Condition>
  void WaitUntil(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      std::this_thread::yield();
    }
  }

  std::unique_ptr<Generation> Submit(GenerateRequest request) {
    auto generation = engine_->Submit(std::move(request));
    EXPECT_TRUE(generation) << generation.error().text;
    return generation ? std::move(*generation) : nullptr;
  }

  GenerateRequest Greedy(std::vector<Token> prompt, TokenCount max_tokens) {
    GenerateRequest request;
    request.id = "test";
    request.prompt = std::move(prompt);
    request.max_tokens = max_tokens;
    request.sampling.temperature = 0.0F;
    request.sampling.ignore_eos = true;
    request.top_logprobs = 3;
    return request;
  }

  Reply Collect(Generation& generation) {
    Reply reply;
    while (true) {
      auto event = generation.Next(std::chrono::seconds(60));
      if (!event) {
        ADD_FAILURE() << "no event";
        return reply;
      }
      reply.text += event->text;
      reply.tokens.insert(reply.tokens.end(), event->tokens.begin(), event->tokens.end());
      reply.prompt_done = reply.prompt_done || event->kind == Kind::kPromptDone;
      if (event->kind == Kind::kDone) {
        reply.end = std::move(*event);
        return reply;
      }
    }
  }

  Reply Run(GenerateRequest request) { return Collect(*Submit(std::move(request))); }
  Reply Run(std::vector<Token> prompt, TokenCount max_tokens) {
    return Run(Greedy(std::move(prompt), max_tokens));
  }

  // Waits for the first event of that kind.
  void Await(Generation& generation, Kind kind) {
    while (auto event = generation.Next(std::chrono::seconds(60))) {
      ASSERT_NE(event->kind, Kind::kDone);
      if (event->kind == kind) {
        return;
      }
    }
    ADD_FAILURE() << "no event";
  }

  static void ExpectSameReply(const Reply& a, const Reply& b) {
    EXPECT_EQ(a.text, b.text);
    ASSERT_EQ(a.tokens.size(), b.tokens.size());
    for (std::size_t i = 0; i < a.tokens.size(); ++i) {
      EXPECT_EQ(Spell(a.tokens[i]), Spell(b.tokens[i])) << "token " << i;
    }
  }

  static void ExpectSumOfParts(const RequestTimings& timings) {
    EXPECT_EQ(timings.prompt_tokens, timings.cached_tokens() + timings.computed_tokens);
  }

  static EngineOptions DefaultOptions() {
    EngineOptions options;
    options.model_path = DemoModelPath();
    options.context_tokens = 2048;
    options.threads = 1;
    options.gpu_layers = 0;
    return options;
  }

  EngineOptions options_ = DefaultOptions();
  MemoryCache cache_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(LlamaEngineTest, GeneratesWithoutACache) {
  Open();
  const Reply reply = Run(SomeTokens(50, 1), 8);
  EXPECT_EQ(reply.end.finish, FinishReason::kLength);
  EXPECT_TRUE(reply.prompt_done);
  EXPECT_EQ(reply.timings().generated_tokens, 8);
  EXPECT_EQ(reply.timings().computed_tokens, 50);
  EXPECT_EQ(reply.tokens.size(), 8u);
  EXPECT_FALSE(engine_->Info().identity_known);
  EXPECT_EQ(engine_->Info().family, "full-attention");
}

TEST_F(LlamaEngineTest, RepeatedPromptComputesOneTokenAndAnswersTheSame) {
  Open();
  const std::vector<Token> prompt = SomeTokens(300, 2);
  Run(prompt, 12);
  const Reply second = Run(prompt, 12);
  const Reply third = Run(prompt, 12);
  EXPECT_EQ(second.timings().cached_l1_tokens, 299);
  EXPECT_EQ(second.timings().computed_tokens, 1);
  ExpectSameReply(second, third);
  EXPECT_EQ(engine_->GetStatus().computed_tokens_total, 302u);
}

TEST_F(LlamaEngineTest, NextTurnContinuesItsSession) {
  Open();
  std::vector<Token> prompt = SomeTokens(200, 3);
  const Reply first = Run(prompt, 10);
  for (const GeneratedToken& token : first.tokens) {
    prompt.push_back(token.chosen.token);
  }
  prompt.push_back(400);
  const Reply second = Run(prompt, 4);
  EXPECT_EQ(second.timings().cached_l1_tokens, 209);
  EXPECT_EQ(second.timings().computed_tokens, 2);
  EXPECT_EQ(engine_->GetStatus().resident_sequences, 1);
}

TEST_F(LlamaEngineTest, BranchSharesTheCommonPrefix) {
  Open();
  std::vector<Token> prompt = SomeTokens(300, 4);
  Run(prompt, 4);
  std::fill(prompt.begin() + 120, prompt.end(), 777);
  const Reply branch = Run(prompt, 4);
  EXPECT_EQ(branch.timings().cached_l1_tokens, 120);
  const EngineStatus status = engine_->GetStatus();
  EXPECT_EQ(status.resident_sequences, 2);
  EXPECT_EQ(status.cells_used, 303u + 303u - 120u);
}

// A second thread that computes would get a team of workers of its own, and more workers than cores
// make every barrier of every decode sleep.
TEST_F(LlamaEngineTest, OneTeamOfWorkersComputesFromTheFirstTokenOn) {
  const auto threads = [] {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  };
  options_.threads = 3;
  const auto before = threads();
  Open();
  Run(SomeTokens(20, 7), 2);
  EXPECT_EQ(threads(), before + 1 + 2) << "the engine thread and two workers";
}

TEST_F(LlamaEngineTest, RestartRestoresAllButTheLastTokenBitIdentically) {
  Open(&cache_);
  const std::vector<Token> prompt = SomeTokens(700, 5);
  const Reply cold = Run(prompt, 16);
  EXPECT_EQ(cold.timings().recorded_tokens, 715);
  const Reply warm = Run(prompt, 16);
  EXPECT_EQ(warm.timings().cached_l1_tokens, 699);
  Open(&cache_);
  const Reply restored = Run(prompt, 16);
  EXPECT_EQ(restored.timings().cached_l3_tokens, 699);
  EXPECT_EQ(restored.timings().computed_tokens, 1);
  ExpectSameReply(warm, restored);
  EXPECT_EQ(engine_->GetStatus().restores_total, 1u);
}

TEST_F(LlamaEngineTest, RestartRestoresFromTheDiskStoreBitIdentically) {
  const TestDirectory directory;
  CacheOptions options;
  options.disk.mode = DiskMode::kFixed;
  options.disk.directory = directory.Sub("cache");
  options.disk.budget_bytes = 256 * kMiB;
  options.disk.minimum_free_bytes = kLowestMinimumFreeBytes;
  const auto open_cache = [&options] {
    auto cache = Cache::Open(options, Env::Posix());
    EXPECT_TRUE(cache) << cache.error().text;
    EXPECT_EQ((*cache)->GetStatus().disk_state, TierState::kActive)
        << (*cache)->GetStatus().disk_reason;
    return std::move(*cache);
  };
  const std::vector<Token> prompt = SomeTokens(700, 5);
  std::unique_ptr<Cache> cache = open_cache();
  Open(cache.get());
  Run(prompt, 16);
  const Reply warm = Run(prompt, 16);
  EXPECT_EQ(warm.timings().cached_l1_tokens, 699);
  engine_.reset();
  ASSERT_TRUE(cache->Close());
  cache = open_cache();
  Open(cache.get());
  const Reply restored = Run(prompt, 16);
  EXPECT_EQ(restored.timings().cached_l3_tokens, 699);
  EXPECT_EQ(restored.timings().computed_tokens, 1);
  ExpectSameReply(warm, restored);
  engine_.reset();
}

// Proves B14.
TEST_F(LlamaEngineTest, LongerPrefixBelowExtendsAShortResidentOne) {
  Open(&cache_);
  const std::vector<Token> prompt = SomeTokens(700, 6);
  Run(prompt, 2);
  Open(&cache_);
  Run(std::vector<Token>(prompt.begin(), prompt.begin() + 300), 1);
  const Reply reply = Run(prompt, 2);
  EXPECT_EQ(reply.timings().cached_l1_tokens, 300);
  EXPECT_EQ(reply.timings().cached_l3_tokens, 399);
  ExpectSumOfParts(reply.timings());
}

TEST_F(LlamaEngineTest, FailedRestoreKeepsTheGoodPrefixAndComputesTheRest) {
  Open(&cache_);
  const std::vector<Token> prompt = SomeTokens(700, 7);
  Run(prompt, 4);
  const Reply warm = Run(prompt, 4);
  cache_.FailRestoresAfter(1);
  Open(&cache_);
  const Reply reply = Run(prompt, 4);
  EXPECT_EQ(reply.timings().cached_l3_tokens, 256);
  EXPECT_EQ(reply.timings().computed_tokens, 444);
  EXPECT_EQ(reply.text, warm.text);
  EXPECT_EQ(engine_->GetStatus().restores_failed_total, 1u);
}

TEST_F(LlamaEngineTest, OnlyWhatChangesTheBytesChangesTheDomain) {
  Open(&cache_);
  const std::vector<Token> prompt = SomeTokens(300, 11);
  Run(prompt, 2);
  options_.context_tokens = 1024;
  options_.ubatch_tokens = 128;
  options_.parallel = 2;
  Open(&cache_);
  EXPECT_EQ(Run(prompt, 2).timings().cached_l3_tokens, 299);
  options_.cache_type_k = "q8_0";
  Open(&cache_);
  EXPECT_EQ(Run(prompt, 2).timings().cached_tokens(), 0);
  options_.cache_type_k = "auto";
  options_.flash_attention = "off";
  Open(&cache_);
  EXPECT_EQ(Run(prompt, 2).timings().cached_tokens(), 0);
}

TEST_F(LlamaEngineTest, NamespacesAndRequestsThatDoNotReadShareNothing) {
  Open(&cache_);
  const std::vector<Token> prompt = SomeTokens(300, 8);
  Run(prompt, 2);
  GenerateRequest other = Greedy(prompt, 2);
  other.name_space = "other";
  EXPECT_EQ(Run(other).timings().computed_tokens, 300);
  GenerateRequest cold = Greedy(prompt, 2);
  cold.cache_read = false;
  EXPECT_EQ(Run(cold).timings().computed_tokens, 300);
  other.prompt = SomeTokens(300, 9);
  other.cache_write = false;
  Run(other);
  EXPECT_EQ(Run(other).timings().computed_tokens, 300);
}

TEST_F(LlamaEngineTest, RefusedRecordingDoesNotTouchTheRequest) {
  cache_.RefuseBuffers();
  Open(&cache_);
  const Reply reply = Run(SomeTokens(600, 10), 4);
  EXPECT_EQ(reply.end.finish, FinishReason::kLength);
  EXPECT_EQ(reply.timings().recorded_tokens, 0);
  EXPECT_EQ(cache_.segment_count(), 0u);
}

// Counts only: answers under load may differ from lone ones in near-ties (docs/design).
TEST_F(LlamaEngineTest, MoreRequestsThanLanesAreAllServed) {
  Open();
  std::vector<std::unique_ptr<Generation>> running;
  for (unsigned i = 0; i < 6; ++i) {
    running.push_back(Submit(Greedy(SomeTokens(100 + 30 * i, 20 + i), 6)));
  }
  for (unsigned i = 0; i < 6; ++i) {
    const Reply reply = Collect(*running[i]);
    EXPECT_EQ(reply.end.finish, FinishReason::kLength);
    EXPECT_EQ(reply.timings().generated_tokens, 6);
    EXPECT_EQ(reply.timings().computed_tokens, static_cast<TokenCount>(100 + 30 * i));
  }
  EXPECT_LE(engine_->GetStatus().resident_sequences, 4);
}

TEST_F(LlamaEngineTest, CommonPrefixOfConcurrentRequestsIsComputedOnce) {
  Open(&cache_);
  const std::vector<Token> common = SomeTokens(900, 30);
  std::vector<std::unique_ptr<Generation>> running;
  for (int i = 0; i < 4; ++i) {
    std::vector<Token> prompt = common;
    prompt.push_back(500 + i);
    prompt.push_back(600);
    running.push_back(Submit(Greedy(prompt, 3)));
  }
  TokenCount computed = 0;
  for (const auto& generation : running) {
    const Reply reply = Collect(*generation);
    ExpectSumOfParts(reply.timings());
    computed += reply.timings().computed_tokens;
  }
  EXPECT_EQ(computed, 900 + 4 * 2);
  // Written once, too: the common part with the leader's end in four segments, then the ends of the
  // three followers and the four replies.
  EXPECT_EQ(cache_.segment_count(), 4u + 3u + 4u);
}

// By what each waited for its first token, in the same steps.
TEST_F(LlamaEngineTest, AShortPromptDoesNotWaitForALongOne) {
  options_.context_tokens = 8192;
  Open();
  const auto longer = Submit(Greedy(SomeTokens(6000, 70), 1));
  const auto shorter = Submit(Greedy(SomeTokens(100, 71), 1));
  const Reply short_reply = Collect(*shorter);
  const Reply long_reply = Collect(*longer);
  EXPECT_EQ(long_reply.timings().computed_tokens, 6000);
  EXPECT_LT(short_reply.timings().prefill_ms, long_reply.timings().prefill_ms / 2);
}

TEST_F(LlamaEngineTest, CancelWhileQueuedLeavesNothing) {
  options_.parallel = 1;
  Open();
  auto busy = Submit(Greedy(SomeTokens(1000, 40), 500));
  auto queued = Submit(Greedy(SomeTokens(100, 41), 5));
  queued->Cancel();
  EXPECT_EQ(Collect(*queued).end.finish, FinishReason::kCancelled);
  busy->Cancel();
  EXPECT_EQ(Collect(*busy).end.finish, FinishReason::kCancelled);
  EXPECT_EQ(engine_->GetStatus().cancelled_total, 2u);
}

TEST_F(LlamaEngineTest, CancelWhileRestoringKeepsNoBufferOrLane) {
  options_.resident_sequences_max = 0;
  Open(&cache_);
  const std::vector<Token> prompt = SomeTokens(700, 42);
  Run(prompt, 2);
  cache_.HoldRestores();
  auto generation = Submit(Greedy(prompt, 5));
  ASSERT_TRUE(cache_.WaitForRestore());
  generation.reset();
  WaitUntil([this] { return engine_->GetStatus().lanes_busy == 0 && cache_.live_restores() == 0; });
  EXPECT_EQ(engine_->GetStatus().cells_used, 0u);
  cache_.ReleaseRestores();
  EXPECT_EQ(Run(prompt, 2).timings().cached_l3_tokens, 699);
}

TEST_F(LlamaEngineTest, CancelWhilePrefillingKeepsWhatWasComputed) {
  options_.ubatch_tokens = 64;
  options_.resident_sequences_max = 0;
  Open(&cache_);
  const std::vector<Token> prompt = SomeTokens(1900, 43);
  auto generation = Submit(Greedy(prompt, 5));
  WaitUntil([this] { return cache_.segment_count() > 0; });
  generation.reset();
  WaitUntil([this] { return engine_->GetStatus().lanes_busy == 0; });
  EXPECT_EQ(engine_->GetStatus().cells_used, 0u);
  EXPECT_LT(engine_->GetStatus().computed_tokens_total, 1900u);
  EXPECT_GE(Run(prompt, 1).timings().cached_l3_tokens, 256);
}

TEST_F(LlamaEngineTest, CancelWhileDecodingEndsTheRequest) {
  options_.resident_sequences_max = 0;
  Open();
  auto generation = Submit(Greedy(SomeTokens(50, 44), 1500));
  Await(*generation, Kind::kText);
  generation->Cancel();
  EXPECT_EQ(Collect(*generation).end.finish, FinishReason::kCancelled);
  EXPECT_EQ(engine_->GetStatus().lanes_busy, 0);
  EXPECT_EQ(engine_->GetStatus().cells_used, 0u);
}

TEST_F(LlamaEngineTest, FullQueueRefusesAndChangesNothing) {
  options_.parallel = 1;
  options_.queue_max = 1;
  Open();
  auto running = Submit(Greedy(SomeTokens(50, 50), 1500));
  auto queued = Submit(Greedy(SomeTokens(50, 51), 1));
  const auto refused = engine_->Submit(Greedy(SomeTokens(50, 52), 1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  running->Cancel();
  EXPECT_EQ(Collect(*queued).end.finish, FinishReason::kLength);
  EXPECT_EQ(engine_->GetStatus().requests_total, 2u);
}

TEST_F(LlamaEngineTest, PromptsThatDoNotFitAreRefusedWithBothNumbers) {
  Open();
  const auto refused = engine_->Submit(Greedy(SomeTokens(2048, 53), 1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(refused.error().text.find("context_length_exceeded"), std::string::npos);
  EXPECT_NE(refused.error().text.find("2048"), std::string::npos);
  EXPECT_FALSE(engine_->Submit(Greedy({}, 1)));
  EXPECT_FALSE(engine_->Submit(Greedy({1 << 20}, 1)));
}

TEST_F(LlamaEngineTest, ReplyEndsWithTheContext) {
  options_.context_tokens = 256;
  Open();
  const Reply reply = Run(SomeTokens(250, 54), -1);
  EXPECT_EQ(reply.end.finish, FinishReason::kLength);
  EXPECT_EQ(reply.timings().generated_tokens, 6);
}

TEST_F(LlamaEngineTest, RequestsThatOutgrowTheCellsTakeTurns) {
  options_.context_tokens = 512;
  options_.parallel = 3;
  Open();
  std::vector<std::unique_ptr<Generation>> running;
  for (unsigned i = 0; i < 3; ++i) {
    running.push_back(Submit(Greedy(SomeTokens(90, 60 + i), 250)));
  }
  for (const auto& generation : running) {
    const Reply reply = Collect(*generation);
    EXPECT_EQ(reply.end.finish, FinishReason::kLength);
    EXPECT_EQ(reply.timings().generated_tokens, 250);
    ExpectSumOfParts(reply.timings());
  }
}

TEST_F(LlamaEngineTest, ResidentsGiveWayToLiveRequests) {
  options_.context_tokens = 1024;
  Open();
  for (unsigned i = 0; i < 4; ++i) {
    Run(SomeTokens(240, 70 + i), 2);
  }
  EXPECT_EQ(engine_->GetStatus().resident_sequences, 4);
  const Reply reply = Run(SomeTokens(900, 80), 4);
  EXPECT_EQ(reply.end.finish, FinishReason::kLength);
  EXPECT_LE(engine_->GetStatus().cells_used, 1024u);
}

TEST_F(LlamaEngineTest, PromptOnlyRequestsRecordWithoutAReply) {
  Open(&cache_);
  const Reply reply = Run(SomeTokens(300, 81), 0);
  EXPECT_EQ(reply.end.finish, FinishReason::kLength);
  EXPECT_EQ(reply.timings().generated_tokens, 0);
  EXPECT_EQ(reply.timings().recorded_tokens, 300);
  EXPECT_EQ(cache_.published(), std::vector<TokenCount>{300});
}

TEST_F(LlamaEngineTest, StopStringEndsTheReplyAndIsNamed) {
  Open();
  GenerateRequest request = Greedy(SomeTokens(60, 82), 40);
  const std::string text = Run(request).text;
  ASSERT_GT(text.size(), 8u);
  request.stop = {text.substr(4, 3)};
  const Reply reply = Run(request);
  EXPECT_EQ(reply.end.finish, FinishReason::kStop);
  EXPECT_EQ(reply.end.stop_string, request.stop.front());
  EXPECT_EQ(reply.text, text.substr(0, text.find(request.stop.front())));
}

TEST_F(LlamaEngineTest, StopEndsEverybodyAndRefusesNewRequests) {
  Open(&cache_);
  auto generation = Submit(Greedy(SomeTokens(300, 83), 1500));
  Await(*generation, Kind::kText);
  engine_->Stop();
  EXPECT_EQ(Collect(*generation).end.finish, FinishReason::kCancelled);
  const auto refused = engine_->Submit(Greedy(SomeTokens(10, 84), 1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  ASSERT_FALSE(cache_.published().empty());
  EXPECT_GE(cache_.published().back(), 300);
}

TEST_F(LlamaEngineTest, UnreadableModelIsOneClearError) {
  options_.model_path = "/nonexistent/model.gguf";
  const auto opened = OpenLlamaEngine(options_, nullptr, Env::Posix());
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().text.find("/nonexistent/model.gguf"), std::string::npos);
}

}  // namespace
}  // namespace skippy
