// Goal: the working memory that llama.cpp takes begins at a cache line, wherever the heap lies.
#ifndef SKIPPY_SANITIZED
#include "engine/aligned_arrays.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <vector>

namespace skippy {
namespace {

TEST(AlignedArraysTest, LargeArraysBeginAtACacheLine) {
  UseAlignedArrays();
  std::vector<std::unique_ptr<std::uint8_t[]>> held;
  for (std::size_t byte_count = 4096; byte_count < (std::size_t{8} << 20);
       byte_count = byte_count * 5 / 4 + 24) {
    held.emplace_back(new std::uint8_t[byte_count]);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(held.back().get()) % 64, 0U) << byte_count;
    held.emplace_back(new std::uint8_t[24]);  // moves the heap on
  }
}

TEST(AlignedArraysTest, MoreThanThereIsThrows) {
  volatile std::size_t too_many = std::numeric_limits<std::size_t>::max() / 2;
  EXPECT_THROW(::operator delete[](::operator new[](too_many)), std::bad_alloc);
}

}  // namespace
}  // namespace skippy
#endif  // SKIPPY_SANITIZED
