#include "engine/reply_writer.h"

#include <llama.h>

#include <algorithm>
#include <utility>

#include "engine/reply_format.h"
#include "engine/token_piece.h"

namespace skippy {

ReplyWriter::ReplyWriter(const llama_model* model, const GenerateRequest& request)
    : model_(model), assembler_(request.stop) {
  if (const auto* format = dynamic_cast<const LlamaReplyFormat*>(request.reply_format.get())) {
    visible_control_tokens_.assign(format->preserved_tokens.begin(),
                                   format->preserved_tokens.end());
    std::sort(visible_control_tokens_.begin(), visible_control_tokens_.end());
  }
}

bool ReplyWriter::IsEnd(Token token) const {
  return llama_vocab_is_eog(llama_model_get_vocab(model_), token);
}

std::string ReplyWriter::Piece(Token token) const {
  const bool special =
      std::binary_search(visible_control_tokens_.begin(), visible_control_tokens_.end(), token);
  return TokenPiece(llama_model_get_vocab(model_), token, special);
}

void ReplyWriter::Push(const TextAssembler::Release& release, EventQueue* events) {
  GenerateEvent event;
  event.kind = GenerateEvent::Kind::kText;
  event.text = release.text;
  const std::size_t shown = std::min(release.token_count, waiting_.size());
  event.tokens.assign(
      std::make_move_iterator(waiting_.begin()),
      std::make_move_iterator(waiting_.begin() + static_cast<std::ptrdiff_t>(shown)));
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(shown));
  if (!event.text.empty() || !event.tokens.empty()) {
    events->Push(std::move(event));
  }
}

std::optional<std::string> ReplyWriter::Append(Token token, std::optional<GeneratedToken> logprobs,
                                               EventQueue* events) {
  if (logprobs) {
    waiting_.push_back(std::move(*logprobs));
  }
  const TextAssembler::Release release = assembler_.Append(Piece(token));
  Push(release, events);
  return release.stop;
}

void ReplyWriter::Finish(EventQueue* events) {
  if (!assembler_.stopped()) {
    Push(assembler_.Finish(), events);
  }
}

}  // namespace skippy
