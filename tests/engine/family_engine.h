// The whole engine with a generated model over a real cache root; stopped and started like a
// server.
#pragma once

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
#include "failing_cache.h"
#include "generated_model.h"
#include "identity_probe.h"
#include "skippy/options.h"

namespace skippy {

// The generated models have no vocabulary to read a reply from: it is this token, again and again.
inline constexpr Token kReplyToken = 5;
inline constexpr TokenCount kReplyTokens = 24;

class FamilyEngineTest : public testing::TestWithParam<std::string_view> {
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

  virtual Result<std::unique_ptr<Cache>> OpenCache() { return OpenDiskCache(models_.Sub("cache")); }

  // RAM alone, for tests that override OpenCache.
  static constexpr std::uint64_t kRamBudgetBytes = 64 * kMiB;
  static Result<std::unique_ptr<Cache>> OpenRamCache() {
    CacheOptions options;
    options.ram.budget_bytes = kRamBudgetBytes;
    return Cache::Open(options, Env::Posix());
  }

  void Start() {
    auto cache = OpenCache();
    ASSERT_TRUE(cache) << cache.error().text;
    cache_ = std::move(*cache);
    options_.model_path = model_.path;
    options_.threads = 1;
    options_.gpu_layers = 0;
    failing_ = std::make_unique<FailingCache>(cache_.get());
    auto engine = OpenLlamaEngine(options_, failing_.get(), Env::Posix());
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
    EXPECT_EQ(engine_->GetStatus().restores_failed_total, failed_restores_);
    failed_restores_ = 0;
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
    request.id = "test";
    request.prompt = std::move(prompt);
    request.last_user_position = last_message;
    request.max_tokens = kReplyTokens;
    request.sampling.temperature = 0.0F;
    request.sampling.ignore_eos = true;
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

  static EngineOptions DefaultOptions() {
    EngineOptions options;
    options.context_tokens = 2048;
    options.ubatch_tokens = 128;
    return options;
  }

  GeneratedModels models_{GetParam()};
  GeneratedModel model_;
  EngineOptions options_ = DefaultOptions();
  int vocabulary_ = 0;
  std::unique_ptr<Cache> cache_;
  std::unique_ptr<FailingCache> failing_;  // over the cache; fails when told
  std::unique_ptr<Engine> engine_;
  std::uint64_t failed_restores_ = 0;  // expected when the engine stops
};

inline std::string FamilyTestName(const testing::TestParamInfo<std::string_view>& parameter) {
  std::string name(parameter.param);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace skippy
