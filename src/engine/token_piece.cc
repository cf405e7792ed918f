#include "engine/token_piece.h"

#include <common.h>
#include <llama.h>

namespace skippy {

std::string TokenPiece(const llama_vocab* vocab, Token token, bool special) {
  if (llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE) {
    return {};
  }
  return common_token_to_piece(vocab, token, special);
}

}  // namespace skippy
