// From sampled tokens to the text events of one request.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/event_queue.h"
#include "engine/text_assembler.h"

struct llama_model;

namespace skippy {

// Engine thread. Pushes what may be shown as soon as it may be shown.
class ReplyWriter {
 public:
  // `model` outlives the writer.
  ReplyWriter(const llama_model* model, const GenerateRequest& request);

  // True when the token ends every reply of this model.
  bool IsEnd(Token token) const;
  // `logprobs`: with top_logprobs >= 0 only. The stop string, when the text ends here.
  std::optional<std::string> Append(Token token, std::optional<GeneratedToken> logprobs,
                                    EventQueue* events);
  // The reply ended without a stop string: shows what was held back.
  void Finish(EventQueue* events);

 private:
  std::string Piece(Token token) const;
  void Push(const TextAssembler::Release& release, EventQueue* events);

  const llama_model* model_;
  std::vector<Token> visible_control_tokens_;  // sorted
  TextAssembler assembler_;
  std::deque<GeneratedToken> waiting_;  // not yet shown
};

}  // namespace skippy
