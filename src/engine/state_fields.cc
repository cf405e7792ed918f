#include "engine/state_fields.h"

#include <llama.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/check.h"

namespace skippy {

struct FlashAttentionWatch::Listener {
  ggml_log_callback next = nullptr;
  void* next_data = nullptr;
  std::optional<bool> resolved;

  static void OnLog(ggml_log_level level, const char* text, void* data) {
    auto* self = static_cast<Listener*>(data);
    const std::string_view line(text);
    if (line.find("Flash Attention enabled") != line.npos) self->resolved = true;
    if (line.find("Flash Attention not supported") != line.npos) self->resolved = false;
    if (self->next != nullptr) self->next(level, text, self->next_data);
  }
};

FlashAttentionWatch::FlashAttentionWatch() : listener_(std::make_unique<Listener>()) {
  llama_log_get(&listener_->next, &listener_->next_data);
  llama_log_set(&Listener::OnLog, listener_.get());
}

FlashAttentionWatch::~FlashAttentionWatch() {
  llama_log_set(listener_->next, listener_->next_data);
}

std::optional<bool> FlashAttentionWatch::resolved() const { return listener_->resolved; }

namespace {

constexpr std::pair<KvType, ggml_type> kKvTypes[] = {
    {KvType::kF32, GGML_TYPE_F32},      {KvType::kF16, GGML_TYPE_F16},
    {KvType::kBf16, GGML_TYPE_BF16},    {KvType::kQ8_0, GGML_TYPE_Q8_0},
    {KvType::kQ4_0, GGML_TYPE_Q4_0},    {KvType::kQ4_1, GGML_TYPE_Q4_1},
    {KvType::kIq4Nl, GGML_TYPE_IQ4_NL}, {KvType::kQ5_0, GGML_TYPE_Q5_0},
    {KvType::kQ5_1, GGML_TYPE_Q5_1},
};

Result<KvType> FromGgml(ggml_type type) {
  for (const auto& [ours, theirs] : kKvTypes) {
    if (theirs == type) return ours;
  }
  return MakeError(ErrorCode::kUnsupported, std::string("K/V type ") + ggml_type_name(type) +
                                                " has no place in the identity");
}

// The model's metadata, by keys without their "architecture." prefix.
class Metadata {
 public:
  explicit Metadata(const llama_model* model) : model_(model) {
    architecture_ = Read("general.architecture").value_or("");
  }

  std::optional<std::string> Text(const std::string& key) const {
    return Read(architecture_ + "." + key);
  }

  template <class T>
  std::optional<T> Number(const std::string& key) const {
    const std::optional<std::string> text = Text(key);
    if (!text) return std::nullopt;
    T value{};
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    return error == std::errc() ? std::optional<T>(value) : std::nullopt;
  }

 private:
  std::optional<std::string> Read(const std::string& key) const {
    char text[256];
    const int count = llama_model_meta_val_str(model_, key.c_str(), text, sizeof(text));
    return count >= 0 ? std::optional<std::string>(text) : std::nullopt;
  }

  const llama_model* model_;
  std::string architecture_;
};

std::optional<float> GivenOr(bool given, float value, std::optional<float> otherwise) {
  return given ? std::optional<float>(value) : otherwise;
}

llama_rope_scaling_type RopeScaling(const llama_context_params& params, const Metadata& metadata) {
  if (params.rope_scaling_type != LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED) {
    return params.rope_scaling_type;
  }
  const std::string name = metadata.Text("rope.scaling.type").value_or("linear");
  if (name == "none") return LLAMA_ROPE_SCALING_TYPE_NONE;
  if (name == "yarn") return LLAMA_ROPE_SCALING_TYPE_YARN;
  if (name == "longrope") return LLAMA_ROPE_SCALING_TYPE_LONGROPE;
  return LLAMA_ROPE_SCALING_TYPE_LINEAR;
}

// Mirrors how a context turns its parameters and the model's metadata into effective values. What
// neither of them says is fixed by the weights, which are part of the identity.
void FillRope(const StateFieldsInput& input, const Metadata& metadata, StateFields* fields) {
  const llama_context_params& params = *input.params;
  const llama_rope_scaling_type scaling = RopeScaling(params, metadata);
  fields->rope_scaling = static_cast<std::uint8_t>(scaling);
  fields->rope_freq_base = GivenOr(params.rope_freq_base != 0.0F, params.rope_freq_base,
                                   metadata.Number<float>("rope.freq_base"));
  fields->rope_freq_scale = GivenOr(params.rope_freq_scale != 0.0F, params.rope_freq_scale,
                                    llama_model_rope_freq_scale_train(input.model));
  if (scaling == LLAMA_ROPE_SCALING_TYPE_NONE) fields->rope_freq_scale = 1.0F;
  const auto yarn = [&](float given, const char* key) {
    return GivenOr(given >= 0.0F, given,
                   metadata.Number<float>("rope.scaling." + std::string(key)));
  };
  fields->yarn_ext_factor = yarn(params.yarn_ext_factor, "yarn_ext_factor");
  if (!fields->yarn_ext_factor) {
    fields->yarn_ext_factor = scaling == LLAMA_ROPE_SCALING_TYPE_YARN ? 1.0F : 0.0F;
  }
  fields->yarn_attn_factor = yarn(params.yarn_attn_factor, "yarn_attn_factor");
  fields->yarn_beta_fast = yarn(params.yarn_beta_fast, "yarn_beta_fast");
  fields->yarn_beta_slow = yarn(params.yarn_beta_slow, "yarn_beta_slow");

  const auto model_context = metadata.Number<std::uint32_t>("rope.scaling.original_context_length")
                                 .value_or(llama_model_n_ctx_train(input.model));
  fields->yarn_orig_ctx = params.yarn_orig_ctx != 0 ? params.yarn_orig_ctx : model_context;
  if (input.rope_tensors.has_long_short_factors && !input.rope_tensors.has_fixed_factors) {
    fields->rope_factors =
        llama_n_ctx_seq(input.context) > model_context ? RopeFactors::kLong : RopeFactors::kShort;
  }
}

// Rows of quantised K or V are rotated first when heads are a multiple of this wide.
constexpr std::uint32_t kRotationWidth = 64;

bool IsRotated(ggml_type type, std::uint32_t head_width) {
  return ggml_is_quantized(type) && head_width % kRotationWidth == 0;
}

// Mirrors the K/V cache's own decision, which an environment variable can reverse.
bool UsesAttentionRotation(const StateFieldsInput& input, const Metadata& metadata) {
  const char* disable = std::getenv("LLAMA_ATTN_ROT_DISABLE");
  if (disable != nullptr && std::atoi(disable) != 0) return false;
  const int heads = std::max(llama_model_n_head(input.model), 1);
  const auto usual = static_cast<std::uint32_t>(llama_model_n_embd(input.model) / heads);
  const auto head_k = metadata.Number<std::uint32_t>("attention.key_length").value_or(usual);
  const auto head_v = metadata.Number<std::uint32_t>("attention.value_length").value_or(usual);
  return IsRotated(input.params->type_k, head_k) || IsRotated(input.params->type_v, head_v);
}

Result<FlashAttention> ResolvedFlashAttention(const StateFieldsInput& input) {
  switch (input.params->flash_attn_type) {
    case LLAMA_FLASH_ATTN_TYPE_DISABLED:
      return FlashAttention::kOff;
    case LLAMA_FLASH_ATTN_TYPE_ENABLED:
      return FlashAttention::kOn;
    case LLAMA_FLASH_ATTN_TYPE_AUTO:
      break;
  }
  if (!input.flash_attention_resolved) {
    return MakeError(ErrorCode::kInternal, "how flash attention 'auto' was resolved is not known");
  }
  return *input.flash_attention_resolved ? FlashAttention::kOn : FlashAttention::kOff;
}

Result<PoolingMode> Pooling(const llama_context* context) {
  switch (llama_pooling_type(context)) {
    case LLAMA_POOLING_TYPE_UNSPECIFIED:
    case LLAMA_POOLING_TYPE_NONE:
      return PoolingMode::kNone;
    case LLAMA_POOLING_TYPE_MEAN:
      return PoolingMode::kMean;
    case LLAMA_POOLING_TYPE_CLS:
      return PoolingMode::kCls;
    case LLAMA_POOLING_TYPE_LAST:
      return PoolingMode::kLast;
    case LLAMA_POOLING_TYPE_RANK:
      return PoolingMode::kRank;
  }
  return MakeError(ErrorCode::kUnsupported, "pooling mode is not known");
}

AttentionMode Attention(const StateFieldsInput& input, const Metadata& metadata) {
  switch (input.params->attention_type) {
    case LLAMA_ATTENTION_TYPE_CAUSAL:
      return AttentionMode::kCausal;
    case LLAMA_ATTENTION_TYPE_NON_CAUSAL:
      return AttentionMode::kNonCausal;
    case LLAMA_ATTENTION_TYPE_UNSPECIFIED:
      break;
  }
  const bool non_causal = metadata.Text("attention.causal").value_or("true") == "false";
  return non_causal ? AttentionMode::kNonCausal : AttentionMode::kCausal;
}

}  // namespace

Result<StateFields> MakeStateFields(const StateFieldsInput& input) {
  SKIPPY_CHECK(input.model != nullptr && input.context != nullptr && input.params != nullptr, "");
  const llama_context_params& params = *input.params;
  const Metadata metadata(input.model);
  StateFields fields;
  fields.format_version = kStateFormatVersion;
  fields.engine_commit = kEngineCommit;
  SKIPPY_ASSIGN_OR_RETURN(fields.type_k, FromGgml(params.type_k));
  SKIPPY_ASSIGN_OR_RETURN(fields.type_v, FromGgml(params.type_v));
  SKIPPY_ASSIGN_OR_RETURN(fields.flash_attention, ResolvedFlashAttention(input));
  // The memory is laid out before "auto" is resolved: only an explicit "off" transposes V.
  fields.v_transposed = params.flash_attn_type == LLAMA_FLASH_ATTN_TYPE_DISABLED;
  fields.attention_rotation = UsesAttentionRotation(input, metadata);
  FillRope(input, metadata, &fields);
  if (input.family != Family::kFullAttention) fields.swa_full = params.swa_full;
  const std::uint32_t sequence_max = llama_n_seq_max(input.context);
  fields.stream_count = params.kv_unified ? 1 : sequence_max;
  if (input.family == Family::kWholeState) fields.sequence_max = sequence_max;
  fields.attention = Attention(input, metadata);
  SKIPPY_ASSIGN_OR_RETURN(fields.pooling, Pooling(input.context));
  fields.embeddings = params.embeddings;
  fields.kv_overrides = input.kv_overrides;
  fields.context_kind =
      params.ctx_type == LLAMA_CONTEXT_TYPE_MTP ? ContextKind::kMtp : ContextKind::kMain;
  return fields;
}

std::optional<KvType> ParseKvType(std::string_view text) {
  for (const auto& [ours, theirs] : kKvTypes) {
    if (text == ggml_type_name(theirs)) return ours;
  }
  return std::nullopt;
}

std::string_view ToString(KvType type) {
  for (const auto& [ours, theirs] : kKvTypes) {
    if (ours == type) return ggml_type_name(theirs);
  }
  CheckFailed(__FILE__, __LINE__, "KvType", "not an enumerator");
}

}  // namespace skippy
