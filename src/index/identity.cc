#include "index/identity.h"

#include <bit>
#include <cstdio>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/hash.h"

namespace skippy {
namespace {

// Enumerators are hashed by their words, so that reordering an enumeration changes nothing and a
// new enumerator does not compile until it has a word of its own.
std::string_view Word(KvType type) {
  switch (type) {
    case KvType::kF32:
      return "f32";
    case KvType::kF16:
      return "f16";
    case KvType::kBf16:
      return "bf16";
    case KvType::kQ8_0:
      return "q8_0";
    case KvType::kQ4_0:
      return "q4_0";
    case KvType::kQ4_1:
      return "q4_1";
    case KvType::kIq4Nl:
      return "iq4_nl";
    case KvType::kQ5_0:
      return "q5_0";
    case KvType::kQ5_1:
      return "q5_1";
  }
  CheckFailed(__FILE__, __LINE__, "KvType", "not an enumerator");
}

std::string_view Word(FlashAttention value) {
  switch (value) {
    case FlashAttention::kOff:
      return "off";
    case FlashAttention::kOn:
      return "on";
  }
  CheckFailed(__FILE__, __LINE__, "FlashAttention", "not an enumerator");
}

std::string_view Word(RopeFactors value) {
  switch (value) {
    case RopeFactors::kNone:
      return "none";
    case RopeFactors::kShort:
      return "short";
    case RopeFactors::kLong:
      return "long";
  }
  CheckFailed(__FILE__, __LINE__, "RopeFactors", "not an enumerator");
}

std::string_view Word(AttentionMode value) {
  switch (value) {
    case AttentionMode::kCausal:
      return "causal";
    case AttentionMode::kNonCausal:
      return "non_causal";
  }
  CheckFailed(__FILE__, __LINE__, "AttentionMode", "not an enumerator");
}

std::string_view Word(PoolingMode value) {
  switch (value) {
    case PoolingMode::kNone:
      return "none";
    case PoolingMode::kMean:
      return "mean";
    case PoolingMode::kCls:
      return "cls";
    case PoolingMode::kLast:
      return "last";
    case PoolingMode::kRank:
      return "rank";
  }
  CheckFailed(__FILE__, __LINE__, "PoolingMode", "not an enumerator");
}

std::string_view Word(ContextKind value) {
  switch (value) {
    case ContextKind::kMain:
      return "main";
    case ContextKind::kDraft:
      return "draft";
    case ContextKind::kMtp:
      return "mtp";
  }
  CheckFailed(__FILE__, __LINE__, "ContextKind", "not an enumerator");
}

// What a value is hashed and shown as. The encodings of two different values of one type differ,
// and none is the beginning of another.
struct Rendered {
  std::string hashed;
  std::string shown;
};

std::string EncodeInt(std::uint64_t value) {
  std::string out(8, '\0');
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<char>(value >> (8 * i));
  }
  return out;
}

Rendered Render(std::string_view text) {
  return {EncodeInt(text.size()) + std::string(text), std::string(text)};
}

// By bit pattern: 0.0 and -0.0 differ, and a NaN equals only a NaN of the same bits. In doubt the
// identities differ, which costs a miss and nothing else.
Rendered Render(float value) {
  char shown[32];
  std::snprintf(shown, sizeof(shown), "%.9g", static_cast<double>(value));
  return {EncodeInt(std::bit_cast<std::uint32_t>(value)), shown};
}

Rendered Render(const ContentDigest& digest) {
  return {std::string(digest.bytes.begin(), digest.bytes.end()), digest.ToHex()};
}

template <class T>
Rendered Render(T value) {
  if constexpr (std::is_enum_v<T>) {
    return Render(Word(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    return {EncodeInt(value ? 1 : 0), value ? "true" : "false"};
  } else {
    static_assert(std::is_integral_v<T>);
    return {EncodeInt(static_cast<std::uint64_t>(value)), std::to_string(value)};
  }
}

template <class T>
Rendered Render(const std::optional<T>& value) {
  if (!value) {
    return {"absent", "absent"};
  }
  Rendered out = Render(*value);
  out.hashed.insert(0, "present");
  return out;
}

Rendered Render(const KvOverride& value) {
  const auto& [key, text] = value;
  return {Render(std::string_view(key)).hashed + Render(std::string_view(text)).hashed,
          key + "=" + text};
}

template <class T>
Rendered Render(const std::vector<T>& values);

Rendered Render(const AdapterFields& value) {
  const auto& [content, scale, invocation_tokens] = value;
  const Rendered parts[] = {Render(content), Render(scale), Render(invocation_tokens)};
  return {parts[0].hashed + parts[1].hashed + parts[2].hashed,
          parts[0].shown + "*" + parts[1].shown + parts[2].shown};
}

Rendered Render(const ControlVectorFields& value) {
  const auto& [content, strength] = value;
  const Rendered parts[] = {Render(content), Render(strength)};
  return {parts[0].hashed + parts[1].hashed, parts[0].shown + "*" + parts[1].shown};
}

template <class T>
Rendered Render(const std::vector<T>& values) {
  Rendered out{EncodeInt(values.size()), "["};
  for (const T& value : values) {
    const Rendered one = Render(value);
    out.hashed += one.hashed;
    out.shown += (out.shown.size() > 1 ? "," : "") + one.shown;
  }
  out.shown += "]";
  return out;
}

struct Field {
  std::string_view name;
  Rendered value;
};

// The structured bindings name every member: a member that is added to the struct and not here
// does not compile.
std::vector<Field> FieldsOf(const ModelFields& fields) {
  const auto& [shards, adapters, control_vectors, first_layer, last_layer] = fields;
  return {{"shards", Render(shards)},
          {"adapters", Render(adapters)},
          {"control_vectors", Render(control_vectors)},
          {"control_vector_first_layer", Render(first_layer)},
          {"control_vector_last_layer", Render(last_layer)}};
}

std::vector<Field> FieldsOf(const StateFields& fields) {
  const auto& [format_version, engine_commit, type_k, type_v, flash_attention, v_transposed,
               attention_rotation, rope_freq_base, rope_freq_scale, rope_scaling, yarn_ext_factor,
               yarn_attn_factor, yarn_beta_fast, yarn_beta_slow, yarn_orig_ctx, rope_factors,
               swa_full, stream_count, sequence_max, attention, pooling, embeddings, kv_overrides,
               first_layer, last_layer, context_kind] = fields;
  return {{"format_version", Render(format_version)},
          {"engine_commit", Render(std::string_view(engine_commit))},
          {"type_k", Render(type_k)},
          {"type_v", Render(type_v)},
          {"flash_attention", Render(flash_attention)},
          {"v_transposed", Render(v_transposed)},
          {"attention_rotation", Render(attention_rotation)},
          {"rope_freq_base", Render(rope_freq_base)},
          {"rope_freq_scale", Render(rope_freq_scale)},
          {"rope_scaling", Render(rope_scaling)},
          {"yarn_ext_factor", Render(yarn_ext_factor)},
          {"yarn_attn_factor", Render(yarn_attn_factor)},
          {"yarn_beta_fast", Render(yarn_beta_fast)},
          {"yarn_beta_slow", Render(yarn_beta_slow)},
          {"yarn_orig_ctx", Render(yarn_orig_ctx)},
          {"rope_factors", Render(rope_factors)},
          {"swa_full", Render(swa_full)},
          {"stream_count", Render(stream_count)},
          {"sequence_max", Render(sequence_max)},
          {"attention", Render(attention)},
          {"pooling", Render(pooling)},
          {"embeddings", Render(embeddings)},
          {"kv_overrides", Render(kv_overrides)},
          {"first_layer", Render(first_layer)},
          {"last_layer", Render(last_layer)},
          {"context_kind", Render(context_kind)}};
}

void HashFields(const std::vector<Field>& fields, Hasher& hasher) {
  hasher.UpdateInt<std::uint64_t>(fields.size());
  for (const Field& field : fields) {
    hasher.UpdateString(field.name);
    hasher.UpdateString(field.value.hashed);
  }
}

}  // namespace

ModelIdentity ComputeModelIdentity(const ModelFields& fields) {
  Hasher hasher("skippy model identity v1");
  HashFields(FieldsOf(fields), hasher);
  return hasher.Finish<ModelIdentity>();
}

StateIdentity ComputeStateIdentity(const ModelIdentity& model, const StateFields& fields) {
  Hasher hasher("skippy state identity v1");
  hasher.Update(model.bytes.data(), model.bytes.size());
  HashFields(FieldsOf(fields), hasher);
  return hasher.Finish<StateIdentity>();
}

std::vector<NamedField> DescribeStateFields(const StateFields& fields) {
  std::vector<NamedField> out;
  for (Field& field : FieldsOf(fields)) {
    out.push_back({std::string(field.name), std::move(field.value.shown)});
  }
  return out;
}

}  // namespace skippy
