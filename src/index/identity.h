// What a model and its exported state *are*. Every field listed here must change the identity on
// its own; nothing else may (docs: state identity). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "skippy/ids.h"

namespace skippy {

using ContentDigest = OpaqueBytes<struct ContentDigestTag, 32>;  // BLAKE3 of a file's bytes

struct AdapterFields {
  ContentDigest content;
  float scale = 1.0F;
  std::vector<Token> invocation_tokens;  // aLoRA; empty otherwise
};

struct ControlVectorFields {
  ContentDigest content;
  float strength = 1.0F;
};

struct ModelFields {
  std::vector<ContentDigest> shards;  // in shard order, metadata included
  std::vector<AdapterFields> adapters;
  std::vector<ControlVectorFields> control_vectors;
  std::optional<std::int32_t> control_vector_first_layer;
  std::optional<std::int32_t> control_vector_last_layer;
};

enum class KvType : std::uint8_t { kF32, kF16, kBf16, kQ8_0, kQ4_0, kQ4_1, kIq4Nl, kQ5_0, kQ5_1 };
enum class FlashAttention : std::uint8_t { kOff, kOn };  // resolved; never "auto"
enum class RopeFactors : std::uint8_t { kNone, kShort, kLong };
enum class AttentionMode : std::uint8_t { kCausal, kNonCausal };
enum class PoolingMode : std::uint8_t { kNone, kMean, kCls, kLast, kRank };
enum class ContextKind : std::uint8_t { kMain, kDraft, kMtp };

struct KvOverride {
  std::string key;
  std::string value;  // "type:value", as given
};

struct StateFields {
  std::uint32_t format_version = 0;  // of the exported bytes
  std::string engine_commit;         // llama.cpp commit
  KvType type_k = KvType::kF16;
  KvType type_v = KvType::kF16;
  FlashAttention flash_attention = FlashAttention::kOff;
  bool v_transposed = false;
  bool attention_rotation = false;
  std::optional<float> rope_freq_base;
  std::optional<float> rope_freq_scale;
  std::optional<std::uint8_t> rope_scaling;  // engine's enumeration value
  std::optional<float> yarn_ext_factor;
  std::optional<float> yarn_attn_factor;
  std::optional<float> yarn_beta_fast;
  std::optional<float> yarn_beta_slow;
  std::optional<std::uint32_t> yarn_orig_ctx;
  RopeFactors rope_factors = RopeFactors::kNone;
  std::optional<bool> swa_full;
  std::uint32_t stream_count = 1;
  std::optional<std::uint32_t> sequence_max;  // whole-state families only
  AttentionMode attention = AttentionMode::kCausal;
  PoolingMode pooling = PoolingMode::kNone;
  bool embeddings = false;
  std::vector<KvOverride> kv_overrides;
  std::optional<std::int32_t> first_layer;
  std::optional<std::int32_t> last_layer;
  ContextKind context_kind = ContextKind::kMain;
};

ModelIdentity ComputeModelIdentity(const ModelFields& fields);
StateIdentity ComputeStateIdentity(const ModelIdentity& model, const StateFields& fields);

// Names and printable values of all fields, in a fixed order: for "which field changed".
struct NamedField {
  std::string name;
  std::string value;
};
std::vector<NamedField> DescribeStateFields(const StateFields& fields);

}  // namespace skippy
