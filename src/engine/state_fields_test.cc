// Goal: what decides the bytes of exported state is read from the engine as it really is. Method:
// contexts of the demo model with different parameters; fields and identities compared.
#include "engine/state_fields.h"

#include <cstdlib>
#include <functional>

#include "engine/test_model.h"

namespace skippy {
namespace {

class StateFieldsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = LoadTestModel(DemoModelPath()).release(); }
  static void TearDownTestSuite() { llama_model_free(model_); }
  void SetUp() override { ASSERT_NE(model_, nullptr); }

  StateFields Fields(const std::function<void(llama_context_params&)>& change = {},
                     RopeTensors rope_tensors = {}) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 256;
    params.kv_unified = true;
    params.n_seq_max = 4;
    if (change) change(params);
    const FlashAttentionWatch watch;
    const ContextPtr context(llama_init_from_model(model_, params));
    EXPECT_NE(context, nullptr);
    StateFieldsInput input;
    input.model = model_;
    input.context = context.get();
    input.params = &params;
    input.flash_attention_resolved = watch.resolved();
    input.family = Family::kFullAttention;
    input.rope_tensors = rope_tensors;
    return MakeStateFields(input).value();
  }

  static StateIdentity Identity(const StateFields& fields) {
    return ComputeStateIdentity(ModelIdentity{}, fields);
  }

  static llama_model* model_;
};
llama_model* StateFieldsTest::model_ = nullptr;

TEST_F(StateFieldsTest, AutoFlashAttentionIsResolved) {
  const StateFields fields = Fields();
  EXPECT_EQ(fields.flash_attention, FlashAttention::kOn);
  EXPECT_FALSE(fields.v_transposed);
  EXPECT_EQ(Identity(fields), Identity(Fields([](llama_context_params& params) {
              params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
            })));
}

TEST_F(StateFieldsTest, WithoutFlashAttentionVIsTransposed) {
  const StateFields fields = Fields([](llama_context_params& params) {
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  });
  EXPECT_EQ(fields.flash_attention, FlashAttention::kOff);
  EXPECT_TRUE(fields.v_transposed);
}

TEST_F(StateFieldsTest, CarriesTheTypesOfKAndV) {
  const StateFields fields = Fields([](llama_context_params& params) {
    params.type_k = GGML_TYPE_Q8_0;
    params.type_v = GGML_TYPE_F16;
  });
  EXPECT_EQ(fields.type_k, KvType::kQ8_0);
  EXPECT_EQ(fields.type_v, KvType::kF16);
}

TEST_F(StateFieldsTest, WhatDoesNotChangeBytesDoesNotChangeTheIdentity) {
  const StateIdentity usual = Identity(Fields());
  const std::function<void(llama_context_params&)> changes[] = {
      [](llama_context_params& params) { params.n_ctx = 512; },
      [](llama_context_params& params) { params.n_batch = 64; },
      [](llama_context_params& params) { params.n_ubatch = 32; },
      [](llama_context_params& params) { params.n_threads = 2; },
      [](llama_context_params& params) { params.n_seq_max = 8; },
      [](llama_context_params& params) { params.swa_full = !params.swa_full; },
      [](llama_context_params& params) {
        params.rope_freq_scale = llama_model_rope_freq_scale_train(model_);
      },
  };
  for (const auto& change : changes) {
    EXPECT_EQ(Identity(Fields(change)), usual) << (&change - changes);
  }
}

TEST_F(StateFieldsTest, WhatChangesBytesChangesTheIdentity) {
  const StateIdentity usual = Identity(Fields());
  const std::function<void(llama_context_params&)> changes[] = {
      [](llama_context_params& params) { params.type_k = GGML_TYPE_Q8_0; },
      [](llama_context_params& params) { params.rope_freq_base = 12345.0F; },
      [](llama_context_params& params) { params.rope_freq_scale = 0.5F; },
      [](llama_context_params& params) { params.yarn_ext_factor = 0.5F; },
      [](llama_context_params& params) { params.yarn_attn_factor = 0.5F; },
      [](llama_context_params& params) { params.yarn_beta_fast = 16.0F; },
      [](llama_context_params& params) { params.yarn_beta_slow = 2.0F; },
      [](llama_context_params& params) { params.yarn_orig_ctx = 77; },
      [](llama_context_params& params) { params.rope_scaling_type = LLAMA_ROPE_SCALING_TYPE_YARN; },
      [](llama_context_params& params) { params.kv_unified = false; },
      [](llama_context_params& params) { params.embeddings = true; },
      [](llama_context_params& params) { params.attention_type = LLAMA_ATTENTION_TYPE_NON_CAUSAL; },
  };
  for (const auto& change : changes) {
    EXPECT_NE(Identity(Fields(change)), usual) << (&change - changes);
  }
}

TEST_F(StateFieldsTest, LongOrShortFactorsDependOnTheContext) {
  const RopeTensors tensors{false, true};
  EXPECT_EQ(Fields({}, tensors).rope_factors, RopeFactors::kShort);
  const auto longer = [](llama_context_params& params) {
    params.n_ctx = static_cast<std::uint32_t>(llama_model_n_ctx_train(model_)) + 256;
  };
  EXPECT_EQ(Fields(longer, tensors).rope_factors, RopeFactors::kLong);
  EXPECT_EQ(Fields(longer).rope_factors, RopeFactors::kNone);
  EXPECT_EQ(Fields(longer, RopeTensors{true, true}).rope_factors, RopeFactors::kNone);
}

// Only what the environment variable really decides: F16 rows are never rotated.
TEST_F(StateFieldsTest, RotationFollowsTypesAndEnvironment) {
  const auto quantised = [](llama_context_params& params) { params.type_k = GGML_TYPE_Q8_0; };
  char width[16] = {};
  const bool has_width =
      llama_model_meta_val_str(model_, "llama.attention.key_length", width, sizeof(width)) > 0;
  const int head =
      has_width ? std::atoi(width) : llama_model_n_embd(model_) / llama_model_n_head(model_);
  EXPECT_FALSE(Fields().attention_rotation);
  EXPECT_EQ(Fields(quantised).attention_rotation, head % 64 == 0);
  ASSERT_EQ(::setenv("LLAMA_ATTN_ROT_DISABLE", "1", 1), 0);
  EXPECT_FALSE(Fields(quantised).attention_rotation);
  ASSERT_EQ(::unsetenv("LLAMA_ATTN_ROT_DISABLE"), 0);
}

TEST_F(StateFieldsTest, NamesOfTypesRoundTrip) {
  for (const char* name :
       {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"}) {
    ASSERT_TRUE(ParseKvType(name).has_value()) << name;
    EXPECT_EQ(ToString(*ParseKvType(name)), name);
  }
  EXPECT_FALSE(ParseKvType("q6_K").has_value());
}

}  // namespace
}  // namespace skippy
