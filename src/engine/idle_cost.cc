#include "engine/idle_cost.h"

#include <ggml-cpu.h>
#include <ggml.h>
#include <llama.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>

namespace skippy {
namespace {

constexpr int kFewCells = 256;
constexpr int kManyCells = 2304;
// With flash attention the library computes in tiles from here on.
constexpr int kFlashPrefillTokens = 64;
constexpr int kPlainPrefillTokens = 16;
constexpr int kRepeats = 20;
constexpr std::size_t kOverheadBytes = std::size_t{1} << 20;  // of a graph and its tensors
// Looking at every resident costs something, too: at most once in so many tokens.
constexpr TokenCount kTokensBetweenLooks = 16;
// Of a restore of any size: look-up, a wake-up, one step.
constexpr double kFixedRestoreMs = 0.2;
constexpr double kNewestWeight = 0.25;

struct GgmlContextDeleter {
  void operator()(ggml_context* context) const { ggml_free(context); }
};
using GgmlContextPtr = std::unique_ptr<ggml_context, GgmlContextDeleter>;

int MetaInt(const llama_model* model, const std::string& key) {
  char text[32];
  const bool found = llama_model_meta_val_str(model, key.c_str(), text, sizeof(text)) > 0;
  return found ? static_cast<int>(std::strtol(text, nullptr, 10)) : 0;
}

// One layer's attention over `cell_count` cells of which the tokens see the first only.
class AttentionStep {
 public:
  AttentionStep(const AttentionShape& shape, int token_count, int cell_count)
      : shape_(shape), token_count_(token_count), cell_count_(cell_count) {}

  bool Build() {
    context_.reset(
        ggml_init({.mem_size = NeededBytes(), .mem_buffer = nullptr, .no_alloc = false}));
    if (context_ == nullptr) return false;
    ggml_context* const context = context_.get();
    ggml_tensor* const q = Zeroed(
        ggml_new_tensor_3d(context, GGML_TYPE_F32, shape_.key_width, token_count_, shape_.heads));
    const float scale = 1.0F / std::sqrt(static_cast<float>(shape_.key_width));
    graph_ = ggml_new_graph(context);
    ggml_build_forward_expand(graph_, shape_.flash ? Flash(q, scale) : Plain(q, scale));
    return true;
  }

  // The fastest of some runs; a negative number when the library could not compute it.
  double RunMs() const {
    ggml_cplan plan = ggml_graph_plan(graph_, /*n_threads=*/1, /*threadpool=*/nullptr);
    const std::unique_ptr<std::uint8_t[]> work(new std::uint8_t[plan.work_size + 1]);
    plan.work_data = work.get();
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kRepeats; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      if (ggml_graph_compute(graph_, &plan) != GGML_STATUS_SUCCESS) {
        return -1;
      }
      const std::chrono::duration<double, std::milli> took =
          std::chrono::steady_clock::now() - begin;
      best = std::min(best, took.count());
    }
    return best;
  }

 private:
  std::size_t NeededBytes() const {
    const auto cells = static_cast<std::size_t>(cell_count_);
    const auto tokens = static_cast<std::size_t>(token_count_);
    const auto heads = static_cast<std::size_t>(shape_.heads);
    const auto widths = static_cast<std::size_t>(shape_.key_width + shape_.value_width);
    const std::size_t rows = shape_.row_bytes() / static_cast<std::size_t>(shape_.layers) * cells;
    const std::size_t scores = shape_.flash ? 0 : 3 * cells * tokens * heads * sizeof(float);
    return rows + scores + 2 * cells * tokens * sizeof(float) +
           2 * widths * tokens * heads * sizeof(float) + kOverheadBytes;
  }
  static ggml_tensor* Zeroed(ggml_tensor* tensor) {
    std::memset(tensor->data, 0, ggml_nbytes(tensor));
    return tensor;
  }
  // As the KV buffer has it: the heads of one cell are neighbours.
  ggml_tensor* Rows(int type, int width) const {
    return ggml_permute(context_.get(),
                        Zeroed(ggml_new_tensor_3d(context_.get(), ggml_type(type), width,
                                                  shape_.kv_heads, cell_count_)),
                        0, 2, 1, 3);
  }
  ggml_tensor* Mask(ggml_type type) const {
    ggml_tensor* const mask = ggml_new_tensor_2d(context_.get(), type, cell_count_, token_count_);
    const float masked = -std::numeric_limits<float>::infinity();
    for (int token = 0; token < token_count_; ++token) {
      for (int cell = 0; cell < cell_count_; ++cell) {
        const float value = cell == 0 ? 0 : masked;
        auto* const at = static_cast<std::byte*>(mask->data) +
                         static_cast<std::size_t>(token) * mask->nb[1] +
                         static_cast<std::size_t>(cell) * mask->nb[0];
        if (type == GGML_TYPE_F16) {
          const ggml_fp16_t half = ggml_fp32_to_fp16(value);
          std::memcpy(at, &half, sizeof(half));
        } else {
          std::memcpy(at, &value, sizeof(value));
        }
      }
    }
    return mask;
  }
  ggml_tensor* Flash(ggml_tensor* q, float scale) const {
    return ggml_flash_attn_ext(context_.get(), q, Rows(shape_.k_type, shape_.key_width),
                               Rows(shape_.v_type, shape_.value_width), Mask(GGML_TYPE_F16), scale,
                               0, 0);
  }
  ggml_tensor* Plain(ggml_tensor* q, float scale) const {
    ggml_tensor* const scores =
        ggml_mul_mat(context_.get(), Rows(shape_.k_type, shape_.key_width), q);
    ggml_tensor* const weights =
        ggml_soft_max_ext(context_.get(), scores, Mask(GGML_TYPE_F32), scale, 0);
    // Without flash attention V is kept transposed: the cells of one element are neighbours.
    ggml_tensor* const v =
        Zeroed(ggml_new_tensor_3d(context_.get(), ggml_type(shape_.v_type), cell_count_,
                                  shape_.value_width, shape_.kv_heads));
    return ggml_mul_mat(context_.get(), v, weights);
  }

  const AttentionShape& shape_;
  const int token_count_;
  const int cell_count_;
  GgmlContextPtr context_;
  ggml_cgraph* graph_ = nullptr;
};

// Of all layers, for one cell and one token. On one thread, which waits for no other: attention
// falls into equal parts, and the barriers of a busy machine take longer than what is measured.
Result<double> MeasureCellMs(const AttentionShape& shape, int token_count) {
  double ms[2];
  const int cells[2] = {kFewCells, kManyCells};
  for (int i = 0; i < 2; ++i) {
    AttentionStep step(shape, token_count, cells[i]);
    if (!step.Build()) {
      return MakeError(ErrorCode::kResourceExhausted, "no memory to measure attention");
    }
    ms[i] = step.RunMs();
    if (ms[i] < 0) {
      return MakeError(ErrorCode::kUnsupported, "attention in this shape cannot be measured");
    }
  }
  const double per_cell = (ms[1] - ms[0]) / (kManyCells - kFewCells) / token_count;
  return std::max(per_cell, 0.0) * shape.layers / shape.threads;
}

}  // namespace

std::uint64_t AttentionShape::row_bytes() const {
  const std::size_t k = ggml_row_size(ggml_type(k_type), key_width * kv_heads);
  const std::size_t v = ggml_row_size(ggml_type(v_type), value_width * kv_heads);
  return static_cast<std::uint64_t>(layers) * (k + v);
}

Result<AttentionShape> ReadAttentionShape(const llama_model* model) {
  AttentionShape shape;
  shape.layers = llama_model_n_layer(model);
  shape.heads = llama_model_n_head(model);
  shape.kv_heads = llama_model_n_head_kv(model);
  char architecture[64] = "";
  llama_model_meta_val_str(model, "general.architecture", architecture, sizeof(architecture));
  const std::string prefix = std::string(architecture) + ".attention.";
  shape.key_width = MetaInt(model, prefix + "key_length");
  shape.value_width = MetaInt(model, prefix + "value_length");
  if (shape.heads > 0 && shape.key_width == 0) {
    shape.key_width = llama_model_n_embd(model) / shape.heads;
  }
  if (shape.value_width == 0) shape.value_width = shape.key_width;
  if (shape.layers <= 0 || shape.heads <= 0 || shape.kv_heads <= 0 || shape.key_width <= 0 ||
      shape.heads % shape.kv_heads != 0) {
    return MakeError(ErrorCode::kUnsupported, "the metadata names no attention heads");
  }
  return shape;
}

Result<IdleCellCost> MeasureIdleCellCost(const AttentionShape& shape) {
  if (shape.key_width % ggml_blck_size(ggml_type(shape.k_type)) != 0 ||
      shape.value_width % ggml_blck_size(ggml_type(shape.v_type)) != 0) {
    return MakeError(ErrorCode::kUnsupported, "heads are not whole blocks of the cache type");
  }
  IdleCellCost cost;
  SKIPPY_ASSIGN_OR_RETURN(cost.decode_ms, MeasureCellMs(shape, 1));
  SKIPPY_ASSIGN_OR_RETURN(cost.prefill_ms, MeasureCellMs(shape, shape.flash ? kFlashPrefillTokens
                                                                            : kPlainPrefillTokens));
  return cost;
}

void IdleRent::AddPrefill(TokenCount token_count) {
  due_ms_ += cost_.prefill_ms * token_count;
  due_tokens_ += token_count;
}

void IdleRent::AddDecode(TokenCount token_count) {
  due_ms_ += cost_.decode_ms * token_count;
  due_tokens_ += token_count;
}

TokenCount IdleRent::LikelyReply(TokenCount most) const {
  const auto likely = static_cast<TokenCount>(reply_tokens_);
  return most < 0 ? likely : std::min(likely, most);
}

void IdleRent::AddReply(TokenCount token_count) {
  reply_tokens_ += (token_count - reply_tokens_) * kNewestWeight;
}

double IdleRent::TakeDue() {
  if (due_tokens_ < kTokensBetweenLooks) return 0;
  due_tokens_ = 0;
  return std::exchange(due_ms_, 0);
}

double IdleRent::RestoreMs(TokenCount token_count) const {
  const double byte_count = static_cast<double>(row_bytes_) * token_count;
  return kFixedRestoreMs + byte_count * restore_ms_per_byte_;
}

void IdleRent::AddRestore(std::uint64_t byte_count, double ms) {
  if (byte_count == 0) return;
  const double seen = ms / static_cast<double>(byte_count);
  restore_ms_per_byte_ += (seen - restore_ms_per_byte_) * kNewestWeight;
}

}  // namespace skippy
