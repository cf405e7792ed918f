// Fixed-width little-endian integers in byte arrays, independent of the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace skippy {

template <class T>
void StoreLittleEndian(std::byte* out, T value) {
  static_assert(std::is_unsigned_v<T>);
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    out[i] = static_cast<std::byte>(value >> (8 * i));
  }
}

template <class T>
T LoadLittleEndian(const std::byte* in) {
  static_assert(std::is_unsigned_v<T>);
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value = static_cast<T>(value | (static_cast<T>(in[i]) << (8 * i)));
  }
  return value;
}

}  // namespace skippy
