// A block that is accepted as a pack header is exactly the one that the accepted header encodes to;
// a sound header with any one bit flipped is not accepted.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "pack/pack_format.h"

namespace skippy {
namespace {

using Block = std::array<std::byte, kBlockBytes>;

void CheckRaw(std::span<const std::byte> input) {
  Block block{};
  std::copy_n(input.begin(), std::min(input.size(), block.size()), block.begin());
  const auto header = DecodePackHeader(block);
  if (!header) return;
  Block again{};
  EncodePackHeader(*header, again);
  SKIPPY_CHECK(again == block, "a header that is not what it encodes to");
}

void CheckFlipped(std::span<const std::byte> input) {
  std::uint32_t fields[3] = {};
  if (!input.empty()) {
    std::memcpy(fields, input.data(), std::min(input.size(), sizeof(fields)));
  }
  constexpr std::uint64_t kSizes = (kMaximumPackBytes - kMinimumPackBytes) / kBlockBytes + 1;
  const PackHeader header{PackId{fields[0]}, kMinimumPackBytes + fields[1] % kSizes * kBlockBytes};
  Block block{};
  EncodePackHeader(header, block);
  const auto sound = DecodePackHeader(block);
  SKIPPY_CHECK(sound && *sound == header, "a sound header is refused");
  block[fields[2] / 8 % kBlockBytes] ^= std::byte(1 << fields[2] % 8);
  SKIPPY_CHECK(!DecodePackHeader(block), "a flipped bit is not seen");
}

}  // namespace
}  // namespace skippy

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t byte_count) {
  const auto input = std::as_bytes(std::span(data, byte_count));
  skippy::CheckRaw(input);
  skippy::CheckFlipped(input);
  return 0;
}
