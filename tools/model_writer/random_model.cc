#include "model_writer/random_model.h"

#include <llama.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "model_writer/gguf_output.h"

namespace skippy {
namespace {

constexpr ModelShape kShapes[] = {
    {"smollm2-135m", 576, 30, 9, 3, 1536, 8192},
    {"tiny", 64, 2, 4, 2, 128, 2048},
};

constexpr char kChatTemplate[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

// Standard deviations, times 1/sqrt(inputs) for matrices. Embeddings are also the output matrix:
// 0.1 spreads the logits of a normalised row of 576 by about 2.4. Queries and keys twice as large
// as neutral make attention select without pinning it to one token.
constexpr float kEmbeddingScale = 0.1F;
constexpr float kQueryKeyGain = 2.0F;
constexpr float kNeutralGain = 1.0F;

// Nearly normal numbers from a counter: fast, and the same on every machine.
class RandomNumbers {
 public:
  explicit RandomNumbers(std::uint64_t seed) : state_(seed) {}

  // Mean 0, standard deviation 1: the sum of four uniform numbers.
  float Next() {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t bits = state_;
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9U;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBU;
    bits ^= bits >> 31;
    const std::uint64_t sum =
        (bits & 0xFFFF) + ((bits >> 16) & 0xFFFF) + ((bits >> 32) & 0xFFFF) + (bits >> 48);
    constexpr float kMean = 2.0F * 65535.0F;
    constexpr float kDeviation = 65536.0F * 0.57735027F;  // sqrt(4 / 12)
    return (static_cast<float>(sum) - kMean) / kDeviation;
  }

 private:
  std::uint64_t state_;
};

// What `prefix` does not begin is removed.
void KeepOnly(gguf_context* metadata, std::string_view prefix) {
  for (std::int64_t i = gguf_get_n_kv(metadata) - 1; i >= 0; --i) {
    const std::string key = gguf_get_key(metadata, i);
    if (!key.starts_with(prefix)) gguf_remove_key(metadata, key.c_str());
  }
}

Result<std::uint32_t> TakeTokenizer(const std::string& path, gguf_context* metadata) {
  SKIPPY_ASSIGN_OR_RETURN(const GgufPtr vocabulary, ReadGguf(path, nullptr));
  gguf_set_kv(metadata, vocabulary.get());
  KeepOnly(metadata, "tokenizer.");
  const std::int64_t tokens = gguf_find_key(metadata, "tokenizer.ggml.tokens");
  if (tokens < 0) return MakeError(ErrorCode::kInvalidArgument, path + " has no tokenizer");
  return static_cast<std::uint32_t>(gguf_get_arr_n(metadata, tokens));
}

llama_ftype FileType(ggml_type type) {
  if (type == GGML_TYPE_F32) return LLAMA_FTYPE_ALL_F32;
  return type == GGML_TYPE_Q8_0 ? LLAMA_FTYPE_MOSTLY_Q8_0 : LLAMA_FTYPE_MOSTLY_F16;
}

void SetMetadata(const RandomModelOptions& options, std::uint32_t vocabulary,
                 gguf_context* metadata) {
  const ModelShape& shape = options.shape;
  const std::string name = "random " + std::string(shape.name);
  gguf_set_val_str(metadata, "general.architecture", "llama");
  gguf_set_val_str(metadata, "general.name", name.c_str());
  gguf_set_val_u32(metadata, "general.file_type", FileType(options.type));
  gguf_set_val_u32(metadata, "llama.vocab_size", vocabulary);
  gguf_set_val_u32(metadata, "llama.context_length", shape.context_tokens);
  gguf_set_val_u32(metadata, "llama.embedding_length", shape.width);
  gguf_set_val_u32(metadata, "llama.block_count", shape.layers);
  gguf_set_val_u32(metadata, "llama.feed_forward_length", shape.ffn_width);
  gguf_set_val_u32(metadata, "llama.attention.head_count", shape.heads);
  gguf_set_val_u32(metadata, "llama.attention.head_count_kv", shape.kv_heads);
  gguf_set_val_u32(metadata, "llama.rope.dimension_count", shape.width / shape.heads);
  gguf_set_val_f32(metadata, "llama.rope.freq_base", 100000.0F);
  gguf_set_val_f32(metadata, "llama.attention.layer_norm_rms_epsilon", 1e-5F);
  gguf_set_val_str(metadata, "tokenizer.chat_template", kChatTemplate);
}

class Weights {
 public:
  Weights(const RandomModelOptions& options, GgufOutput* output)
      : type_(options.type), numbers_(options.seed), output_(output) {}

  void AddNorm(const std::string& name, std::int64_t width) {
    output_->AddTensor(name + ".weight", GGML_TYPE_F32, {width}, [](std::span<float> values) {
      for (float& value : values) value = 1.0F;
    });
  }

  void AddMatrix(const std::string& name, std::int64_t inputs, std::int64_t outputs, float gain) {
    AddScaled(name, inputs, outputs, gain / std::sqrt(static_cast<float>(inputs)));
  }

  void AddScaled(const std::string& name, std::int64_t inputs, std::int64_t outputs, float scale) {
    output_->AddTensor(name + ".weight", type_, {inputs, outputs}, [&](std::span<float> values) {
      for (float& value : values) value = scale * numbers_.Next();
    });
  }

 private:
  const ggml_type type_;
  RandomNumbers numbers_;
  GgufOutput* const output_;
};

void AddLayer(const ModelShape& shape, std::uint32_t layer, Weights* weights) {
  const std::string prefix = "blk." + std::to_string(layer) + ".";
  const std::int64_t width = shape.width;
  const std::int64_t kv_width = width / shape.heads * shape.kv_heads;
  weights->AddNorm(prefix + "attn_norm", width);
  weights->AddMatrix(prefix + "attn_q", width, width, kQueryKeyGain);
  weights->AddMatrix(prefix + "attn_k", width, kv_width, kQueryKeyGain);
  weights->AddMatrix(prefix + "attn_v", width, kv_width, kNeutralGain);
  weights->AddMatrix(prefix + "attn_output", width, width, kNeutralGain);
  weights->AddNorm(prefix + "ffn_norm", width);
  weights->AddMatrix(prefix + "ffn_gate", width, shape.ffn_width, kNeutralGain);
  weights->AddMatrix(prefix + "ffn_up", width, shape.ffn_width, kNeutralGain);
  weights->AddMatrix(prefix + "ffn_down", shape.ffn_width, width, kNeutralGain);
}

}  // namespace

Result<ModelShape> FindShape(const std::string& name) {
  std::string names;
  for (const ModelShape& shape : kShapes) {
    if (shape.name == name) return shape;
    names.append(1, ' ').append(shape.name);
  }
  return MakeError(ErrorCode::kInvalidArgument, "shape '" + name + "' is none of:" + names);
}

Status WriteRandomModel(const RandomModelOptions& options, const std::string& path) {
  if (options.type != GGML_TYPE_F32 && options.type != GGML_TYPE_F16 &&
      options.type != GGML_TYPE_Q8_0) {
    return MakeError(ErrorCode::kInvalidArgument, "weights must be f32, f16 or q8_0");
  }
  GgufOutput output;
  SKIPPY_ASSIGN_OR_RETURN(const std::uint32_t vocabulary,
                          TakeTokenizer(options.vocabulary_path, output.metadata()));
  SetMetadata(options, vocabulary, output.metadata());
  Weights weights(options, &output);
  weights.AddScaled("token_embd", options.shape.width, vocabulary, kEmbeddingScale);
  for (std::uint32_t layer = 0; layer < options.shape.layers; ++layer) {
    AddLayer(options.shape, layer, &weights);
  }
  weights.AddNorm("output_norm", options.shape.width);
  return output.Write(path);
}

}  // namespace skippy
