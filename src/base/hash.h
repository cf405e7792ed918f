// BLAKE3, in one place.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

#include <blake3.h>

#include "skippy/ids.h"

namespace skippy {

// Incremental hash. Copyable: a copy goes on from the same state.
class Hasher {
 public:
  Hasher() { blake3_hasher_init(&state_); }
  // Keeps hashes for different purposes apart; `context` is a constant of the program.
  explicit Hasher(std::string_view context) {
    blake3_hasher_init_derive_key_raw(&state_, context.data(), context.size());
  }
  void Update(const void* data, std::size_t byte_count) {
    blake3_hasher_update(&state_, data, byte_count);
  }
  void Update(std::span<const std::byte> bytes) { Update(bytes.data(), bytes.size()); }
  // A fixed-width little-endian integer.
  template <class T>
  void UpdateInt(T value) {
    unsigned char raw[sizeof(T)];
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      raw[i] = static_cast<unsigned char>(static_cast<std::uint64_t>(value) >> (8 * i));
    }
    Update(raw, sizeof(raw));
  }
  // Length-prefixed, so that neighbouring strings cannot run together.
  void UpdateString(std::string_view text) {
    UpdateInt<std::uint64_t>(text.size());
    Update(text.data(), text.size());
  }
  // The leading bytes of the hash of everything so far; more may follow.
  template <class D>
  D Finish() const {
    D out;
    blake3_hasher_finalize(&state_, out.bytes.data(), out.bytes.size());
    return out;
  }

 private:
  blake3_hasher state_;
};

template <class D>
D HashBytes(std::span<const std::byte> bytes) {
  Hasher hasher;
  hasher.Update(bytes);
  return hasher.Finish<D>();
}

}  // namespace skippy
