// One pack on disk: making it, opening it, and moving payload to and from its blocks.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "pack/open_packs.h"
#include "pack/pack_format.h"
#include "skippy/env.h"
#include "skippy/result.h"

namespace skippy {

// Where the packs live and how they are accessed.
struct PackPlace {
  Env* env = nullptr;  // outlives every PackFile
  std::string directory;
  bool direct_io = true;
  std::shared_ptr<OpenPacks> open_packs;
};

// Thread-safe; knows nothing of which blocks are in use. The file is opened when it is needed.
class PackFile {
 public:
  ~PackFile() { place_.open_packs->Forget(header_.pack); }
  PackFile(const PackFile&) = delete;
  PackFile& operator=(const PackFile&) = delete;

  // Makes the pack, complete and durable (file, name, header) when it returns. Leaves no file
  // behind on failure. kNoSpace when the file system cannot promise the bytes.
  static Result<std::shared_ptr<PackFile>> Create(const PackPlace& place, const PackHeader& header);
  // kCorrupt or kUnsupported by the header; kCorrupt also when the header names another pack, or
  // the file is longer than it says. A file cut short is accepted: what lies behind its end reads
  // as kCorrupt.
  static Result<std::shared_ptr<PackFile>> Open(const PackPlace& place, PackId pack);

  // Writes `bytes` from the start of `first_block`, padded with zeros to a whole block. The caller
  // has checked that the blocks lie inside the pack.
  Status Write(std::uint32_t first_block, std::span<const std::byte> bytes);
  // Fills `out` from the start of `first_block`. kCorrupt when the file is shorter.
  Status Read(std::uint32_t first_block, std::span<std::byte> out) const;
  Status Sync();

  // Gives the space of blocks back to the file system, or takes it again; nothing needs what they
  // hold. Where space cannot be promised, taking it does nothing.
  Status Punch(std::uint32_t first_block, std::uint32_t block_count);
  Status Back(std::uint32_t first_block, std::uint32_t block_count);

  // Bytes of the pack for which the file system holds no blocks yet: it may still ask for them.
  Result<std::uint64_t> UnbackedBytes() const;

  PackId id() const { return header_.pack; }
  std::uint64_t pack_bytes() const { return header_.pack_bytes; }
  // Blocks behind the header.
  Extent Payload() const;

 private:
  PackFile(const PackHeader& header, const PackPlace& place);

  Result<std::shared_ptr<File>> Acquire() const;

  bool MustCopy(const std::byte* data) const;
  Status ReadCopied(File& file, std::uint64_t offset, std::span<std::byte> out) const;
  Status ReadWhole(File& file, std::uint64_t offset, std::span<std::byte> out) const;

  const PackHeader header_;
  const PackPlace place_;
  const std::string path_;
};

}  // namespace skippy
