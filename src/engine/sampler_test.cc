// Goal: the sampler keeps what the request asks for and fails closed. Method: the demo model's
// logits after a short prompt, sampled with different options.
#include "engine/sampler.h"

#include <common.h>

#include <cmath>
#include <limits>
#include <set>

#include "engine/test_model.h"

namespace skippy {
namespace {

class SamplerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = LoadTestModel(DemoModelPath()).release(); }
  static void TearDownTestSuite() { llama_model_free(model_); }

  void SetUp() override {
    ASSERT_NE(model_, nullptr);
    context_ = MakeTestContext(model_);
    prompt_ = common_tokenize(Vocab(), "The quick brown", true, true);
    Decode(prompt_);
  }

  static const llama_vocab* Vocab() { return llama_model_get_vocab(model_); }

  void Decode(std::vector<Token> tokens) {
    ASSERT_EQ(llama_decode(context_.get(), llama_batch_get_one(tokens.data(), tokens.size())), 0);
  }

  std::unique_ptr<Sampler> Make(const SamplingOptions& options, const std::string& grammar = "",
                                int top_logprobs = -1) {
    auto sampler = Sampler::Create(model_, options, grammar, nullptr, top_logprobs);
    EXPECT_TRUE(sampler.has_value()) << (sampler ? "" : sampler.error().text);
    return *std::move(sampler);
  }

  // Continues the prompt by `count` tokens from a fresh context.
  std::vector<Token> Generate(Sampler* sampler, int count) {
    context_ = MakeTestContext(model_);
    Decode(prompt_);
    std::vector<Token> out;
    for (int i = 0; i < count; ++i) {
      out.push_back(sampler->Sample(context_.get(), -1).value());
      Decode({out.back()});
    }
    return out;
  }

  ErrorCode CreateError(const SamplingOptions& options, const std::string& grammar = "") {
    auto sampler = Sampler::Create(model_, options, grammar, nullptr, -1);
    return sampler ? ErrorCode::kInternal : sampler.error().code;
  }

  static llama_model* model_;
  ContextPtr context_;
  std::vector<Token> prompt_;
};
llama_model* SamplerTest::model_ = nullptr;

SamplingOptions Greedy() {
  SamplingOptions options;
  options.temperature = 0.0F;
  return options;
}

SamplingOptions Seeded(std::uint32_t seed) {
  SamplingOptions options;
  options.temperature = 1.2F;
  options.seed = seed;
  return options;
}

TEST_F(SamplerTest, TemperatureZeroTakesTheHighestLogit) {
  const float* logits = llama_get_logits_ith(context_.get(), -1);
  const auto best = std::max_element(logits, logits + llama_vocab_n_tokens(Vocab())) - logits;
  EXPECT_EQ(Make(Greedy())->Sample(context_.get(), -1).value(), best);
}

// Proves case L13: a seed reproduces itself, seeds differ.
TEST_F(SamplerTest, SeedsReproduceAndDiffer) {
  std::set<std::vector<Token>> answers;
  for (std::uint32_t seed = 1; seed <= 10; ++seed) {
    const auto first = Generate(Make(Seeded(seed)).get(), 4);
    EXPECT_EQ(first, Generate(Make(Seeded(seed)).get(), 4)) << "seed " << seed;
    answers.insert(first);
  }
  EXPECT_GE(answers.size(), 5U);
}

// Proves case L13: logit_bias is obeyed.
TEST_F(SamplerTest, ForbiddenTokenIsNotChosen) {
  const Token usual = Make(Greedy())->Sample(context_.get(), -1).value();
  SamplingOptions options = Greedy();
  options.logit_bias = {{usual, -std::numeric_limits<float>::infinity()}};
  EXPECT_NE(Make(options)->Sample(context_.get(), -1).value(), usual);
}

TEST_F(SamplerTest, NothingAllowedIsAnError) {
  SamplingOptions options;
  for (Token token = 0; token < llama_vocab_n_tokens(Vocab()); ++token) {
    options.logit_bias.emplace_back(token, -std::numeric_limits<float>::infinity());
  }
  EXPECT_EQ(Make(options)->Sample(context_.get(), -1).error().code, ErrorCode::kInvalidArgument);
}

// Proves case L6: the grammar holds at any temperature.
TEST_F(SamplerTest, GrammarHoldsAtHighTemperature) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    SamplingOptions options = Seeded(seed);
    options.temperature = 1.5F;
    auto sampler = Make(options, "root ::= \"yes\" | \"no\"");
    std::string text;
    for (int i = 0; i < 8; ++i) {
      const Token token = sampler->Sample(context_.get(), -1).value();
      if (llama_vocab_is_eog(Vocab(), token)) break;
      text += sampler->TextPiece(token);
    }
    EXPECT_TRUE(text == "yes" || text == "no") << text;
  }
}

// Proves case L6: what cannot be enforced is refused.
TEST_F(SamplerTest, RefusesGrammarsThatCannotBeUsed) {
  for (const char* grammar : {"root ::= (", "start ::= \"a\"", "root ::= missing", "%llguidance {}",
                              "root ::= root \"a\""}) {
    EXPECT_EQ(CreateError({}, grammar), ErrorCode::kInvalidArgument) << grammar;
  }
}

// They overflowed the stack of the thread that parsed them, or kept the engine busy for minutes.
TEST_F(SamplerTest, RefusesGrammarsThatNestBranchOrChainWithoutEnd) {
  const std::string nested =
      "root ::= " + std::string(20000, '(') + "\"a\"" + std::string(20000, ')');
  EXPECT_EQ(CreateError({}, nested), ErrorCode::kInvalidArgument);
  std::string wide = "root ::= \"a\"";
  for (int i = 0; i < 10000; ++i) {
    wide += " | \"" + std::to_string(i) + "\"";
  }
  EXPECT_EQ(CreateError({}, wide), ErrorCode::kInvalidArgument);
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 200000; ++i) {
    chain += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + "\n";
  }
  EXPECT_EQ(CreateError({}, chain + "r200000 ::= \"a\"\n"), ErrorCode::kInvalidArgument);
}

TEST_F(SamplerTest, RefusesOptionsThatAreNotPossible) {
  SamplingOptions options;
  options.temperature = std::nanf("");
  EXPECT_EQ(CreateError(options), ErrorCode::kInvalidArgument);
  options = {};
  options.repeat_penalty = 0.0F;
  EXPECT_EQ(CreateError(options), ErrorCode::kInvalidArgument);
  options = {};
  options.logit_bias = {{1 << 30, 1.0F}};
  EXPECT_EQ(CreateError(options), ErrorCode::kInvalidArgument);
}

// Proves case L9: logprobs are <= 0, sorted, and hold the greedy choice.
TEST_F(SamplerTest, LogprobsAreSortedAndHoldTheGreedyChoice) {
  auto sampler = Make(Greedy(), "", 3);
  const Token token = sampler->Sample(context_.get(), -1).value();
  const GeneratedToken logprobs = sampler->LastLogprobs();
  EXPECT_EQ(logprobs.chosen.token, token);
  ASSERT_EQ(logprobs.top.size(), 3U);
  EXPECT_EQ(logprobs.top[0].token, token);
  EXPECT_GE(logprobs.top[0].logprob, logprobs.top[1].logprob);
  EXPECT_GE(logprobs.top[1].logprob, logprobs.top[2].logprob);
  for (const TokenLogprob& entry : logprobs.top) EXPECT_LE(entry.logprob, 0.0F);
}

TEST_F(SamplerTest, LogprobsOfTheWholeVocabularySumToOne) {
  auto sampler = Make(Seeded(1), "", 1 << 20);
  ASSERT_TRUE(sampler->Sample(context_.get(), -1).has_value());
  double sum = 0;
  for (const TokenLogprob& entry : sampler->LastLogprobs().top) sum += std::exp(entry.logprob);
  EXPECT_NEAR(sum, 1.0, 1e-4);
}

TEST_F(SamplerTest, PenaltiesSeeThePrompt) {
  const Token usual = Make(Greedy())->Sample(context_.get(), -1).value();
  SamplingOptions options = Greedy();
  options.presence_penalty = 1000.0F;
  auto sampler = Make(options);
  sampler->AcceptPrompt(std::vector<Token>{usual});
  EXPECT_NE(sampler->Sample(context_.get(), -1).value(), usual);
}

TEST_F(SamplerTest, IgnoreEosNeverEnds) {
  SamplingOptions options = Greedy();
  options.ignore_eos = true;
  for (const Token token : Generate(Make(options).get(), 60)) {
    EXPECT_FALSE(llama_vocab_is_eog(Vocab(), token));
  }
}

}  // namespace
}  // namespace skippy
