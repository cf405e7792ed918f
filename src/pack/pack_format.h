// The pack file, version 1. Reader and writer both go by this page.
//
// A pack is a file `pack-XXXXXXXX.skp` (its id in 8 lower-case hex digits) of a fixed number of
// 4096-byte blocks. Block 0 is the header below, written once, when the pack is made. All other
// blocks are payload without any framing: which of them hold what, and the digest of it, is known
// to the catalog alone. A pack is built under the name `pack-XXXXXXXX.new` and renamed when it is
// complete and durable, so that a `.new` file is always rubbish of an interrupted start.
//
//   offset  bytes  field        what a wrong value means
//        0      8  magic        not a pack: somebody else's file; left alone
//        8      4  version      made by another version of the format; left alone, kUnsupported
//       12      4  block bytes  made with another block size; left alone, kUnsupported
//       16      4  pack id      renamed or copied over another pack: extents would lie elsewhere
//       20      4  zero         -
//       24      8  pack bytes   the file was cut or grown since it was made
//       32     32  digest       BLAKE3 of block 0 without this field: any flipped bit in the block
//       64   4032  zero         -
//
// Integers are little-endian. Magic, version and digest keep their places in every version, so that
// a damaged version field is told apart from a newer format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "pack/pack_store.h"
#include "skippy/result.h"

namespace skippy {

inline constexpr std::uint32_t kPackVersion = 1;
inline constexpr std::uint64_t kMinimumPackBytes = 64 * 1024;
// Block numbers are 32 bits wide.
inline constexpr std::uint64_t kMaximumPackBytes = kBlockBytes << 32;

struct PackHeader {
  PackId pack{};
  std::uint64_t pack_bytes = 0;
  friend bool operator==(const PackHeader&, const PackHeader&) = default;
};

using PackHeaderBlock = std::span<std::byte, kBlockBytes>;
using ConstPackHeaderBlock = std::span<const std::byte, kBlockBytes>;

void EncodePackHeader(const PackHeader& header, PackHeaderBlock out);

// kCorrupt when it is not a header or damaged, kUnsupported for another version.
Result<PackHeader> DecodePackHeader(ConstPackHeaderBlock block);

// True for a size that a pack may have.
bool IsValidPackBytes(std::uint64_t pack_bytes);

std::string PackFileName(PackId pack);
std::string UnfinishedPackFileName(PackId pack);
// The id in exactly such a name, else nullopt.
std::optional<PackId> ParsePackFileName(std::string_view name);
std::optional<PackId> ParseUnfinishedPackFileName(std::string_view name);

}  // namespace skippy
