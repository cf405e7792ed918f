// Models with random weights: they cost what a real model of their shape costs and say nothing.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "skippy/result.h"

namespace skippy {

struct ModelShape {
  std::string_view name;
  std::uint32_t width = 0;
  std::uint32_t layers = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t ffn_width = 0;
  std::uint32_t context_tokens = 0;
};

// "smollm2-135m", or "tiny" for tests. kInvalidArgument lists the names.
Result<ModelShape> FindShape(const std::string& name);

struct RandomModelOptions {
  ModelShape shape;
  std::string vocabulary_path;     // a GGUF whose tokenizer is taken over
  ggml_type type = GGML_TYPE_F16;  // of the matrices: F32, F16 or Q8_0
  std::uint64_t seed = 1;
};

// Writes a llama-architecture model with tied embeddings and a ChatML template. The same options
// give the same bytes. Weights are scaled so that every layer contributes and attention is neither
// flat nor on one token.
Status WriteRandomModel(const RandomModelOptions& options, const std::string& path);

}  // namespace skippy
