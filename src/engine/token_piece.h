// Text of single tokens.
#pragma once

#include <string>

#include "skippy/ids.h"

struct llama_vocab;

namespace skippy {

// The bytes of a token, control tokens only with `special`. Empty for a model without a vocabulary,
// for which the library would end the process.
std::string TokenPiece(const llama_vocab* vocab, Token token, bool special);

}  // namespace skippy
