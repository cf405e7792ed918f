// Env over Linux system calls. Env::Posix() in skippy/env.h is the way to get it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "skippy/env.h"

namespace skippy {

// Stateless. Never follows a symbolic link that is the last component of a file's path; callers
// that accept links (model weights) canonicalise first.
class PosixEnv final : public Env {
 public:
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
};

}  // namespace skippy
