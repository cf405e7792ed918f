// Models and contexts for tests; the library's chatter is silenced.
#pragma once

#include <gtest/gtest.h>
#include <llama.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

namespace skippy {

struct LlamaDeleter {
  void operator()(llama_model* model) const { llama_model_free(model); }
  void operator()(llama_context* context) const { llama_free(context); }
};
using ModelPtr = std::unique_ptr<llama_model, LlamaDeleter>;
using ContextPtr = std::unique_ptr<llama_context, LlamaDeleter>;

// This file is src/engine/test_model.h of the source tree that holds models/.
inline std::string DemoModelPath() {
  const std::filesystem::path here = __FILE__;
  return (here.parent_path().parent_path().parent_path() / "models/skippy-demo-f16.gguf").string();
}

inline ModelPtr LoadTestModel(const std::string& path) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model_params params = llama_model_default_params();
  params.n_gpu_layers = 0;
  return ModelPtr(llama_model_load_from_file(path.c_str(), params));
}

inline ContextPtr MakeTestContext(llama_model* model, unsigned context_tokens = 256) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = context_tokens;
  params.n_threads = params.n_threads_batch = 1;
  return ContextPtr(llama_init_from_model(model, params));
}

}  // namespace skippy
