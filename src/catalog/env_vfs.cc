#include "catalog/env_vfs.h"

#include <sqlite3.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <new>
#include <random>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace skippy {

struct EnvVfsState {
  explicit EnvVfsState(Env* the_env) : env(the_env) {}

  Env* const env;
  std::string name;
  sqlite3_vfs vfs{};
  std::atomic<int> last_errno = 0;
};

namespace {

constexpr int kSectorBytes = 4096;
constexpr int kPathBytesMax = 4096;

// SQLite allocates the memory; Open constructs this in it and Close destroys it.
struct VfsFile {
  sqlite3_file base{};
  EnvVfsState* vfs = nullptr;
  std::string path;
  std::unique_ptr<File> file;
  std::unique_ptr<FileLock> lock;
  bool is_new = false;  // its directory entry is not durable yet
  bool delete_on_close = false;
};

EnvVfsState& StateOf(sqlite3_vfs* vfs) { return *static_cast<EnvVfsState*>(vfs->pAppData); }
VfsFile& FileOf(sqlite3_file* file) { return *reinterpret_cast<VfsFile*>(file); }

// Remembers the operating system's word for sqlite3_system_errno and picks SQLite's.
int Fail(EnvVfsState& vfs, const Error& error, int io_code) {
  vfs.last_errno = error.os_errno;
  switch (error.code) {
    case ErrorCode::kNoSpace:
    case ErrorCode::kResourceExhausted:
      return SQLITE_FULL;
    case ErrorCode::kBusy:
      return SQLITE_BUSY;
    default:
      LogWarning("catalog: {}", error.text);
      return io_code;
  }
}

int Close(sqlite3_file* base) {
  VfsFile& file = FileOf(base);
  if (file.delete_on_close) {
    file.file.reset();
    if (const Status removed = file.vfs->env->RemoveFile(file.path); !removed) {
      LogWarning("catalog: {}", removed.error().text);
    }
  }
  file.~VfsFile();
  return SQLITE_OK;
}

int Read(sqlite3_file* base, void* out, int byte_count, sqlite3_int64 offset) {
  VfsFile& file = FileOf(base);
  const auto wanted = static_cast<std::size_t>(byte_count);
  const auto got =
      file.file->ReadAt(static_cast<std::uint64_t>(offset), {static_cast<std::byte*>(out), wanted});
  if (!got) {
    return Fail(*file.vfs, got.error(), SQLITE_IOERR_READ);
  }
  if (*got < wanted) {
    std::memset(static_cast<char*>(out) + *got, 0, wanted - *got);
    return SQLITE_IOERR_SHORT_READ;
  }
  return SQLITE_OK;
}

int Write(sqlite3_file* base, const void* data, int byte_count, sqlite3_int64 offset) {
  VfsFile& file = FileOf(base);
  const Status written = file.file->WriteAt(
      static_cast<std::uint64_t>(offset),
      {static_cast<const std::byte*>(data), static_cast<std::size_t>(byte_count)});
  return written ? SQLITE_OK : Fail(*file.vfs, written.error(), SQLITE_IOERR_WRITE);
}

int Truncate(sqlite3_file* base, sqlite3_int64 byte_count) {
  VfsFile& file = FileOf(base);
  const Status cut = file.file->Truncate(static_cast<std::uint64_t>(byte_count));
  return cut ? SQLITE_OK : Fail(*file.vfs, cut.error(), SQLITE_IOERR_TRUNCATE);
}

int Sync(sqlite3_file* base, int /*flags*/) {
  VfsFile& file = FileOf(base);
  if (const Status synced = file.file->Sync(); !synced) {
    return Fail(*file.vfs, synced.error(), SQLITE_IOERR_FSYNC);
  }
  if (file.is_new) {
    const Status synced = file.vfs->env->SyncDirectory(DirectoryOf(file.path));
    if (!synced) {
      return Fail(*file.vfs, synced.error(), SQLITE_IOERR_DIR_FSYNC);
    }
    file.is_new = false;
  }
  return SQLITE_OK;
}

int FileSize(sqlite3_file* base, sqlite3_int64* out) {
  VfsFile& file = FileOf(base);
  const auto bytes = file.file->FileBytes();
  if (!bytes) {
    return Fail(*file.vfs, bytes.error(), SQLITE_IOERR_FSTAT);
  }
  *out = static_cast<sqlite3_int64>(*bytes);
  return SQLITE_OK;
}

// One connection only: the lock that Open took stands for all of SQLite's.
int Lock(sqlite3_file* /*file*/, int /*level*/) { return SQLITE_OK; }
int Unlock(sqlite3_file* /*file*/, int /*level*/) { return SQLITE_OK; }
int CheckReservedLock(sqlite3_file* /*file*/, int* out) {
  *out = 0;
  return SQLITE_OK;
}
int FileControl(sqlite3_file* /*file*/, int /*operation*/, void* /*argument*/) {
  return SQLITE_NOTFOUND;
}
int SectorSize(sqlite3_file* /*file*/) { return kSectorBytes; }
int DeviceCharacteristics(sqlite3_file* /*file*/) {
  // A power cut during a write damages no byte outside the range written.
  return SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}

const sqlite3_io_methods* Methods() {
  static const sqlite3_io_methods methods = [] {
    sqlite3_io_methods m{};
    m.iVersion = 1;  // no shared memory: WAL works in locking_mode=EXCLUSIVE only
    m.xClose = Close;
    m.xRead = Read;
    m.xWrite = Write;
    m.xTruncate = Truncate;
    m.xSync = Sync;
    m.xFileSize = FileSize;
    m.xLock = Lock;
    m.xUnlock = Unlock;
    m.xCheckReservedLock = CheckReservedLock;
    m.xFileControl = FileControl;
    m.xSectorSize = SectorSize;
    m.xDeviceCharacteristics = DeviceCharacteristics;
    return m;
  }();
  return &methods;
}

// Opens `name` into `out`. The temporary files that SQLite names itself are refused: the catalog
// keeps temporaries in memory.
int OpenInto(EnvVfsState& vfs, const char* name, int flags, VfsFile& out) {
  if (name == nullptr) {
    return SQLITE_CANTOPEN;
  }
  out.vfs = &vfs;
  out.path = name;
  out.delete_on_close = (flags & SQLITE_OPEN_DELETEONCLOSE) != 0;
  OpenOptions options;
  options.create = (flags & SQLITE_OPEN_CREATE) != 0;
  options.exclusive = options.create && (flags & SQLITE_OPEN_EXCLUSIVE) != 0;
  options.writable = (flags & SQLITE_OPEN_READWRITE) != 0;
  out.is_new = options.create && !vfs.env->Stat(out.path);
  auto file = vfs.env->OpenFile(out.path, options);
  if (!file) {
    return Fail(vfs, file.error(), SQLITE_CANTOPEN);
  }
  out.file = std::move(*file);
  if ((flags & SQLITE_OPEN_MAIN_DB) != 0) {
    auto lock = vfs.env->LockFile(out.path);
    if (!lock) {
      return Fail(vfs, lock.error(), SQLITE_CANTOPEN);
    }
    out.lock = std::move(*lock);
  }
  return SQLITE_OK;
}

int Open(sqlite3_vfs* vfs, const char* name, sqlite3_file* base, int flags, int* out_flags) {
  base->pMethods = nullptr;  // tells SQLite not to call Close when the opening fails
  VfsFile opened;
  const int result = OpenInto(StateOf(vfs), name, flags, opened);
  if (result != SQLITE_OK) {
    return result;
  }
  auto* file = new (base) VfsFile(std::move(opened));
  file->base.pMethods = Methods();
  if (out_flags != nullptr) {
    *out_flags = flags;
  }
  return SQLITE_OK;
}

int Delete(sqlite3_vfs* vfs, const char* name, int sync_directory) {
  EnvVfsState& state = StateOf(vfs);
  if (const Status removed = state.env->RemoveFile(name); !removed) {
    if (removed.error().code == ErrorCode::kNotFound) {
      return SQLITE_IOERR_DELETE_NOENT;
    }
    return Fail(state, removed.error(), SQLITE_IOERR_DELETE);
  }
  if (sync_directory != 0) {
    const Status synced = state.env->SyncDirectory(DirectoryOf(name));
    if (!synced) {
      return Fail(state, synced.error(), SQLITE_IOERR_DIR_FSYNC);
    }
  }
  return SQLITE_OK;
}

int Access(sqlite3_vfs* vfs, const char* name, int flags, int* out) {
  EnvVfsState& state = StateOf(vfs);
  const auto info = state.env->Stat(name);
  *out = 0;
  if (!info) {
    return info.error().code == ErrorCode::kNotFound
               ? SQLITE_OK
               : Fail(state, info.error(), SQLITE_IOERR_ACCESS);
  }
  // An empty journal says as little as none.
  *out = flags != SQLITE_ACCESS_EXISTS || info->file_bytes > 0 ? 1 : 0;
  return SQLITE_OK;
}

// The catalog is opened by its canonical path.
int FullPathname(sqlite3_vfs* /*vfs*/, const char* name, int out_bytes, char* out) {
  const std::size_t byte_count = std::strlen(name) + 1;
  if (byte_count > static_cast<std::size_t>(out_bytes)) {
    return SQLITE_CANTOPEN;
  }
  std::memcpy(out, name, byte_count);
  return SQLITE_OK;
}

int Randomness(sqlite3_vfs* /*vfs*/, int byte_count, char* out) {
  std::random_device device;
  std::generate_n(out, byte_count, [&] { return static_cast<char>(device()); });
  return byte_count;
}

// SQLite sleeps only while it waits for a lock, and here nobody else holds one.
int Sleep(sqlite3_vfs* /*vfs*/, int /*microseconds*/) { return 0; }

int CurrentTimeInt64(sqlite3_vfs* vfs, sqlite3_int64* out) {
  constexpr sqlite3_int64 kUnixEpochInJulianMs = 210'866'760'000'000;
  const auto now =
      std::chrono::duration_cast<std::chrono::milliseconds>(StateOf(vfs).env->WallNow());
  *out = kUnixEpochInJulianMs + now.count();
  return SQLITE_OK;
}

int CurrentTime(sqlite3_vfs* vfs, double* out) {
  constexpr double kMsInDay = 86'400'000.0;
  sqlite3_int64 milliseconds = 0;
  const int result = CurrentTimeInt64(vfs, &milliseconds);
  *out = static_cast<double>(milliseconds) / kMsInDay;
  return result;
}

int GetLastError(sqlite3_vfs* vfs, int /*byte_count*/, char* /*out*/) {
  return StateOf(vfs).last_errno;
}

}  // namespace

EnvVfs::EnvVfs(Env* env) : state_(std::make_unique<EnvVfsState>(env)) {
  state_->name = "skippy-env-" + std::to_string(reinterpret_cast<std::uintptr_t>(state_.get()));
  sqlite3_vfs& vfs = state_->vfs;
  vfs.iVersion = 2;
  vfs.szOsFile = sizeof(VfsFile);
  vfs.mxPathname = kPathBytesMax;
  vfs.zName = state_->name.c_str();
  vfs.pAppData = state_.get();
  vfs.xOpen = Open;
  vfs.xDelete = Delete;
  vfs.xAccess = Access;
  vfs.xFullPathname = FullPathname;
  vfs.xRandomness = Randomness;
  vfs.xSleep = Sleep;
  vfs.xCurrentTime = CurrentTime;
  vfs.xGetLastError = GetLastError;
  vfs.xCurrentTimeInt64 = CurrentTimeInt64;
  SKIPPY_CHECK(sqlite3_vfs_register(&vfs, 0) == SQLITE_OK, "sqlite3_vfs_register");
}

EnvVfs::~EnvVfs() { sqlite3_vfs_unregister(&state_->vfs); }

const char* EnvVfs::name() const { return state_->name.c_str(); }

std::string DirectoryOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) {
    return ".";
  }
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace skippy
