// Prompts of an exact length in tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "skippy/ids.h"
#include "skippy/result.h"

namespace skippy::bench {

// Pseudo-random words, the same for the same seed everywhere, in the tokens of the model that is
// served at `port`; the first `token_count` of them.
Result<std::vector<Token>> RandomPrompt(int port, TokenCount token_count, std::uint64_t seed);

}  // namespace skippy::bench
