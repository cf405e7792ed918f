#include "env/posix_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "env/os_error.h"

namespace skippy {
namespace {

constexpr mode_t kFileMode = 0600;
constexpr std::size_t kDirectAlignment = 4096;

// Calls `call` until it is not interrupted by a signal.
template <class F>
auto RetryInterrupted(F call) {
  auto result = call();
  while (result < 0 && errno == EINTR) {
    result = call();
  }
  return result;
}

// O_NONBLOCK: opening a FIFO that somebody put in the way must not hang; regular files ignore it.
int OpenFlags(const OpenOptions& options) {
  return (options.writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK;
}

Result<UniqueFd> OpenExisting(const std::string& path, int flags) {
  UniqueFd fd(RetryInterrupted([&] { return ::open(path.c_str(), flags); }));
  if (!fd.valid()) {
    return OsError("open", path, errno);
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) {
    return OsError("stat", path, errno);
  }
  if (!S_ISREG(info.st_mode)) {
    return MakeError(ErrorCode::kInvalidArgument, path + " is not a regular file");
  }
  return fd;
}

Result<UniqueFd> CreateNew(const std::string& path, int flags) {
  UniqueFd fd(
      RetryInterrupted([&] { return ::open(path.c_str(), flags | O_CREAT | O_EXCL, kFileMode); }));
  if (!fd.valid()) {
    return OsError("create", path, errno);
  }
  if (::fchmod(fd.get(), kFileMode) != 0) {
    const int error = errno;
    ::unlink(path.c_str());
    return OsError("set the permissions of", path, error);
  }
  return fd;
}

Result<UniqueFd> OpenOrCreate(const std::string& path, const OpenOptions& options, int flags) {
  // A file may vanish or appear between the two calls; more than a few rounds is not by chance.
  for (int round = 0;; ++round) {
    if (options.create) {
      Result<UniqueFd> created = CreateNew(path, flags);
      if (created || options.exclusive || created.error().code != ErrorCode::kAlreadyExists) {
        return created;
      }
    }
    Result<UniqueFd> opened = OpenExisting(path, flags);
    if (opened || !options.create || opened.error().code != ErrorCode::kNotFound || round >= 3) {
      return opened;
    }
  }
}

// Set after opening: a refused O_DIRECT then costs nothing and leaves no half-made file.
bool SetDirect(int fd, bool on) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

}  // namespace

Result<UniqueFd> OpenRegularFile(const std::string& path, const OpenOptions& options) {
  return OpenOrCreate(path, options, OpenFlags(options));
}

PosixFile::PosixFile(UniqueFd fd, std::string path, bool direct)
    : fd_(std::move(fd)), path_(std::move(path)), direct_(direct && SetDirect(fd_.get(), true)) {}

bool PosixFile::LeaveDirectMode(bool& tried) {
  if (std::exchange(tried, true)) {
    return false;
  }
  direct_ = false;
  return SetDirect(fd_.get(), false);
}

Result<std::size_t> PosixFile::ReadAt(std::uint64_t offset, std::span<std::byte> out) {
  bool tried = false;
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t count =
        ::pread(fd_.get(), out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (count < 0) {
      if (errno == EINTR || (errno == EINVAL && LeaveDirectMode(tried))) {
        continue;
      }
      return OsError("read", path_, errno);
    }
    done += static_cast<std::size_t>(count);
    // A direct read that ends off the alignment met the end of the file; going on would be EINVAL.
    if (count == 0 || (direct_ && count % kDirectAlignment != 0)) {
      break;
    }
  }
  return done;
}

Status PosixFile::WriteAt(std::uint64_t offset, std::span<const std::byte> bytes) {
  bool tried = false;
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::pwrite(fd_.get(), bytes.data() + done, bytes.size() - done,
                                   static_cast<off_t>(offset + done));
    if (count < 0) {
      if (errno == EINTR || (errno == EINVAL && LeaveDirectMode(tried))) {
        continue;
      }
      return OsError("write", path_, errno);
    }
    if (count == 0) {
      return OsError("write", path_, EIO);
    }
    done += static_cast<std::size_t>(count);
  }
  return {};
}

Status PosixFile::Sync() {
  if (poisoned_) {
    return MakeError(ErrorCode::kIo, "an earlier sync of " + path_ + " failed", EIO);
  }
  if (RetryInterrupted([&] { return ::fdatasync(fd_.get()); }) != 0) {
    const int error = errno;
    poisoned_ = true;
    return OsError("sync", path_, error);
  }
  return {};
}

Status PosixFile::Allocate(std::uint64_t offset, std::uint64_t byte_count) {
  if (RetryInterrupted([&] {
        return ::fallocate(fd_.get(), 0, static_cast<off_t>(offset),
                           static_cast<off_t>(byte_count));
      }) != 0) {
    return OsError("preallocate", path_, errno);
  }
  return {};
}

Status PosixFile::PunchHole(std::uint64_t offset, std::uint64_t byte_count) {
  if (RetryInterrupted([&] {
        return ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                           static_cast<off_t>(offset), static_cast<off_t>(byte_count));
      }) != 0) {
    return OsError("punch a hole into", path_, errno);
  }
  return {};
}

Status PosixFile::Truncate(std::uint64_t byte_count) {
  if (RetryInterrupted([&] { return ::ftruncate(fd_.get(), static_cast<off_t>(byte_count)); }) !=
      0) {
    return OsError("truncate", path_, errno);
  }
  return {};
}

Result<std::uint64_t> PosixFile::FileBytes() {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) {
    return OsError("stat", path_, errno);
  }
  return static_cast<std::uint64_t>(info.st_size);
}

Result<std::uint64_t> PosixFile::AllocatedBytes() {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) {
    return OsError("stat", path_, errno);
  }
  return static_cast<std::uint64_t>(info.st_blocks) * 512;
}

void PosixFile::DropPages() { ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED); }

}  // namespace skippy
