// What binds the parts of a catalog row together, and the fixed-width encodings inside its blobs.
// Pure. SQLite has no checksums of its own: a bit that flips anywhere in a row changes its digest.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/token_digest.h"
#include "catalog/catalog.h"
#include "skippy/ids.h"

namespace skippy {

// Model identity, state identity and namespace: what a DomainId stands for. Rows are bound to it
// and not only to the number.
using DomainRoot = OpaqueBytes<struct DomainRootTag, 32>;

DomainRoot RootOf(const DomainSpec& spec);

RowDigest DigestRow(const DomainRow& row);
RowDigest DigestRow(const SegmentRow& row, const TokensDigest& tokens, const DomainRoot& root);
RowDigest DigestRow(const ManifestRow& row, const DomainRoot& root);
RowDigest DigestRow(const Catalog::HighWater& row);

// Little-endian, 32 bits each: pack, first block, block count.
std::vector<std::byte> EncodeExtents(const ExtentList& extents);
std::optional<ExtentList> DecodeExtents(std::span<const std::byte> bytes);

// Little-endian, 32 bits each.
std::vector<std::byte> EncodeTokens(std::span<const Token> tokens);
std::optional<std::vector<Token>> DecodeTokens(std::span<const std::byte> bytes);

}  // namespace skippy
