// What the tests of the llama engine share: contexts over the demo model and requests in one line.
#pragma once

#include <gtest/gtest.h>
#include <llama.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/kv_rows.h"
#include "engine/llama_context.h"
#include "engine/test_model.h"

namespace skippy {

inline std::vector<Token> SomeTokens(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Token> tokens(count);
  for (Token& token : tokens) {
    token = static_cast<Token>(300 + random() % 3000);
  }
  return tokens;
}

struct TestContextOptions {
  unsigned context_tokens = 2048;
  unsigned lanes = 4;
  unsigned ubatch_tokens = 512;
  ggml_type kv_type = GGML_TYPE_F16;
  bool flash_attention = true;
};

inline std::unique_ptr<LlamaContext> MakeLaneContext(const TestContextOptions& options) {
  ModelPtr model = LoadTestModel(DemoModelPath());
  llama_context_params params = llama_context_default_params();
  params.n_ctx = options.context_tokens;
  params.n_batch = params.n_ubatch = options.ubatch_tokens;
  params.n_seq_max = params.n_outputs_max = options.lanes + kReservedLanes;
  params.n_threads = params.n_threads_batch = 1;
  params.type_k = params.type_v = options.kv_type;
  params.kv_unified = true;
  params.flash_attn_type =
      options.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  LlamaContextPtr context(llama_init_from_model(model.get(), params));
  return std::make_unique<LlamaContext>(LlamaModelPtr(model.release()), std::move(context),
                                        RowAccess::kAnyRange);
}

// A directory of its own, removed at the end.
class TestDirectory {
 public:
  TestDirectory() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("skippy-engine-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TestDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string Sub(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace skippy
