#include "engine/sampler.h"

#include <common.h>
#include <llama.h>
#include <sampling.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <limits>
#include <numeric>
#include <utility>

#include "engine/reply_format.h"
#include "engine/token_piece.h"

namespace skippy {
namespace {

Error Invalid(const std::string& text) { return MakeError(ErrorCode::kInvalidArgument, text); }

// A number of the model's own recommended sampling settings; `fallback` when it has none.
double ModelSetting(const llama_model* model, llama_model_meta_key key, double fallback) {
  char text[64] = {};
  if (llama_model_meta_val_str(model, llama_model_meta_key_str(key), text, sizeof(text)) <= 0) {
    return fallback;
  }
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  return end != text && std::isfinite(value) ? value : fallback;
}

void ApplyModelSettings(const llama_model* model, common_params_sampling* params) {
  const std::pair<llama_model_meta_key, float*> floats[] = {
      {LLAMA_MODEL_META_KEY_SAMPLING_TOP_P, &params->top_p},
      {LLAMA_MODEL_META_KEY_SAMPLING_MIN_P, &params->min_p},
      {LLAMA_MODEL_META_KEY_SAMPLING_TEMP, &params->temp},
      {LLAMA_MODEL_META_KEY_SAMPLING_PENALTY_REPEAT, &params->penalty_repeat},
  };
  for (const auto& [key, value] : floats) {
    *value = static_cast<float>(ModelSetting(model, key, *value));
  }
  const std::pair<llama_model_meta_key, std::int32_t*> integers[] = {
      {LLAMA_MODEL_META_KEY_SAMPLING_TOP_K, &params->top_k},
      {LLAMA_MODEL_META_KEY_SAMPLING_PENALTY_LAST_N, &params->penalty_last_n},
  };
  for (const auto& [key, value] : integers) {
    *value = static_cast<std::int32_t>(ModelSetting(model, key, *value));
  }
}

struct FloatOption {
  const char* name;
  std::optional<float> given;
  float* target;
  float lowest;
  float highest;
};

Status ApplyFloats(const SamplingOptions& options, common_params_sampling* params) {
  constexpr float kMax = std::numeric_limits<float>::max();
  const FloatOption table[] = {
      {"temperature", options.temperature, &params->temp, -kMax, kMax},
      {"top_p", options.top_p, &params->top_p, 0.0F, kMax},
      {"min_p", options.min_p, &params->min_p, 0.0F, kMax},
      {"typical_p", options.typical_p, &params->typ_p, 0.0F, kMax},
      {"frequency_penalty", options.frequency_penalty, &params->penalty_freq, -kMax, kMax},
      {"presence_penalty", options.presence_penalty, &params->penalty_present, -kMax, kMax},
      {"repeat_penalty", options.repeat_penalty, &params->penalty_repeat, 1e-6F, kMax},
  };
  for (const FloatOption& option : table) {
    if (!option.given) continue;
    if (!(*option.given >= option.lowest && *option.given <= option.highest)) {
      return Invalid(std::string(option.name) + ": the value is not possible");
    }
    *option.target = *option.given;
  }
  return {};
}

Status ApplyBias(const llama_vocab* vocab, const SamplingOptions& options,
                 common_params_sampling* params) {
  for (const auto& [token, bias] : options.logit_bias) {
    if (token < 0 || token >= llama_vocab_n_tokens(vocab)) {
      return Invalid("logit_bias: token " + std::to_string(token) + " is not in the vocabulary");
    }
    if (std::isnan(bias) || bias == std::numeric_limits<float>::infinity()) {
      return Invalid("logit_bias: the bias of token " + std::to_string(token) + " is no number");
    }
    params->logit_bias.push_back({token, bias});
  }
  if (!options.ignore_eos) return {};
  for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); ++token) {
    if (llama_vocab_is_eog(vocab, token)) params->logit_bias.push_back({token, -INFINITY});
  }
  return {};
}

// Takes over what the template wants, unless the caller has a grammar of his own.
void ApplyFormat(const LlamaReplyFormat& format, common_params_sampling* params) {
  params->preserved_tokens.insert(format.preserved_tokens.begin(), format.preserved_tokens.end());
  params->generation_prompt = format.generation_prompt;
  params->reasoning_budget_start = format.thinking_start;
  params->reasoning_budget_end = format.thinking_ends;
  if (!format.thinking_ends.empty()) params->reasoning_budget_forced = format.thinking_ends.front();
  if (!params->grammar.empty() || format.grammar.empty()) return;
  params->grammar = {
      format.grammar_from_user ? COMMON_GRAMMAR_TYPE_USER : COMMON_GRAMMAR_TYPE_TOOL_CALLS,
      format.grammar};
  params->grammar_lazy = format.grammar_lazy;
  params->grammar_triggers = format.triggers;
}

// The library parses groups, and follows rules to others, by recursion.
constexpr int kGrammarNestingMax = 128;
constexpr std::size_t kGrammarRulesMax = 16384;

// The engine thread tries every alternative with every token.
constexpr std::size_t kGrammarAlternativesMax = 8192;

std::size_t CountOf(std::string_view what, std::string_view grammar) {
  std::size_t count = 0;
  for (std::size_t at = grammar.find(what); at != std::string_view::npos;
       at = grammar.find(what, at + 1)) {
    ++count;
  }
  return count;
}

// Groups within groups, at most as many as are really there where texts hold brackets.
int NestingOf(std::string_view grammar) {
  int depth = 0;
  int deepest = 0;
  char end = '\0';  // of the literal or the character class that is open
  for (std::size_t i = 0; i < grammar.size(); ++i) {
    const char c = grammar[i];
    if (end != '\0') {
      i += c == '\\' ? 1 : 0;
      end = c == end ? '\0' : end;
    } else if (c == '"' || c == '[' || c == '#') {
      end = c == '"' ? '"' : c == '[' ? ']' : '\n';
    } else if (c == '(') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ')') {
      --depth;
    }
  }
  return deepest;
}

// The library ends the process, or loses memory, on some grammars that it cannot use: they are
// found out before it sees them.
Status CheckGrammar(const llama_vocab* vocab, const std::string& grammar) {
  if (grammar.empty()) return {};
  if (grammar.starts_with("%llguidance")) {
    return Invalid("grammar: only GBNF is supported, not llguidance");
  }
  if (NestingOf(grammar) > kGrammarNestingMax) {
    return Invalid("grammar: nested more than " + std::to_string(kGrammarNestingMax) + " deep");
  }
  if (CountOf("::=", grammar) > kGrammarRulesMax) {
    return Invalid("grammar: more than " + std::to_string(kGrammarRulesMax) + " rules");
  }
  if (CountOf("|", grammar) > kGrammarAlternativesMax) {
    return Invalid("grammar: more than " + std::to_string(kGrammarAlternativesMax) +
                   " alternatives");
  }
  if (grammar.find('\0') != std::string::npos) return Invalid("grammar: contains a NUL byte");
  llama_sampler* sampler = llama_sampler_init_grammar(vocab, grammar.c_str(), "root");
  if (sampler == nullptr) return Invalid("grammar: cannot be parsed as GBNF with a rule 'root'");
  llama_sampler_free(sampler);
  return {};
}

class CommonSampler final : public Sampler {
 public:
  CommonSampler(const llama_model* model, common_params_sampling params, common_sampler_ptr sampler,
                int top_logprobs)
      : vocab_(llama_model_get_vocab(model)),
        params_(std::move(params)),
        top_logprobs_(top_logprobs),
        sampler_(std::move(sampler)) {}

  Result<Token> Sample(llama_context* context, int output_index) override {
    try {
      const Token token = common_sampler_sample(sampler_.get(), context, output_index);
      if (!MayBeChosen()) {
        return Invalid("no token is allowed: logit_bias and grammar exclude everything");
      }
      if (top_logprobs_ >= 0) TakeLogprobs(llama_get_logits_ith(context, output_index), token);
      common_sampler_accept(sampler_.get(), token, true);
      return token;
    } catch (const std::exception& e) {
      return MakeError(ErrorCode::kInternal, std::string("sampling: ") + e.what());
    }
  }

  GeneratedToken LastLogprobs() const override { return last_; }

  std::string TextPiece(Token token) const override {
    return TokenPiece(vocab_, token, params_.preserved_tokens.contains(token));
  }

  void AcceptPrompt(std::span<const Token> prompt) override {
    const auto count = std::min<std::size_t>(prompt.size(), std::max(params_.penalty_last_n, 0));
    for (const Token token : prompt.last(count)) {
      common_sampler_accept(sampler_.get(), token, false);
    }
  }

 private:
  // False when every candidate was excluded: the library would pick one all the same.
  bool MayBeChosen() {
    const llama_token_data_array* candidates = common_sampler_get_candidates(sampler_.get(), false);
    if (candidates->selected < 0) return false;
    return candidates->data[candidates->selected].logit > -std::numeric_limits<float>::infinity();
  }

  void TakeLogprobs(const float* logits, Token chosen) {
    const auto count = static_cast<std::size_t>(llama_vocab_n_tokens(vocab_));
    const float highest = *std::max_element(logits, logits + count);
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      sum += std::exp(static_cast<double>(logits[i]) - highest);
    }
    const double log_sum = highest + std::log(sum);
    const auto entry = [&](Token token) {
      const double logprob = std::min(0.0, logits[token] - log_sum);
      return TokenLogprob{token, TokenPiece(vocab_, token, true), static_cast<float>(logprob)};
    };
    last_ = GeneratedToken{entry(chosen), {}};
    const auto top_count = std::min<std::size_t>(top_logprobs_, count);
    if (top_count == 0) return;
    order_.resize(count);
    std::iota(order_.begin(), order_.end(), 0);
    // Of equals the chosen one comes first, so that a greedy choice is always among them.
    const auto before = [&](Token a, Token b) {
      if (logits[a] != logits[b]) return logits[a] > logits[b];
      return a != b && (a == chosen || (b != chosen && a < b));
    };
    std::partial_sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(top_count),
                      order_.end(), before);
    for (std::size_t i = 0; i < top_count; ++i) last_.top.push_back(entry(order_[i]));
  }

  const llama_vocab* const vocab_;
  const common_params_sampling params_;
  const int top_logprobs_;
  common_sampler_ptr sampler_;
  GeneratedToken last_;
  std::vector<Token> order_;  // scratch of TakeLogprobs
};

Result<common_params_sampling> MakeParams(const llama_model* model, const SamplingOptions& options,
                                          const std::string& grammar, const ReplyFormat* format) {
  common_params_sampling params;
  params.no_perf = true;
  ApplyModelSettings(model, &params);
  SKIPPY_RETURN_IF_ERROR(ApplyFloats(options, &params));
  if (options.top_k) params.top_k = *options.top_k;
  if (options.seed) params.seed = *options.seed;
  if (options.repeat_last_n) params.penalty_last_n = *options.repeat_last_n;
  const int longest = llama_model_n_ctx_train(model);
  if (params.penalty_last_n < 0 || params.penalty_last_n > longest) {
    params.penalty_last_n = longest;
  }
  SKIPPY_RETURN_IF_ERROR(ApplyBias(llama_model_get_vocab(model), options, &params));
  if (!grammar.empty()) params.grammar = {COMMON_GRAMMAR_TYPE_USER, grammar};
  if (format != nullptr) {
    const auto* llama_format = dynamic_cast<const LlamaReplyFormat*>(format);
    if (llama_format == nullptr) return Invalid("reply format: not made by this engine");
    ApplyFormat(*llama_format, &params);
  }
  SKIPPY_RETURN_IF_ERROR(CheckGrammar(llama_model_get_vocab(model), params.grammar.grammar));
  return params;
}

}  // namespace

Result<std::unique_ptr<Sampler>> Sampler::Create(const llama_model* model,
                                                 const SamplingOptions& options,
                                                 const std::string& grammar,
                                                 const ReplyFormat* format, int top_logprobs) {
  SKIPPY_ASSIGN_OR_RETURN(common_params_sampling params,
                          MakeParams(model, options, grammar, format));
  try {
    common_sampler_ptr sampler(common_sampler_init(model, params));
    return std::unique_ptr<Sampler>(std::make_unique<CommonSampler>(
        model, std::move(params), std::move(sampler), top_logprobs));
  } catch (const std::exception& e) {
    return Invalid(std::string("sampling options: ") + e.what());
  }
}

}  // namespace skippy
