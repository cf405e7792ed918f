#include "catalog/row_digest.h"

#include <cstdint>

#include "base/hash.h"

namespace skippy {
namespace {

constexpr std::size_t kExtentBytes = 12;
constexpr std::size_t kTokenBytes = 4;

void Put32(std::uint32_t value, std::vector<std::byte>& out) {
  for (int shift = 0; shift < 32; shift += 8) {
    out.push_back(static_cast<std::byte>(value >> shift));
  }
}

std::uint32_t Get32(std::span<const std::byte> bytes) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) {
    value = value << 8 | static_cast<std::uint32_t>(bytes[static_cast<std::size_t>(i)]);
  }
  return value;
}

template <class Digest>
void HashBytesOf(const Digest& digest, Hasher& hasher) {
  hasher.Update(digest.bytes.data(), digest.bytes.size());
}

}  // namespace

DomainRoot RootOf(const DomainSpec& spec) {
  Hasher hasher("skippy catalog domain root v1");
  HashBytesOf(spec.model, hasher);
  HashBytesOf(spec.state, hasher);
  hasher.UpdateString(spec.name_space);
  return hasher.Finish<DomainRoot>();
}

RowDigest DigestRow(const DomainRow& row) {
  Hasher hasher("skippy catalog domain v1");
  hasher.UpdateInt(static_cast<std::uint32_t>(row.id));
  HashBytesOf(RootOf(row.spec), hasher);
  hasher.UpdateString(row.spec.model_name);
  return hasher.Finish<RowDigest>();
}

RowDigest DigestRow(const SegmentRow& row, const TokensDigest& tokens, const DomainRoot& root) {
  Hasher hasher("skippy catalog segment v1");
  HashBytesOf(root, hasher);
  hasher.UpdateInt(static_cast<std::uint32_t>(row.domain));
  hasher.UpdateInt(static_cast<std::uint64_t>(row.id));
  hasher.UpdateInt(static_cast<std::uint64_t>(row.parent));
  hasher.UpdateInt(static_cast<std::uint8_t>(row.kind));
  hasher.UpdateInt(row.first_token);
  hasher.UpdateInt(row.token_count);
  HashBytesOf(row.end_hash, hasher);
  HashBytesOf(row.digest, hasher);
  hasher.UpdateInt(row.byte_count);
  hasher.UpdateInt<std::uint64_t>(row.extents.size());
  hasher.Update(EncodeExtents(row.extents));
  HashBytesOf(tokens, hasher);
  hasher.UpdateInt(row.head_hash);
  return hasher.Finish<RowDigest>();
}

RowDigest DigestRow(const ManifestRow& row, const DomainRoot& root) {
  Hasher hasher("skippy catalog manifest v2");
  HashBytesOf(root, hasher);
  hasher.UpdateInt(static_cast<std::uint32_t>(row.domain));
  hasher.UpdateInt(static_cast<std::uint64_t>(row.id));
  hasher.UpdateInt(static_cast<std::uint64_t>(row.tip));
  hasher.UpdateInt(row.token_count);
  hasher.UpdateInt(row.last_use);
  hasher.UpdateInt(row.hits);
  hasher.UpdateInt(row.retained_until_s);
  return hasher.Finish<RowDigest>();
}

RowDigest DigestRow(const Catalog::HighWater& row) {
  Hasher hasher("skippy catalog high water v1");
  hasher.UpdateInt(row.segment);
  hasher.UpdateInt(row.manifest);
  hasher.UpdateInt(row.domain);
  hasher.UpdateInt(row.use_clock);
  return hasher.Finish<RowDigest>();
}

std::vector<std::byte> EncodeExtents(const ExtentList& extents) {
  std::vector<std::byte> out;
  out.reserve(extents.size() * kExtentBytes);
  for (const Extent& extent : extents) {
    Put32(static_cast<std::uint32_t>(extent.pack), out);
    Put32(extent.first_block, out);
    Put32(extent.block_count, out);
  }
  return out;
}

std::optional<ExtentList> DecodeExtents(std::span<const std::byte> bytes) {
  if (bytes.size() % kExtentBytes != 0) {
    return std::nullopt;
  }
  ExtentList out;
  out.reserve(bytes.size() / kExtentBytes);
  for (; !bytes.empty(); bytes = bytes.subspan(kExtentBytes)) {
    out.push_back({PackId{Get32(bytes)}, Get32(bytes.subspan(4)), Get32(bytes.subspan(8))});
  }
  return out;
}

std::vector<std::byte> EncodeTokens(std::span<const Token> tokens) {
  std::vector<std::byte> out;
  out.reserve(tokens.size() * kTokenBytes);
  for (const Token token : tokens) {
    Put32(static_cast<std::uint32_t>(token), out);
  }
  return out;
}

std::optional<std::vector<Token>> DecodeTokens(std::span<const std::byte> bytes) {
  if (bytes.size() % kTokenBytes != 0) {
    return std::nullopt;
  }
  std::vector<Token> out;
  out.reserve(bytes.size() / kTokenBytes);
  for (; !bytes.empty(); bytes = bytes.subspan(kTokenBytes)) {
    out.push_back(static_cast<Token>(Get32(bytes)));
  }
  return out;
}

}  // namespace skippy
