#include "env/posix_env.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/unique_fd.h"
#include "env/mount_kind.h"
#include "env/os_error.h"
#include "env/posix_file.h"

namespace skippy {
namespace {

constexpr mode_t kDirectoryMode = 0700;

std::chrono::nanoseconds Now(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

std::int64_t Nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

FileKind KindOf(mode_t mode) {
  if (S_ISREG(mode)) {
    return FileKind::kRegular;
  }
  if (S_ISDIR(mode)) {
    return FileKind::kDirectory;
  }
  return S_ISLNK(mode) ? FileKind::kSymlink : FileKind::kOther;
}

// Both kinds of lock belong to the open file description: a second open of the same file in this
// process conflicts, and O_CLOEXEC keeps programs that we start from holding them.
class PosixFileLock final : public FileLock {
 public:
  explicit PosixFileLock(UniqueFd fd) : fd_(std::move(fd)) {}

 private:
  UniqueFd fd_;
};

// The lock that programs see which know record locks only, such as a database shell.
Status LockAllRecords(int fd, const std::string& path) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(fd, F_OFD_SETLK, &whole) != 0) {
    // Held by somebody is EAGAIN or EACCES.
    return OsError("lock", path, errno == EACCES ? EWOULDBLOCK : errno);
  }
  return {};
}

bool IsSameFile(int fd, const std::string& path) {
  struct stat by_fd {};
  struct stat by_path {};
  return ::fstat(fd, &by_fd) == 0 && ::lstat(path.c_str(), &by_path) == 0 &&
         by_fd.st_dev == by_path.st_dev && by_fd.st_ino == by_path.st_ino;
}

Result<UniqueFd> OpenDirectory(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) {
    return OsError("open directory", path, errno);
  }
  return fd;
}

struct DirCloser {
  void operator()(DIR* dir) const { ::closedir(dir); }
};

}  // namespace

Result<std::unique_ptr<File>> PosixEnv::OpenFile(const std::string& path,
                                                 const OpenOptions& options) {
  SKIPPY_ASSIGN_OR_RETURN(UniqueFd fd, OpenRegularFile(path, options));
  return std::unique_ptr<File>(std::make_unique<PosixFile>(std::move(fd), path, options.direct));
}

Status PosixEnv::CreateDirectory(const std::string& path) {
  if (::mkdir(path.c_str(), kDirectoryMode) != 0) {
    return OsError("create directory", path, errno);
  }
  // By name: under a harsh umask the new directory cannot even be opened by its owner.
  if (::chmod(path.c_str(), kDirectoryMode) != 0) {
    const int error = errno;
    ::rmdir(path.c_str());
    return OsError("set the permissions of", path, error);
  }
  return {};
}

Result<std::vector<std::string>> PosixEnv::ListDirectory(const std::string& path) {
  std::unique_ptr<DIR, DirCloser> dir(::opendir(path.c_str()));
  if (!dir) {
    return OsError("list", path, errno);
  }
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") {
      names.emplace_back(name);
    }
    errno = 0;
  }
  if (errno != 0) {
    return OsError("list", path, errno);
  }
  return names;
}

Result<FileInfo> PosixEnv::Stat(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    return OsError("stat", path, errno);
  }
  FileInfo out;
  out.kind = KindOf(info.st_mode);
  out.file_bytes = static_cast<std::uint64_t>(info.st_size);
  out.allocated_bytes = static_cast<std::uint64_t>(info.st_blocks) * 512;
  out.mode = info.st_mode & 07777;
  out.owner = info.st_uid;
  out.device = info.st_dev;
  out.inode = info.st_ino;
  out.modified_ns = Nanoseconds(info.st_mtim);
  out.changed_ns = Nanoseconds(info.st_ctim);
  return out;
}

Status PosixEnv::SetMode(const std::string& path, std::uint32_t mode) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  if (fd.valid()) {
    if (::fchmod(fd.get(), mode) != 0) {
      return OsError("set the permissions of", path, errno);
    }
    return {};
  }
  // Unreadable for its owner, the usual reason to be here: go by name, which must not be a link.
  SKIPPY_ASSIGN_OR_RETURN(const FileInfo info, Stat(path));
  if (info.kind == FileKind::kSymlink) {
    return MakeError(ErrorCode::kInvalidArgument, path + " is a symbolic link", ELOOP);
  }
  if (::chmod(path.c_str(), mode) != 0) {
    return OsError("set the permissions of", path, errno);
  }
  return {};
}

Status PosixEnv::RemoveFile(const std::string& path) {
  if (::unlink(path.c_str()) != 0) {
    return OsError("remove", path, errno);
  }
  return {};
}

Status PosixEnv::RemoveDirectory(const std::string& path) {
  if (::rmdir(path.c_str()) != 0) {
    return OsError("remove directory", path, errno);
  }
  return {};
}

Status PosixEnv::Rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    return OsError("rename", from + " to " + to, errno);
  }
  return {};
}

Status PosixEnv::SyncDirectory(const std::string& path) {
  SKIPPY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenDirectory(path));
  if (::fsync(fd.get()) != 0) {
    return OsError("sync directory", path, errno);
  }
  return {};
}

Result<std::string> PosixEnv::Canonicalize(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> resolved(::realpath(path.c_str(), nullptr),
                                                             &std::free);
  if (!resolved) {
    return OsError("resolve", path, errno);
  }
  return std::string(resolved.get());
}

Result<SpaceInfo> PosixEnv::Space(const std::string& path) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0) {
    return OsError("get the free space of", path, errno);
  }
  const std::uint64_t unit_bytes = info.f_frsize != 0 ? info.f_frsize : info.f_bsize;
  return SpaceInfo{info.f_blocks * unit_bytes, info.f_bavail * unit_bytes};
}

Result<FilesystemKind> PosixEnv::Filesystem(const std::string& path) {
  struct statfs info {};
  if (::statfs(path.c_str(), &info) != 0) {
    return OsError("get the file system of", path, errno);
  }
  // f_type is signed on some machines: take the 32 bits that the magic numbers have.
  const std::uint64_t magic = static_cast<std::uint32_t>(info.f_type);
  if (!IsFuseMagic(magic)) {
    return KindOfMagic(magic);
  }
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) {
    return OsError("stat", path, errno);
  }
  std::ostringstream mounts;
  mounts << std::ifstream("/proc/self/mountinfo").rdbuf();
  return KindOfFuseMount(mounts.str(), major(file.st_dev), minor(file.st_dev));
}

Result<std::unique_ptr<FileLock>> PosixEnv::LockFile(const std::string& path) {
  OpenOptions options;
  options.create = true;
  options.writable = true;
  for (;;) {
    SKIPPY_ASSIGN_OR_RETURN(UniqueFd fd, OpenRegularFile(path, options));
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      return OsError("lock", path, errno);
    }
    SKIPPY_RETURN_IF_ERROR(LockAllRecords(fd.get(), path));
    // Somebody may have removed or replaced the file in between: that lock would protect nothing.
    if (IsSameFile(fd.get(), path)) {
      return std::unique_ptr<FileLock>(std::make_unique<PosixFileLock>(std::move(fd)));
    }
  }
}

std::chrono::nanoseconds PosixEnv::MonotonicNow() { return Now(CLOCK_MONOTONIC); }
std::chrono::nanoseconds PosixEnv::WallNow() { return Now(CLOCK_REALTIME); }

Env* Env::Posix() {
  static Env* const env = new PosixEnv;  // never destroyed: threads may outlive main's statics
  return env;
}

}  // namespace skippy
