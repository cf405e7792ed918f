// File over a descriptor of a regular file.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "skippy/env.h"

namespace skippy {

// Thread-safe: every call is positional. `path` is for error texts only.
class PosixFile final : public File {
 public:
  // With `direct` the page cache is bypassed where the file system can do that.
  PosixFile(UniqueFd fd, std::string path, bool direct);

  Result<std::size_t> ReadAt(std::uint64_t offset, std::span<std::byte> out) override;
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> bytes) override;
  Status Sync() override;
  Status Allocate(std::uint64_t offset, std::uint64_t byte_count) override;
  Status PunchHole(std::uint64_t offset, std::uint64_t byte_count) override;
  Status Truncate(std::uint64_t byte_count) override;
  Result<std::uint64_t> FileBytes() override;
  Result<std::uint64_t> AllocatedBytes() override;
  void DropPages() override;

 private:
  // After EINVAL: some file systems accept O_DIRECT and refuse the transfer. True, once per call
  // that keeps `tried`, when the transfer should be tried again, now through the page cache.
  bool LeaveDirectMode(bool& tried);

  const UniqueFd fd_;
  const std::string path_;
  std::atomic<bool> direct_;
  std::atomic<bool> poisoned_ = false;  // an fdatasync failed; set once, never cleared
};

// Opens or creates by the rules of OpenOptions; `direct` is PosixFile's business.
Result<UniqueFd> OpenRegularFile(const std::string& path, const OpenOptions& options);

}  // namespace skippy
