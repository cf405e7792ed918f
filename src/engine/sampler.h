// Chooses the next token: llama.cpp's sampler chain and grammar behind values of our own.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "skippy/result.h"

struct llama_context;
struct llama_model;

namespace skippy {

// The sampling state of one request: random generator, penalties, grammar. Used by the engine
// thread only; `model` outlives it.
class Sampler {
 public:
  // Values that `options` leaves open are llama-server's defaults; temperature <= 0 is greedy.
  // `grammar` (GBNF, may be empty) wins over the one that `format` (may be null) carries.
  // `top_logprobs` < 0: LastLogprobs is not wanted. kInvalidArgument when the grammar cannot be
  // used: a request that asks for a form is never served without it.
  static Result<std::unique_ptr<Sampler>> Create(const llama_model* model,
                                                 const SamplingOptions& options,
                                                 const std::string& grammar,
                                                 const ReplyFormat* format, int top_logprobs);

  virtual ~Sampler() = default;

  // Chooses from the logits of `output_index` (as llama_get_logits_ith counts) and accepts the
  // token. kInternal when the grammar cannot go on; the sampler must not be used after that.
  virtual Result<Token> Sample(llama_context* context, int output_index) = 0;

  // Of the token sampled last, from the model's own logits before any sampler or grammar: one
  // softmax over the vocabulary. `chosen` only, or with `top` in descending order when
  // top_logprobs > 0. Empty pieces before the first Sample.
  virtual GeneratedToken LastLogprobs() const = 0;

  // The bytes that the token adds to the reply's text: control tokens add none, except those that
  // the reply format wants to see.
  virtual std::string TextPiece(Token token) const = 0;

  // Shows the prompt to the penalties; the grammar does not see it.
  virtual void AcceptPrompt(std::span<const Token> prompt) = 0;
};

}  // namespace skippy
