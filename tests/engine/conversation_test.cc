// Goal: users of models whose state cannot be cut anywhere pay for new tokens only, too: turn after
// turn, after a restart, after an edit of the last message, and beside each other. Method: the
// whole engine over a real cache root, a generated model of each kind, counts of computed tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "generated_model.h"
#include "identity_probe.h"
#include "skippy/options.h"

namespace skippy {
namespace {

constexpr TokenCount kSystemTokens = 300;
constexpr TokenCount kMessageTokens = 40;
constexpr TokenCount kReplyTokens = 24;
constexpr Token kReplyToken = 5;
// What an edit of the last message may cost beyond the message itself.
constexpr TokenCount kEditSlackTokens = 65;

class ConversationTest : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    const auto written = models_.Write();
    ASSERT_TRUE(written) << written.error().text;
    ASSERT_FALSE(written->empty());
    model_ = written->front();
    const Status sensitive = MakeSensitive(model_);
    ASSERT_TRUE(sensitive) << sensitive.error().text;
    Start();
  }

  void Start() {
    auto cache = OpenDiskCache(models_.Sub("cache"));
    ASSERT_TRUE(cache) << cache.error().text;
    cache_ = std::move(*cache);
    EngineOptions options;
    options.model_path = model_.path;
    options.context_tokens = 2048;
    options.ubatch_tokens = 128;
    options.threads = 1;
    options.gpu_layers = 0;
    auto engine = OpenLlamaEngine(options, cache_.get(), Env::Posix());
    ASSERT_TRUE(engine) << engine.error().text;
    engine_ = std::move(*engine);
    vocabulary_ = engine_->Info().vocabulary;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!engine_->Info().identity_known) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      std::this_thread::yield();
    }
  }

  void Stop() {
    engine_->Stop();
    EXPECT_EQ(engine_->GetStatus().cells_used, 0u);
    EXPECT_EQ(engine_->GetStatus().restores_failed_total, 0u);
    engine_.reset();
    const Status closed = cache_->Close();
    EXPECT_TRUE(closed) << closed.error().text;
    cache_.reset();
  }

  void TearDown() override {
    if (engine_) {
      Stop();
    }
  }

  std::vector<Token> Text(TokenCount count, unsigned seed) const {
    std::mt19937 random(seed);
    std::vector<Token> tokens(static_cast<std::size_t>(count));
    for (Token& token : tokens) {
      token = static_cast<Token>(random() % static_cast<unsigned>(vocabulary_));
    }
    return tokens;
  }

  static std::vector<Token> Join(std::vector<Token> head, const std::vector<Token>& tail) {
    head.insert(head.end(), tail.begin(), tail.end());
    return head;
  }

  std::unique_ptr<Generation> Submit(std::vector<Token> prompt, TokenCount last_message) {
    GenerateRequest request;
    request.prompt = std::move(prompt);
    request.last_user_position = last_message;
    request.max_tokens = kReplyTokens;
    request.sampling.temperature = 0.0F;
    request.sampling.ignore_eos = true;
    // The generated models have no vocabulary to read a reply from: it is given.
    request.sampling.logit_bias = {{kReplyToken, 1e6F}};
    auto generation = engine_->Submit(std::move(request));
    EXPECT_TRUE(generation) << generation.error().text;
    return generation ? std::move(*generation) : nullptr;
  }

  static RequestTimings Collect(Generation& generation) {
    while (true) {
      const auto event = generation.Next(std::chrono::seconds(60));
      if (!event) {
        ADD_FAILURE() << "no event";
        return {};
      }
      if (event->kind == GenerateEvent::Kind::kDone) {
        EXPECT_FALSE(event->error) << event->error->text;
        const RequestTimings& timings = event->timings;
        EXPECT_EQ(timings.generated_tokens, kReplyTokens);
        EXPECT_EQ(timings.prompt_tokens, timings.cached_tokens() + timings.computed_tokens);
        return timings;
      }
    }
  }

  // One more turn of the conversation.
  RequestTimings Say(unsigned seed) {
    const auto before = static_cast<TokenCount>(history_.size());
    history_ = Join(std::move(history_), Text(before == 0 ? kSystemTokens : kMessageTokens, seed));
    const RequestTimings timings = Collect(*Submit(history_, before));
    history_.insert(history_.end(), kReplyTokens, kReplyToken);
    return timings;
  }

  GeneratedModels models_{GetParam()};
  GeneratedModel model_;
  int vocabulary_ = 0;
  std::unique_ptr<Cache> cache_;
  std::unique_ptr<Engine> engine_;
  std::vector<Token> history_;
};

// Proves P9.
TEST_P(ConversationTest, ComputesNewTokensOnlyAlsoAfterARestart) {
  EXPECT_EQ(Say(1).computed_tokens, kSystemTokens);
  for (unsigned turn = 2; turn <= 5; ++turn) {
    EXPECT_LE(Say(turn).computed_tokens, kMessageTokens + 1) << "turn " << turn;
  }
  Stop();
  Start();
  const RequestTimings sixth = Say(6);
  EXPECT_LE(sixth.computed_tokens, kMessageTokens + 1);
  EXPECT_EQ(sixth.cached_l1_tokens, 0);
  EXPECT_GE(sixth.cached_l3_tokens, kSystemTokens);
}

TEST_P(ConversationTest, EditOfTheLastMessageComputesTheMessage) {
  Say(1);
  const std::vector<Token> before = history_;
  Say(2);
  const auto position = static_cast<TokenCount>(before.size());
  const auto edit = [&](unsigned seed) {
    return Collect(*Submit(Join(before, Text(kMessageTokens, seed)), position));
  };
  const RequestTimings resident = edit(3);
  EXPECT_LE(resident.computed_tokens, kMessageTokens + kEditSlackTokens);
  EXPECT_EQ(resident.cached_l3_tokens, 0);
  Stop();
  Start();
  const RequestTimings restored = edit(4);
  EXPECT_LE(restored.computed_tokens, kMessageTokens + kEditSlackTokens);
  EXPECT_EQ(restored.cached_l1_tokens, 0);
}

TEST_P(ConversationTest, RepeatedPromptComputesOneTokenFromMemoryAndFromDisk) {
  const std::vector<Token> prompt = Text(kSystemTokens, 1);
  Collect(*Submit(prompt, 0));
  const RequestTimings resident = Collect(*Submit(prompt, 0));
  EXPECT_EQ(resident.computed_tokens, 1);
  EXPECT_EQ(resident.cached_l1_tokens, kSystemTokens - 1);
  Stop();
  Start();
  const RequestTimings restored = Collect(*Submit(prompt, 0));
  EXPECT_EQ(restored.computed_tokens, 1);
  EXPECT_EQ(restored.cached_l3_tokens, kSystemTokens - 1);
}

TEST_P(ConversationTest, CommonHeadOfRequestsAtOnceIsComputedOnce) {
  constexpr int kRequests = 4;
  const std::vector<Token> head = Text(kSystemTokens, 1);
  std::vector<std::unique_ptr<Generation>> running;
  for (unsigned i = 0; i < kRequests; ++i) {
    running.push_back(Submit(Join(head, Text(kMessageTokens, 10 + i)), 0));
  }
  TokenCount computed = 0;
  for (const auto& generation : running) {
    computed += Collect(*generation).computed_tokens;
  }
  EXPECT_LE(computed, kSystemTokens + kRequests * kMessageTokens + 64);
}

TEST_P(ConversationTest, StateOfAnotherPathIsNeverUsed) {
  Say(1);
  std::vector<Token> other = history_;
  other.front() = (other.front() + 1) % vocabulary_;
  EXPECT_EQ(Collect(*Submit(other, 0)).cached_tokens(), 0);
}

INSTANTIATE_TEST_SUITE_P(Families, ConversationTest,
                         testing::Values("llama", "granitehybrid", "qwen3next", "falcon-h1",
                                         "nemotron_h", "mamba", "mamba2", "gemma2", "gpt-oss",
                                         "deepseek4"),
                         [](const testing::TestParamInfo<std::string_view>& parameter) {
                           std::string name(parameter.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace skippy
