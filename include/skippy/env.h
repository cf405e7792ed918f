// The only door to the operating system for the cache library: files, directories, free space,
// locks and clocks. Tests replace it with an in-memory one or with one that crashes, tears and
// fails (src/env/). All methods are thread-safe unless they say otherwise; a File may be used by
// several threads at once with positional calls.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "skippy/result.h"

namespace skippy {

// How a file is opened. Files are created 0600, whatever the umask.
struct OpenOptions {
  bool create = false;     // create it when missing
  bool exclusive = false;  // with create: fail with kAlreadyExists when it exists
  bool writable = false;
  bool direct = false;     // bypass the page cache where possible; buffers, offsets and sizes must
                           // then be multiples of 4096; silently ignored where unsupported
};

class File {
 public:
  virtual ~File() = default;

  // Reads up to out.size() bytes at `offset`; returns the number read, short only at end of file.
  virtual Result<std::size_t> ReadAt(std::uint64_t offset, std::span<std::byte> out) = 0;
  // Writes all bytes at `offset`, extending the file as needed. On error any part may be written.
  virtual Status WriteAt(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  // Makes the written bytes durable (fdatasync). After a failure the file is poisoned: every later
  // Sync fails too, because what reached the medium is unknown.
  virtual Status Sync() = 0;
  // Makes [offset, offset + byte_count) physically allocated (fallocate). kUnsupported where the
  // file system cannot promise it; kNoSpace when it is full.
  virtual Status Allocate(std::uint64_t offset, std::uint64_t byte_count) = 0;
  // Gives the blocks of a 4096-aligned range back to the file system; reads return zeros.
  virtual Status PunchHole(std::uint64_t offset, std::uint64_t byte_count) = 0;
  virtual Status Truncate(std::uint64_t byte_count) = 0;
  virtual Result<std::uint64_t> FileBytes() = 0;       // apparent
  virtual Result<std::uint64_t> AllocatedBytes() = 0;  // physical: st_blocks * 512
  // Drops the file's clean pages from the page cache; a hint, never an error.
  virtual void DropPages() = 0;
};

// An exclusive lock on a file, held until destruction. Not inherited by child processes.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

enum class FileKind { kRegular, kDirectory, kSymlink, kOther };

struct FileInfo {
  FileKind kind = FileKind::kOther;
  std::uint64_t file_bytes = 0;
  std::uint64_t allocated_bytes = 0;
  std::uint32_t mode = 0;  // permission bits only
  std::uint32_t owner = 0;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t modified_ns = 0;  // since the epoch
  std::int64_t changed_ns = 0;
};

struct SpaceInfo {
  std::uint64_t total_bytes = 0;
  std::uint64_t available_bytes = 0;  // to an unprivileged writer (f_bavail)
};

enum class FilesystemKind {
  kPreallocating,  // ext4, xfs: fallocate promises space
  kCopyOnWrite,    // btrfs, zfs, overlay on them: it does not
  kMemory,         // tmpfs
  kNetwork,        // nfs, cifs, sshfs, ...: refused for a cache root
  kUnknown,
};

class Env {
 public:
  virtual ~Env() = default;

  virtual Result<std::unique_ptr<File>> OpenFile(const std::string& path,
                                                 const OpenOptions& options) = 0;
  // Creates one directory, 0700. kAlreadyExists when it exists.
  virtual Status CreateDirectory(const std::string& path) = 0;
  // Names (not paths) of the entries, without "." and "..", in no particular order.
  virtual Result<std::vector<std::string>> ListDirectory(const std::string& path) = 0;
  // Does not follow a symlink at `path` itself.
  virtual Result<FileInfo> Stat(const std::string& path) = 0;
  virtual Status SetMode(const std::string& path, std::uint32_t mode) = 0;
  virtual Status RemoveFile(const std::string& path) = 0;
  virtual Status RemoveDirectory(const std::string& path) = 0;  // must be empty
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  // Makes creations, renames and removals inside the directory durable.
  virtual Status SyncDirectory(const std::string& path) = 0;
  // Absolute path without symlinks, "." and "..": the directory must exist.
  virtual Result<std::string> Canonicalize(const std::string& path) = 0;
  virtual Result<SpaceInfo> Space(const std::string& path) = 0;
  virtual Result<FilesystemKind> Filesystem(const std::string& path) = 0;
  // kBusy when another process, or another FileLock of this one, holds it.
  virtual Result<std::unique_ptr<FileLock>> LockFile(const std::string& path) = 0;

  virtual std::chrono::nanoseconds MonotonicNow() = 0;
  virtual std::chrono::nanoseconds WallNow() = 0;  // since the epoch

  // The real operating system. Never null, lives for ever, thread-safe.
  static Env* Posix();
};

}  // namespace skippy
