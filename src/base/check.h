// SKIPPY_CHECK: for our own bugs only, always on. Never for bytes from disk or wire.
#pragma once

#include <string_view>

namespace skippy {
[[noreturn]] void CheckFailed(const char* file, int line, const char* expression,
                              std::string_view detail);
}  // namespace skippy

// Ends the process with the expression, the place and `detail` (a string, "" for none).
#define SKIPPY_CHECK(expr, detail)                                     \
  do {                                                                 \
    if (!(expr)) [[unlikely]] {                                        \
      ::skippy::CheckFailed(__FILE__, __LINE__, #expr, (detail));      \
    }                                                                  \
  } while (false)
