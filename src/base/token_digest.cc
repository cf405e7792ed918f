#include "base/token_digest.h"

#include <algorithm>
#include <bit>

#include "base/hash.h"

namespace skippy {

TokensDigest DigestTokens(std::span<const Token> tokens) {
  Hasher hasher("skippy catalog tokens v1");
  if constexpr (std::endian::native == std::endian::little) {
    hasher.Update(std::as_bytes(tokens));
  } else {
    for (const Token token : tokens) hasher.UpdateInt(token);
  }
  return hasher.Finish<TokensDigest>();
}

std::uint64_t HashHead(std::span<const Token> tokens) {
  HeadHasher hasher;
  const auto head_tokens = std::min(tokens.size(), static_cast<std::size_t>(kHeadTokens));
  for (const Token token : tokens.first(head_tokens)) hasher.Update(token);
  return hasher.Value();
}

}  // namespace skippy
