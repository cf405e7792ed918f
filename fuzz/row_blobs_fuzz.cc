// The blobs inside catalog rows (extents, tokens): what is accepted encodes to the same bytes.
#include <algorithm>

#include "base/check.h"
#include "catalog/row_digest.h"

namespace skippy {
namespace {

template <class Decoded>
void CheckSame(const Decoded& decoded, std::span<const std::byte> input,
               std::vector<std::byte> (*encode)(Decoded)) {
  SKIPPY_CHECK(std::ranges::equal(encode(decoded), input), "a blob that is not what it encodes to");
}

void CheckBlob(std::span<const std::byte> input) {
  if (const auto extents = DecodeExtents(input)) {
    SKIPPY_CHECK(std::ranges::equal(EncodeExtents(*extents), input), "extents");
  }
  if (const auto tokens = DecodeTokens(input)) {
    CheckSame<std::span<const Token>>(*tokens, input, EncodeTokens);
  }
}

}  // namespace
}  // namespace skippy

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t byte_count) {
  skippy::CheckBlob(std::as_bytes(std::span(data, byte_count)));
  return 0;
}
