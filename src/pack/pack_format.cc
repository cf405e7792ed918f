#include "pack/pack_format.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/coding.h"
#include "base/hash.h"

namespace skippy {
namespace {

constexpr std::string_view kMagic = "SKPYPACK";
constexpr std::string_view kPrefix = "pack-";
constexpr std::string_view kFinished = ".skp";
constexpr std::string_view kUnfinished = ".new";
constexpr std::string_view kHexDigits = "0123456789abcdef";
constexpr std::size_t kIdDigits = 8;

constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kBlockBytesAt = 12;
constexpr std::size_t kPackIdAt = 16;
constexpr std::size_t kPackBytesAt = 24;
constexpr std::size_t kDigestAt = 32;
constexpr std::size_t kDigestEnd = 64;

struct HeaderDigest {
  std::array<unsigned char, kDigestEnd - kDigestAt> bytes{};
};

HeaderDigest DigestOf(ConstPackHeaderBlock block) {
  Hasher hasher;
  hasher.Update(block.first(kDigestAt));
  hasher.Update(block.subspan(kDigestEnd));
  return hasher.Finish<HeaderDigest>();
}

std::string NameOf(PackId pack, std::string_view ending) {
  std::string name(kPrefix);
  const auto value = static_cast<std::uint32_t>(pack);
  for (std::size_t i = 0; i < kIdDigits; ++i) {
    name += kHexDigits[(value >> (4 * (kIdDigits - 1 - i))) & 0xF];
  }
  return name.append(ending);
}

std::optional<PackId> ParseName(std::string_view name, std::string_view ending) {
  if (name.size() != kPrefix.size() + kIdDigits + ending.size() || !name.starts_with(kPrefix) ||
      !name.ends_with(ending)) {
    return std::nullopt;
  }
  std::uint32_t value = 0;
  for (const char digit : name.substr(kPrefix.size(), kIdDigits)) {
    const std::size_t digit_value = kHexDigits.find(digit);
    if (digit_value == std::string_view::npos) {
      return std::nullopt;
    }
    value = value << 4 | static_cast<std::uint32_t>(digit_value);
  }
  return PackId{value};
}

}  // namespace

void EncodePackHeader(const PackHeader& header, PackHeaderBlock out) {
  std::fill(out.begin(), out.end(), std::byte{0});
  std::memcpy(out.data(), kMagic.data(), kMagic.size());
  StoreLittleEndian<std::uint32_t>(&out[kVersionAt], kPackVersion);
  StoreLittleEndian<std::uint32_t>(&out[kBlockBytesAt], kBlockBytes);
  StoreLittleEndian<std::uint32_t>(&out[kPackIdAt], static_cast<std::uint32_t>(header.pack));
  StoreLittleEndian<std::uint64_t>(&out[kPackBytesAt], header.pack_bytes);
  const HeaderDigest digest = DigestOf(out);
  std::memcpy(&out[kDigestAt], digest.bytes.data(), digest.bytes.size());
}

Result<PackHeader> DecodePackHeader(ConstPackHeaderBlock block) {
  if (std::memcmp(block.data(), kMagic.data(), kMagic.size()) != 0) {
    return MakeError(ErrorCode::kCorrupt, "not a pack header");
  }
  const HeaderDigest digest = DigestOf(block);
  if (std::memcmp(&block[kDigestAt], digest.bytes.data(), digest.bytes.size()) != 0) {
    return MakeError(ErrorCode::kCorrupt, "the pack header is damaged");
  }
  const auto version = LoadLittleEndian<std::uint32_t>(&block[kVersionAt]);
  if (version != kPackVersion) {
    return MakeError(ErrorCode::kUnsupported, "pack format version " + std::to_string(version) +
                                                  ", this program reads version " +
                                                  std::to_string(kPackVersion));
  }
  const auto block_bytes = LoadLittleEndian<std::uint32_t>(&block[kBlockBytesAt]);
  if (block_bytes != kBlockBytes) {
    return MakeError(ErrorCode::kUnsupported,
                     "pack block size " + std::to_string(block_bytes) + " is not supported");
  }
  const PackHeader header{PackId{LoadLittleEndian<std::uint32_t>(&block[kPackIdAt])},
                          LoadLittleEndian<std::uint64_t>(&block[kPackBytesAt])};
  if (!IsValidPackBytes(header.pack_bytes)) {
    return MakeError(ErrorCode::kCorrupt, "the pack header names an impossible size");
  }
  return header;
}

bool IsValidPackBytes(std::uint64_t pack_bytes) {
  return pack_bytes % kBlockBytes == 0 && pack_bytes >= kMinimumPackBytes &&
         pack_bytes <= kMaximumPackBytes;
}

std::string PackFileName(PackId pack) { return NameOf(pack, kFinished); }
std::string UnfinishedPackFileName(PackId pack) { return NameOf(pack, kUnfinished); }

std::optional<PackId> ParsePackFileName(std::string_view name) {
  return ParseName(name, kFinished);
}
std::optional<PackId> ParseUnfinishedPackFileName(std::string_view name) {
  return ParseName(name, kUnfinished);
}

}  // namespace skippy
