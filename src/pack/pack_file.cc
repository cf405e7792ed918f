#include "pack/pack_file.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

#include "base/log.h"

namespace skippy {
namespace {

// Of the detour for buffers that direct I/O cannot use: large enough to hide the call.
constexpr std::size_t kBounceBytes = 256 * 1024;

struct alignas(kBlockBytes) Block {
  std::array<std::byte, kBlockBytes> bytes;
};

std::uint64_t RoundUpToBlock(std::uint64_t byte_count) {
  return (byte_count + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

struct AlignedDelete {
  void operator()(std::byte* bytes) const {
    ::operator delete[](bytes, std::align_val_t{kBlockBytes});
  }
};

// An aligned detour for `byte_count` bytes, at most kBounceBytes, whole blocks.
class Bounce {
 public:
  explicit Bounce(std::size_t byte_count)
      : byte_count_(std::min<std::size_t>(kBounceBytes, RoundUpToBlock(byte_count))),
        bytes_(new (std::align_val_t{kBlockBytes}) std::byte[byte_count_]) {}
  std::span<std::byte> first(std::size_t byte_count) {
    return std::span(bytes_.get(), byte_count_).first(byte_count);
  }

 private:
  const std::size_t byte_count_;
  const std::unique_ptr<std::byte[], AlignedDelete> bytes_;
};

std::string PathOf(const PackPlace& place, const std::string& name) {
  return place.directory + "/" + name;
}

Status WriteHeader(File& file, const PackHeader& header) {
  Block block;
  EncodePackHeader(header, block.bytes);
  return file.WriteAt(0, block.bytes);
}

// Reserves the space of a new pack. Where the file system cannot promise it, only the apparent
// size is set: the caller's free-space check is the reservation then.
Status Reserve(File& file, std::uint64_t pack_bytes) {
  const Status allocated = file.Allocate(0, pack_bytes);
  if (allocated || allocated.error().code != ErrorCode::kUnsupported) {
    return allocated;
  }
  return file.Truncate(pack_bytes);
}

// The order is the promise: space, header, file durable; then the name, then the name durable.
Status Build(const PackPlace& place, const PackHeader& header, File& file) {
  SKIPPY_RETURN_IF_ERROR(Reserve(file, header.pack_bytes));
  SKIPPY_RETURN_IF_ERROR(WriteHeader(file, header));
  SKIPPY_RETURN_IF_ERROR(file.Sync());
  SKIPPY_RETURN_IF_ERROR(place.env->Rename(PathOf(place, UnfinishedPackFileName(header.pack)),
                                           PathOf(place, PackFileName(header.pack))));
  return place.env->SyncDirectory(place.directory);
}

Status WriteCopied(File& file, std::uint64_t offset, std::span<const std::byte> bytes) {
  if (bytes.empty()) {
    return {};
  }
  Bounce bounce(bytes.size());
  for (std::size_t done = 0; done < bytes.size(); done += kBounceBytes) {
    const auto part = bytes.subspan(done, std::min(kBounceBytes, bytes.size() - done));
    const std::size_t padded_bytes = RoundUpToBlock(part.size());
    const std::span<std::byte> copy = bounce.first(padded_bytes);
    std::memcpy(copy.data(), part.data(), part.size());
    std::memset(copy.data() + part.size(), 0, padded_bytes - part.size());
    SKIPPY_RETURN_IF_ERROR(file.WriteAt(offset + done, copy));
  }
  return {};
}

// What a failed Build left: one of the two names, or none.
void RemoveRemains(const PackPlace& place, PackId pack) {
  for (const std::string& name : {UnfinishedPackFileName(pack), PackFileName(pack)}) {
    const Status removed = place.env->RemoveFile(PathOf(place, name));
    if (!removed && removed.error().code != ErrorCode::kNotFound) {
      LogWarning("pack {}: {}", name, removed.error().text);
    }
  }
}

}  // namespace

Result<std::shared_ptr<PackFile>> PackFile::Create(const PackPlace& place,
                                                   const PackHeader& header) {
  OpenOptions options;
  options.create = options.exclusive = options.writable = true;
  options.direct = place.direct_io;
  SKIPPY_ASSIGN_OR_RETURN(
      std::unique_ptr<File> file,
      place.env->OpenFile(PathOf(place, UnfinishedPackFileName(header.pack)), options));
  const Status built = Build(place, header, *file);
  if (!built) {
    file.reset();
    RemoveRemains(place, header.pack);
    return built.error().WithContext("new pack");
  }
  place.open_packs->Adopt(header.pack, std::move(file));
  return std::shared_ptr<PackFile>(new PackFile(header, place));
}

Result<std::shared_ptr<PackFile>> PackFile::Open(const PackPlace& place, PackId pack) {
  const std::string path = PathOf(place, PackFileName(pack));
  SKIPPY_ASSIGN_OR_RETURN(const std::shared_ptr<File> file,
                          place.open_packs->Acquire(pack, path, place.direct_io));
  SKIPPY_ASSIGN_OR_RETURN(const std::uint64_t file_bytes, file->FileBytes());
  Block block;
  SKIPPY_ASSIGN_OR_RETURN(const std::size_t read_bytes, file->ReadAt(0, block.bytes));
  if (read_bytes != kBlockBytes) {
    return MakeError(ErrorCode::kCorrupt, path + ": shorter than a pack header");
  }
  Result<PackHeader> header = DecodePackHeader(block.bytes);
  if (!header) {
    return header.error().WithContext(path);
  }
  if (header->pack != pack || file_bytes > header->pack_bytes) {
    return MakeError(ErrorCode::kCorrupt, path + ": the header belongs to another file");
  }
  return std::shared_ptr<PackFile>(new PackFile(*header, place));
}

PackFile::PackFile(const PackHeader& header, const PackPlace& place)
    : header_(header), place_(place), path_(PathOf(place, PackFileName(header.pack))) {}

Result<std::shared_ptr<File>> PackFile::Acquire() const {
  return place_.open_packs->Acquire(header_.pack, path_, place_.direct_io);
}

bool PackFile::MustCopy(const std::byte* data) const {
  return place_.direct_io && reinterpret_cast<std::uintptr_t>(data) % kBlockBytes != 0;
}

Status PackFile::Write(std::uint32_t first_block, std::span<const std::byte> bytes) {
  const std::uint64_t offset = std::uint64_t{first_block} * kBlockBytes;
  SKIPPY_ASSIGN_OR_RETURN(
      const std::shared_ptr<File> file,
      place_.open_packs->AcquireForWrite(header_.pack, path_, place_.direct_io));
  if (MustCopy(bytes.data())) {
    return WriteCopied(*file, offset, bytes);
  }
  const std::size_t whole_bytes = bytes.size() / kBlockBytes * kBlockBytes;
  if (whole_bytes > 0) {
    SKIPPY_RETURN_IF_ERROR(file->WriteAt(offset, bytes.first(whole_bytes)));
  }
  return WriteCopied(*file, offset + whole_bytes, bytes.subspan(whole_bytes));
}

Status PackFile::ReadWhole(File& file, std::uint64_t offset, std::span<std::byte> out) const {
  SKIPPY_ASSIGN_OR_RETURN(const std::size_t read_bytes, file.ReadAt(offset, out));
  if (read_bytes != out.size()) {
    return MakeError(ErrorCode::kCorrupt, PackFileName(header_.pack) + " ends before byte " +
                                              std::to_string(offset + out.size()));
  }
  return {};
}

Status PackFile::ReadCopied(File& file, std::uint64_t offset, std::span<std::byte> out) const {
  if (out.empty()) {
    return {};
  }
  Bounce bounce(out.size());
  for (std::size_t done = 0; done < out.size(); done += kBounceBytes) {
    const auto part = out.subspan(done, std::min(kBounceBytes, out.size() - done));
    const std::span<std::byte> copy = bounce.first(RoundUpToBlock(part.size()));
    SKIPPY_RETURN_IF_ERROR(ReadWhole(file, offset + done, copy));
    std::memcpy(part.data(), copy.data(), part.size());
  }
  return {};
}

Status PackFile::Read(std::uint32_t first_block, std::span<std::byte> out) const {
  const std::uint64_t offset = std::uint64_t{first_block} * kBlockBytes;
  SKIPPY_ASSIGN_OR_RETURN(const std::shared_ptr<File> file, Acquire());
  if (MustCopy(out.data())) {
    return ReadCopied(*file, offset, out);
  }
  const std::size_t whole_bytes = out.size() / kBlockBytes * kBlockBytes;
  if (whole_bytes > 0) {
    SKIPPY_RETURN_IF_ERROR(ReadWhole(*file, offset, out.first(whole_bytes)));
  }
  return ReadCopied(*file, offset + whole_bytes, out.subspan(whole_bytes));
}

Status PackFile::Sync() { return place_.open_packs->Sync(header_.pack); }

// At the end of the file its size goes with the space.
Status PackFile::Punch(std::uint32_t first_block, std::uint32_t block_count) {
  const std::uint64_t offset = std::uint64_t{first_block} * kBlockBytes;
  const std::uint64_t byte_count = std::uint64_t{block_count} * kBlockBytes;
  SKIPPY_ASSIGN_OR_RETURN(const std::shared_ptr<File> file, Acquire());
  SKIPPY_ASSIGN_OR_RETURN(const std::uint64_t file_bytes, file->FileBytes());
  if (offset >= file_bytes) return {};
  if (offset + byte_count < file_bytes) return file->PunchHole(offset, byte_count);
  return file->Truncate(offset);
}

Status PackFile::Back(std::uint32_t first_block, std::uint32_t block_count) {
  const std::uint64_t offset = std::uint64_t{first_block} * kBlockBytes;
  const std::uint64_t byte_count = std::uint64_t{block_count} * kBlockBytes;
  SKIPPY_ASSIGN_OR_RETURN(const std::shared_ptr<File> file, Acquire());
  const Status backed = file->Allocate(offset, byte_count);
  if (backed || backed.error().code != ErrorCode::kUnsupported) return backed;
  SKIPPY_ASSIGN_OR_RETURN(const std::uint64_t file_bytes, file->FileBytes());
  return offset + byte_count > file_bytes ? file->Truncate(offset + byte_count) : Status{};
}

Result<std::uint64_t> PackFile::UnbackedBytes() const {
  const Result<FileInfo> info = place_.env->Stat(path_);
  if (!info && info.error().code == ErrorCode::kNotFound) return 0;  // deleted meanwhile
  if (!info) return info.error();
  return header_.pack_bytes - std::min(header_.pack_bytes, info->allocated_bytes);
}

Extent PackFile::Payload() const {
  const std::uint64_t block_count = header_.pack_bytes / kBlockBytes - 1;
  return Extent{header_.pack, 1, static_cast<std::uint32_t>(block_count)};
}

}  // namespace skippy
