// A file system in memory with a clock that stands still until it is told to move: fast,
// deterministic tests. Stricter than the real one where that finds bugs: unaligned direct I/O and
// writes to a file opened read-only are refused.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "env/memory_image.h"
#include "skippy/env.h"

namespace skippy {

// Thread-safe. Outlives every File and FileLock it gave out. Paths are absolute and plain (no "."
// or ".."); there are no symbolic links. Only "/" exists at first.
class MemoryEnv : public Env {
 public:
  MemoryEnv() = default;

  // The directory and its missing ancestors.
  void CreateDirectories(const std::string& path);
  // From now on this many more bytes can be allocated. Without it space is practically endless.
  void SetFreeBytes(std::uint64_t free_bytes) EXCLUDES(mu_);
  // kPreallocating at first; Allocate is kUnsupported with kCopyOnWrite.
  void SetFilesystem(FilesystemKind kind) EXCLUDES(mu_);
  // Both clocks go forward.
  void AdvanceClock(std::chrono::nanoseconds step) EXCLUDES(mu_);

  Result<std::unique_ptr<File>> OpenFile(const std::string& path,
                                         const OpenOptions& options) override;
  Status CreateDirectory(const std::string& path) override;
  Result<std::vector<std::string>> ListDirectory(const std::string& path) override;
  Result<FileInfo> Stat(const std::string& path) override;
  Status SetMode(const std::string& path, std::uint32_t mode) override;
  Status RemoveFile(const std::string& path) override;
  Status RemoveDirectory(const std::string& path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status SyncDirectory(const std::string& path) override;
  Result<std::string> Canonicalize(const std::string& path) override;
  Result<SpaceInfo> Space(const std::string& path) override;
  Result<FilesystemKind> Filesystem(const std::string& path) override;
  Result<std::unique_ptr<FileLock>> LockFile(const std::string& path) override;
  std::chrono::nanoseconds MonotonicNow() override;
  std::chrono::nanoseconds WallNow() override;

 protected:
  // What to do with an operation that is about to happen.
  struct Verdict {
    Status status;  // an error is returned to the caller
    // Of a failing write: the leading bytes that reach the file all the same.
    std::uint64_t applied_bytes = 0;
  };
  // Asked before every operation, without a lock held: it may block.
  virtual Verdict Before(const FileOp& op);
  // Told of every change that was made to the image, in order; of syncs after they succeeded.
  virtual void After(const FileOp& op) REQUIRES(mu_);
  virtual void SyncFailed(NodeId node) REQUIRES(mu_);

  mutable Mutex mu_;
  MemoryImage image_ GUARDED_BY(mu_);
  std::uint64_t next_node_ GUARDED_BY(mu_) = 2;
  std::uint64_t capacity_bytes_ GUARDED_BY(mu_) = std::uint64_t{1} << 50;
  FilesystemKind filesystem_ GUARDED_BY(mu_) = FilesystemKind::kPreallocating;
  std::chrono::nanoseconds now_ GUARDED_BY(mu_) = std::chrono::seconds(1'000'000'000);

 private:
  friend class MemoryFile;
  friend class MemoryFileLock;

  void Change(const FileOp& op) REQUIRES(mu_);
  Status RequireSpace(const FileOp& op) REQUIRES(mu_);
  Status Mutate(FileOp op) EXCLUDES(mu_);
  Status RemoveName(const std::string& path, FileOpKind kind);
  Result<NodeId> OpenNode(const std::string& path, const OpenOptions& options) EXCLUDES(mu_);
  void CloseNode(NodeId node) EXCLUDES(mu_);
  void Unlock(const std::string& path) EXCLUDES(mu_);

  std::map<NodeId, int> open_nodes_ GUARDED_BY(mu_);
  std::set<std::string> locks_ GUARDED_BY(mu_);
};

}  // namespace skippy
