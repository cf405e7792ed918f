// Each field alone changes the identity, and nothing else does: one table row per field and per
// value that might be mistaken for another.
#include "index/identity.h"

#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <limits>
#include <map>

namespace skippy {
namespace {

ContentDigest Content(std::uint8_t value) {
  ContentDigest digest;
  digest.bytes.fill(value);
  return digest;
}

ModelFields BaseModel() {
  ModelFields fields;
  fields.shards = {Content(1), Content(2)};
  fields.adapters = {{Content(3), 0.5F, {7, 8}}};
  fields.control_vectors = {{Content(4), 0.25F}};
  return fields;
}

StateFields BaseState() {
  StateFields fields;
  fields.format_version = 1;
  fields.engine_commit = "abc";
  fields.kv_overrides = {{"key", "int:1"}};
  return fields;
}

template <class Fields>
struct Change {
  const char* what;
  std::function<void(Fields&)> apply;
};

const std::vector<Change<ModelFields>> kModelChanges = {
    {"no shards", [](ModelFields& f) { f.shards.clear(); }},
    {"one shard less", [](ModelFields& f) { f.shards.pop_back(); }},
    {"one shard more", [](ModelFields& f) { f.shards.push_back(Content(3)); }},
    {"another first shard", [](ModelFields& f) { f.shards[0] = Content(9); }},
    {"another last shard", [](ModelFields& f) { f.shards[1].bytes[31] ^= 1; }},
    {"shards in another order", [](ModelFields& f) { std::swap(f.shards[0], f.shards[1]); }},
    {"no adapter", [](ModelFields& f) { f.adapters.clear(); }},
    {"a second adapter", [](ModelFields& f) { f.adapters.push_back(f.adapters[0]); }},
    {"another adapter", [](ModelFields& f) { f.adapters[0].content = Content(9); }},
    {"adapter scale", [](ModelFields& f) { f.adapters[0].scale = 0.75F; }},
    {"adapter scale 0", [](ModelFields& f) { f.adapters[0].scale = 0.0F; }},
    {"adapter scale -0", [](ModelFields& f) { f.adapters[0].scale = -0.0F; }},
    {"adapter scale NaN",
     [](ModelFields& f) { f.adapters[0].scale = std::numeric_limits<float>::quiet_NaN(); }},
    {"no invocation", [](ModelFields& f) { f.adapters[0].invocation_tokens.clear(); }},
    {"other invocation",
     [](ModelFields& f) {
       f.adapters[0].invocation_tokens = {7, 9};
     }},
    {"longer invocation",
     [](ModelFields& f) {
       f.adapters[0].invocation_tokens = {7, 8, 0};
     }},
    {"no control vector", [](ModelFields& f) { f.control_vectors.clear(); }},
    {"another control vector", [](ModelFields& f) { f.control_vectors[0].content = Content(9); }},
    {"control vector strength", [](ModelFields& f) { f.control_vectors[0].strength = 1.0F; }},
    {"first layer 0", [](ModelFields& f) { f.control_vector_first_layer = 0; }},
    {"first layer 1", [](ModelFields& f) { f.control_vector_first_layer = 1; }},
    {"first layer -1", [](ModelFields& f) { f.control_vector_first_layer = -1; }},
    {"last layer 0", [](ModelFields& f) { f.control_vector_last_layer = 0; }},
    {"last layer 1", [](ModelFields& f) { f.control_vector_last_layer = 1; }},
};

const std::vector<Change<StateFields>> kStateChanges = {
    {"format version", [](StateFields& f) { f.format_version = 2; }},
    {"engine commit", [](StateFields& f) { f.engine_commit = "abd"; }},
    {"no engine commit", [](StateFields& f) { f.engine_commit.clear(); }},
    {"K f32", [](StateFields& f) { f.type_k = KvType::kF32; }},
    {"K bf16", [](StateFields& f) { f.type_k = KvType::kBf16; }},
    {"K q8_0", [](StateFields& f) { f.type_k = KvType::kQ8_0; }},
    {"K q4_0", [](StateFields& f) { f.type_k = KvType::kQ4_0; }},
    {"K q4_1", [](StateFields& f) { f.type_k = KvType::kQ4_1; }},
    {"K iq4_nl", [](StateFields& f) { f.type_k = KvType::kIq4Nl; }},
    {"K q5_0", [](StateFields& f) { f.type_k = KvType::kQ5_0; }},
    {"K q5_1", [](StateFields& f) { f.type_k = KvType::kQ5_1; }},
    {"V q8_0", [](StateFields& f) { f.type_v = KvType::kQ8_0; }},
    {"flash attention", [](StateFields& f) { f.flash_attention = FlashAttention::kOn; }},
    {"V transposed", [](StateFields& f) { f.v_transposed = true; }},
    {"attention rotation", [](StateFields& f) { f.attention_rotation = true; }},
    {"rope base 0", [](StateFields& f) { f.rope_freq_base = 0.0F; }},
    {"rope base -0", [](StateFields& f) { f.rope_freq_base = -0.0F; }},
    {"rope base 10000", [](StateFields& f) { f.rope_freq_base = 10000.0F; }},
    {"rope scale 0", [](StateFields& f) { f.rope_freq_scale = 0.0F; }},
    {"rope scale 1", [](StateFields& f) { f.rope_freq_scale = 1.0F; }},
    {"rope scaling 0", [](StateFields& f) { f.rope_scaling = 0; }},
    {"rope scaling 1", [](StateFields& f) { f.rope_scaling = 1; }},
    {"yarn ext factor 0", [](StateFields& f) { f.yarn_ext_factor = 0.0F; }},
    {"yarn ext factor 1", [](StateFields& f) { f.yarn_ext_factor = 1.0F; }},
    {"yarn attn factor 0", [](StateFields& f) { f.yarn_attn_factor = 0.0F; }},
    {"yarn beta fast 0", [](StateFields& f) { f.yarn_beta_fast = 0.0F; }},
    {"yarn beta slow 0", [](StateFields& f) { f.yarn_beta_slow = 0.0F; }},
    {"yarn original context 0", [](StateFields& f) { f.yarn_orig_ctx = 0; }},
    {"yarn original context 4096", [](StateFields& f) { f.yarn_orig_ctx = 4096; }},
    {"rope factors short", [](StateFields& f) { f.rope_factors = RopeFactors::kShort; }},
    {"rope factors long", [](StateFields& f) { f.rope_factors = RopeFactors::kLong; }},
    {"swa_full false", [](StateFields& f) { f.swa_full = false; }},
    {"swa_full true", [](StateFields& f) { f.swa_full = true; }},
    {"stream count", [](StateFields& f) { f.stream_count = 4; }},
    {"sequence max 0", [](StateFields& f) { f.sequence_max = 0; }},
    {"sequence max 4", [](StateFields& f) { f.sequence_max = 4; }},
    {"non-causal", [](StateFields& f) { f.attention = AttentionMode::kNonCausal; }},
    {"pooling mean", [](StateFields& f) { f.pooling = PoolingMode::kMean; }},
    {"pooling cls", [](StateFields& f) { f.pooling = PoolingMode::kCls; }},
    {"pooling last", [](StateFields& f) { f.pooling = PoolingMode::kLast; }},
    {"pooling rank", [](StateFields& f) { f.pooling = PoolingMode::kRank; }},
    {"embeddings", [](StateFields& f) { f.embeddings = true; }},
    {"no override", [](StateFields& f) { f.kv_overrides.clear(); }},
    {"override key", [](StateFields& f) { f.kv_overrides[0].key = "kez"; }},
    {"override value", [](StateFields& f) { f.kv_overrides[0].value = "int:2"; }},
    {"override boundary",
     [](StateFields& f) {
       f.kv_overrides = {{"keyi", "nt:1"}};
     }},
    {"two overrides",
     [](StateFields& f) {
       f.kv_overrides.push_back({"", ""});
     }},
    {"first layer 0", [](StateFields& f) { f.first_layer = 0; }},
    {"last layer 0", [](StateFields& f) { f.last_layer = 0; }},
    {"last layer 7", [](StateFields& f) { f.last_layer = 7; }},
    {"draft context", [](StateFields& f) { f.context_kind = ContextKind::kDraft; }},
    {"mtp context", [](StateFields& f) { f.context_kind = ContextKind::kMtp; }},
};

// Proves A6, A7, A27 for what the weights are.
TEST(IdentityTest, EveryModelFieldAloneChangesTheModelIdentity) {
  std::map<ModelIdentity, std::string> seen{{ComputeModelIdentity(BaseModel()), "base"}};
  for (const Change<ModelFields>& change : kModelChanges) {
    ModelFields fields = BaseModel();
    change.apply(fields);
    const auto [at, is_new] = seen.emplace(ComputeModelIdentity(fields), change.what);
    EXPECT_TRUE(is_new) << change.what << " collides with " << at->second;
  }
}

// Proves A6, A7, A27 for the exported state.
TEST(IdentityTest, EveryStateFieldAloneChangesTheStateIdentity) {
  const ModelIdentity model = ComputeModelIdentity(BaseModel());
  std::map<StateIdentity, std::string> seen{{ComputeStateIdentity(model, BaseState()), "base"}};
  for (const Change<StateFields>& change : kStateChanges) {
    StateFields fields = BaseState();
    change.apply(fields);
    const auto [at, is_new] = seen.emplace(ComputeStateIdentity(model, fields), change.what);
    EXPECT_TRUE(is_new) << change.what << " collides with " << at->second;
  }
  const auto other = ComputeStateIdentity(ComputeModelIdentity(ModelFields{}), BaseState());
  EXPECT_FALSE(seen.contains(other)) << "the model is part of the state identity";
}

// Proves A8: an identity is a function of its fields, so it survives restarts.
TEST(IdentityTest, EqualFieldsGiveEqualIdentities) {
  const ModelIdentity model = ComputeModelIdentity(BaseModel());
  EXPECT_EQ(model, ComputeModelIdentity(BaseModel()));
  EXPECT_EQ(ComputeStateIdentity(model, BaseState()), ComputeStateIdentity(model, BaseState()));
  ModelFields not_a_number = BaseModel();
  not_a_number.adapters[0].scale = std::bit_cast<float>(0x7FC00001U);
  ModelFields same = not_a_number;
  EXPECT_EQ(ComputeModelIdentity(not_a_number), ComputeModelIdentity(same));
}

TEST(IdentityTest, TheTableOfStateChangesReachesEveryDescribedField) {
  const std::vector<NamedField> base = DescribeStateFields(BaseState());
  std::vector<int> changed(base.size(), 0);
  for (const Change<StateFields>& change : kStateChanges) {
    StateFields fields = BaseState();
    change.apply(fields);
    const std::vector<NamedField> now = DescribeStateFields(fields);
    ASSERT_EQ(now.size(), base.size());
    int differences = 0;
    for (std::size_t i = 0; i < now.size(); ++i) {
      ASSERT_EQ(now[i].name, base[i].name);
      differences += now[i].value != base[i].value ? 1 : 0;
      changed[i] += now[i].value != base[i].value ? 1 : 0;
    }
    EXPECT_EQ(differences, 1) << change.what << " is told as one changed field";
  }
  for (std::size_t i = 0; i < base.size(); ++i) {
    EXPECT_GT(changed[i], 0) << base[i].name << " is varied by no row of the table";
  }
}

TEST(IdentityTest, DescribesValuesForPeople) {
  StateFields fields = BaseState();
  fields.type_k = KvType::kQ8_0;
  fields.rope_freq_base = 10000.0F;
  std::map<std::string, std::string> shown;
  for (const NamedField& field : DescribeStateFields(fields)) {
    shown[field.name] = field.value;
  }
  EXPECT_EQ(shown.at("type_k"), "q8_0");
  EXPECT_EQ(shown.at("rope_freq_base"), "10000");
  EXPECT_EQ(shown.at("rope_freq_scale"), "absent");
  EXPECT_EQ(shown.at("kv_overrides"), "[key=int:1]");
  EXPECT_EQ(shown.at("swa_full"), "absent");
}

}  // namespace
}  // namespace skippy
