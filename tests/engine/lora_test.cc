// Goal: state that was computed under one set of adapters and scales is never used under another,
// in any tier, and comes back under the same one. Method: the demo model with adapters written
// here, over one cache root; every bit of the logprobs counts.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/engine_test_support.h"
#include "identity_probe.h"
#include "model_writer/gguf_output.h"

namespace skippy {
namespace {

constexpr std::int64_t kRank = 2;
constexpr TokenCount kPromptTokens = 300;

using Adapters = std::vector<std::pair<std::string, float>>;

struct Answer {
  RequestTimings timings;
  std::vector<std::pair<Token, float>> logprobs;
};

// Adds something random to what the first layer asks for and keeps.
Status WriteAdapter(const std::string& path, unsigned seed) {
  GgmlPtr tensors;
  SKIPPY_ASSIGN_OR_RETURN(const GgufPtr model, ReadGguf(DemoModelPath(), &tensors));
  GgufOutput adapter;
  gguf_set_val_str(adapter.metadata(), "general.type", "adapter");
  gguf_set_val_str(adapter.metadata(), "general.architecture", "llama");
  gguf_set_val_str(adapter.metadata(), "adapter.type", "lora");
  gguf_set_val_f32(adapter.metadata(), "adapter.lora.alpha", static_cast<float>(kRank));
  std::mt19937 random(seed);
  const auto fill = [&random](std::span<float> values) {
    for (float& value : values) {
      value = static_cast<float>(random() % 2001) / 1000.0F - 1.0F;
    }
  };
  for (const std::string name : {"blk.0.attn_q.weight", "blk.0.attn_v.weight"}) {
    const ggml_tensor* tensor = ggml_get_tensor(tensors.get(), name.c_str());
    if (tensor == nullptr) {
      return MakeError(ErrorCode::kNotFound, name);
    }
    adapter.AddTensor(name + ".lora_a", GGML_TYPE_F32, {tensor->ne[0], kRank}, fill);
    adapter.AddTensor(name + ".lora_b", GGML_TYPE_F32, {kRank, tensor->ne[1]}, fill);
  }
  return adapter.Write(path);
}

class LoraTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const auto& [path, seed] : {std::pair(a_, 1U), std::pair(b_, 2U)}) {
      const Status written = WriteAdapter(path, seed);
      ASSERT_TRUE(written) << written.error().text;
    }
  }

  // A server of its own over the common cache root; the same prompt `times` times.
  std::vector<Answer> Serve(const Adapters& adapters, int times) {
    std::vector<Answer> answers;
    auto cache = OpenDiskCache(directory_.Sub("cache"));
    EXPECT_TRUE(cache) << cache.error().text;
    EngineOptions options;
    options.model_path = DemoModelPath();
    options.context_tokens = 1024;
    options.threads = 1;
    options.gpu_layers = 0;
    options.loras = adapters;
    auto engine = OpenLlamaEngine(options, cache->get(), Env::Posix());
    EXPECT_TRUE(engine) << engine.error().text;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!(*engine)->Info().identity_known && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    for (int i = 0; i < times; ++i) {
      answers.push_back(Ask(**engine));
    }
    (*engine)->Stop();
    EXPECT_TRUE((*cache)->Close());
    return answers;
  }

  static Answer Ask(Engine& engine) {
    GenerateRequest request;
    request.prompt = SomeTokens(kPromptTokens, 7);
    request.max_tokens = 6;
    request.sampling.temperature = 0.0F;
    request.sampling.ignore_eos = true;
    request.top_logprobs = 0;
    Answer answer;
    auto generation = engine.Submit(std::move(request));
    EXPECT_TRUE(generation) << generation.error().text;
    while (const auto event = (*generation)->Next(std::chrono::seconds(60))) {
      for (const GeneratedToken& token : event->tokens) {
        answer.logprobs.emplace_back(token.chosen.token, token.chosen.logprob);
      }
      if (event->kind == GenerateEvent::Kind::kDone) {
        answer.timings = event->timings;
        break;
      }
    }
    EXPECT_EQ(answer.logprobs.size(), 6u);
    return answer;
  }

  const TestDirectory directory_;
  const std::string a_ = directory_.Sub("a.gguf");
  const std::string b_ = directory_.Sub("b.gguf");
};

TEST_F(LoraTest, StateBelongsToOneSetOfAdaptersAndScales) {
  const std::vector<Adapters> settings = {
      {}, {{a_, 1.0F}}, {{a_, 0.5F}}, {{b_, 1.0F}}, {{a_, 1.0F}, {b_, 1.0F}}};
  std::vector<std::vector<Answer>> before;
  for (const Adapters& adapters : settings) {
    before.push_back(Serve(adapters, 2));
    const std::size_t last = before.size() - 1;
    EXPECT_EQ(before[last][0].timings.cached_tokens(), 0) << "setting " << last;
    EXPECT_EQ(before[last][1].timings.cached_l1_tokens, kPromptTokens - 1);
    for (std::size_t i = 0; i < last; ++i) {
      EXPECT_NE(before[i][1].logprobs, before[last][1].logprobs) << "the adapters do nothing";
    }
  }
  for (std::size_t i = 0; i < settings.size(); ++i) {
    const Answer after = Serve(settings[i], 1).front();
    EXPECT_EQ(after.timings.cached_l3_tokens, kPromptTokens - 1) << "setting " << i;
    EXPECT_EQ(after.logprobs, before[i][1].logprobs) << "setting " << i;
  }
}

TEST_F(LoraTest, ChangedFileIsAnotherAdapter) {
  EXPECT_EQ(Serve({{a_, 1.0F}}, 1).front().timings.cached_tokens(), 0);
  std::filesystem::rename(b_, a_);
  EXPECT_EQ(Serve({{a_, 1.0F}}, 1).front().timings.cached_tokens(), 0);
}

}  // namespace
}  // namespace skippy
