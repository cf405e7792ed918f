// What a run of tokens is known by when the tokens themselves are not at hand.
#pragma once

#include <cstdint>
#include <span>

#include "skippy/ids.h"

namespace skippy {

// BLAKE3 of a segment's token ids. Part of the catalog's format.
using TokensDigest = OpaqueBytes<struct TokensDigestTag, 32>;
TokensDigest DigestTokens(std::span<const Token> tokens);

// The leading tokens of a segment by which it is found among its siblings. A prefix that leaves a
// segment earlier than this does not use it at all: whoever shares no more than the words of a chat
// template with somebody else's conversation (5 or 6 tokens, with a long role header 20) neither
// depends on its bytes nor keeps them alive, and pays at most 32 computed tokens for that, an
// eighth of a segment. Part of the catalog's format.
inline constexpr TokenCount kHeadTokens = 32;

// Of the head of a segment, to find it by; says nothing with certainty.
std::uint64_t HashHead(std::span<const Token> tokens);

// Goes over a head token by token; Value() is HashHead of those so far.
class HeadHasher {
 public:
  void Update(Token token) {
    value_ = (value_ ^ static_cast<std::uint32_t>(token)) * 0xD6E8FEB86659FD93ULL;
    value_ ^= value_ >> 32;
  }
  std::uint64_t Value() const { return value_; }

 private:
  std::uint64_t value_ = 0x9E3779B97F4A7C15ULL;
};

}  // namespace skippy
