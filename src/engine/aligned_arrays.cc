#include "engine/aligned_arrays.h"

#ifndef SKIPPY_SANITIZED
#include <cstdlib>
#include <new>

namespace {

constexpr std::size_t kCacheLineBytes = 64;
constexpr std::size_t kLargeBytes = 4096;

void* AllocateArray(std::size_t byte_count) {
  if (byte_count < kLargeBytes) {
    return std::malloc(byte_count == 0 ? 1 : byte_count);
  }
  if (byte_count > static_cast<std::size_t>(-1) - kCacheLineBytes) {
    return nullptr;
  }
  const std::size_t lines = (byte_count + kCacheLineBytes - 1) / kCacheLineBytes;
  return std::aligned_alloc(kCacheLineBytes, lines * kCacheLineBytes);
}

}  // namespace

void* operator new[](std::size_t byte_count) {
  while (true) {
    if (void* const memory = AllocateArray(byte_count)) {
      return memory;
    }
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) {
      throw std::bad_alloc();
    }
    handler();
  }
}

void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t /*byte_count*/) noexcept { std::free(memory); }
#endif  // SKIPPY_SANITIZED

namespace skippy {

void UseAlignedArrays() {}

}  // namespace skippy
