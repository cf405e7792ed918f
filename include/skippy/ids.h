// The value types that name things: tokens, digests and row ids. Everything here is a plain value,
// copyable and comparable, without ownership or thread affinity.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace skippy {

// A vocabulary id, as the engine's tokenizer numbers it.
using Token = std::int32_t;

// A number of tokens, or a position in a token path (the position before the n-th token is n).
// Never negative.
using TokenCount = std::int32_t;

// Longest run of tokens that one segment may hold (docs/design: cut rule).
inline constexpr TokenCount kMaxSegmentTokens = 256;

// N opaque bytes that identify something. Tag keeps digests of different things apart.
template <class Tag, std::size_t N>
struct OpaqueBytes {
  static constexpr std::size_t kByteCount = N;
  std::array<std::uint8_t, N> bytes{};

  friend bool operator==(const OpaqueBytes&, const OpaqueBytes&) = default;
  friend auto operator<=>(const OpaqueBytes&, const OpaqueBytes&) = default;

  bool IsZero() const { return *this == OpaqueBytes{}; }

  // Lower-case hexadecimal, 2 * N characters.
  std::string ToHex() const {
    static constexpr std::string_view kDigits = "0123456789abcdef";
    std::string out;
    out.reserve(2 * N);
    for (const std::uint8_t byte : bytes) {
      out.push_back(kDigits[byte >> 4]);
      out.push_back(kDigits[byte & 15]);
    }
    return out;
  }
};

// What the weights are: every shard's content, adapters and control vectors (32-byte BLAKE3).
using ModelIdentity = OpaqueBytes<struct ModelIdentityTag, 32>;
// Model identity plus everything else that changes the bytes of exported state (32-byte BLAKE3).
using StateIdentity = OpaqueBytes<struct StateIdentityTag, 32>;
// BLAKE3 of a segment's payload bytes: integrity, never identity.
using SegmentDigest = OpaqueBytes<struct SegmentDigestTag, 32>;
// BLAKE3 over all fields of one catalog row.
using RowDigest = OpaqueBytes<struct RowDigestTag, 32>;
// First 16 bytes of BLAKE3 over (domain root, tokens [0, n)): names a token path of n tokens.
using PathHash = OpaqueBytes<struct PathHashTag, 16>;

// A row of the catalog's segment table. Unique for the life of one cache root; 0 means "none"
// (the root of a token path).
enum class SegmentId : std::uint64_t { kNone = 0 };
// A row of the manifest table; 0 means "none".
enum class ManifestId : std::uint64_t { kNone = 0 };
// One (state identity, namespace) pair; 0 means "none".
enum class DomainId : std::uint32_t { kNone = 0 };

// Hash functor for the digests above: they are uniformly distributed, so the leading bytes do.
struct LeadingBytesHash {
  template <class Tag, std::size_t N>
  std::size_t operator()(const OpaqueBytes<Tag, N>& value) const {
    std::size_t out = 0;
    static_assert(N >= sizeof(out));
    std::memcpy(&out, value.bytes.data(), sizeof(out));
    return out;
  }
};

}  // namespace skippy
