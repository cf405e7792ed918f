#include "env/memory_env.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "env/os_error.h"

namespace skippy {

namespace {

constexpr std::uint64_t kDirectAlignment = 4096;

bool IsAligned(std::uint64_t offset, std::span<const std::byte> bytes) {
  return offset % kDirectAlignment == 0 && bytes.size() % kDirectAlignment == 0 &&
         reinterpret_cast<std::uintptr_t>(bytes.data()) % kDirectAlignment == 0;
}

std::vector<NodeId> KeysOf(const std::map<NodeId, int>& nodes) {
  std::vector<NodeId> out;
  for (const auto& [node, count] : nodes) {
    out.push_back(node);
  }
  return out;
}

}  // namespace

class MemoryFile final : public File {
 public:
  MemoryFile(MemoryEnv* env, NodeId node, std::string path, const OpenOptions& options)
      : env_(env), node_(node), path_(std::move(path)), options_(options) {}
  ~MemoryFile() override { env_->CloseNode(node_); }

  Result<std::size_t> ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    if (options_.direct && !IsAligned(offset, out)) {
      return OsError("read (unaligned direct I/O)", path_, EINVAL);
    }
    SKIPPY_RETURN_IF_ERROR(env_->Before(Op(FileOpKind::kRead, offset, out.size())).status);
    MutexLock lock(env_->mu_);
    return env_->image_.Read(node_, offset, out);
  }

  Status WriteAt(std::uint64_t offset, std::span<const std::byte> bytes) override {
    if (options_.direct && !IsAligned(offset, bytes)) {
      return OsError("write (unaligned direct I/O)", path_, EINVAL);
    }
    SKIPPY_RETURN_IF_ERROR(RequireWritable());
    FileOp op = Op(FileOpKind::kWrite, offset, bytes.size());
    op.bytes = bytes;
    const MemoryEnv::Verdict verdict = env_->Before(op);
    if (!verdict.status) {
      op.byte_count = std::min<std::uint64_t>(verdict.applied_bytes, bytes.size());
      op.bytes = bytes.first(op.byte_count);
    }
    MutexLock lock(env_->mu_);
    SKIPPY_RETURN_IF_ERROR(env_->RequireSpace(op));
    if (!op.bytes.empty()) {
      env_->Change(op);
    }
    return verdict.status;
  }

  Status Sync() override {
    if (poisoned_) {
      return OsError("sync (an earlier sync failed)", path_, EIO);
    }
    const FileOp op = Op(FileOpKind::kSync, 0, 0);
    const Status status = env_->Before(op).status;
    MutexLock lock(env_->mu_);
    if (!status) {
      poisoned_ = true;
      env_->SyncFailed(node_);
      return status;
    }
    env_->After(op);
    return {};
  }

  Status Allocate(std::uint64_t offset, std::uint64_t byte_count) override {
    {
      MutexLock lock(env_->mu_);
      if (env_->filesystem_ == FilesystemKind::kCopyOnWrite) {
        return OsError("preallocate", path_, EOPNOTSUPP);
      }
    }
    return Mutate(FileOpKind::kAllocate, offset, byte_count);
  }
  Status PunchHole(std::uint64_t offset, std::uint64_t byte_count) override {
    return Mutate(FileOpKind::kPunchHole, offset, byte_count);
  }
  Status Truncate(std::uint64_t byte_count) override {
    return Mutate(FileOpKind::kTruncate, 0, byte_count);
  }

  Result<std::uint64_t> FileBytes() override {
    MutexLock lock(env_->mu_);
    return std::as_const(env_->image_).Get(node_)->file_bytes;
  }
  Result<std::uint64_t> AllocatedBytes() override {
    MutexLock lock(env_->mu_);
    return env_->image_.AllocatedBytes(node_);
  }
  void DropPages() override {}

 private:
  FileOp Op(FileOpKind kind, std::uint64_t offset, std::uint64_t byte_count) const {
    FileOp op;
    op.kind = kind;
    op.node = node_;
    op.path = path_;
    op.offset = offset;
    op.byte_count = byte_count;
    return op;
  }
  Status RequireWritable() const {
    if (!options_.writable) {
      return OsError("write (opened read-only)", path_, EBADF);
    }
    return {};
  }
  Status Mutate(FileOpKind kind, std::uint64_t offset, std::uint64_t byte_count) {
    SKIPPY_RETURN_IF_ERROR(RequireWritable());
    return env_->Mutate(Op(kind, offset, byte_count));
  }

  MemoryEnv* const env_;
  const NodeId node_;
  const std::string path_;
  const OpenOptions options_;
  std::atomic<bool> poisoned_ = false;
};

class MemoryFileLock final : public FileLock {
 public:
  MemoryFileLock(MemoryEnv* env, std::string path) : env_(env), path_(std::move(path)) {}
  ~MemoryFileLock() override { env_->Unlock(path_); }

 private:
  MemoryEnv* const env_;
  const std::string path_;
};

// ---- observers ----------------------------------------------------------------------------------

MemoryEnv::Verdict MemoryEnv::Before(const FileOp&) { return {}; }
void MemoryEnv::After(const FileOp&) {}
void MemoryEnv::SyncFailed(NodeId) {}

void MemoryEnv::Change(const FileOp& op) {
  image_.Apply(op);
  now_ += std::chrono::nanoseconds(1);
  if (MemoryImage::Node* const node = image_.Get(op.node)) {
    node->modified_ns = now_.count();
  }
  After(op);
}

Status MemoryEnv::RequireSpace(const FileOp& op) {
  if (op.kind != FileOpKind::kWrite && op.kind != FileOpKind::kAllocate) {
    return {};
  }
  const std::uint64_t missing_bytes = image_.MissingBytes(op.node, op.offset, op.byte_count);
  if (missing_bytes > 0 && image_.TotalAllocatedBytes() + missing_bytes > capacity_bytes_) {
    return OsError("write", op.path, ENOSPC);
  }
  return {};
}

Status MemoryEnv::Mutate(FileOp op) {
  SKIPPY_RETURN_IF_ERROR(Before(op).status);
  MutexLock lock(mu_);
  SKIPPY_RETURN_IF_ERROR(RequireSpace(op));
  Change(op);
  return {};
}

// ---- settings -----------------------------------------------------------------------------------

void MemoryEnv::CreateDirectories(const std::string& path) {
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const Status made = CreateDirectory(path.substr(0, slash));
    SKIPPY_CHECK(made || made.error().code == ErrorCode::kAlreadyExists, path);
  }
  const Status made = CreateDirectory(path);
  SKIPPY_CHECK(made || made.error().code == ErrorCode::kAlreadyExists, path);
}

void MemoryEnv::SetFreeBytes(std::uint64_t free_bytes) {
  MutexLock lock(mu_);
  capacity_bytes_ = image_.TotalAllocatedBytes() + free_bytes;
}

void MemoryEnv::SetFilesystem(FilesystemKind kind) {
  MutexLock lock(mu_);
  filesystem_ = kind;
}

void MemoryEnv::AdvanceClock(std::chrono::nanoseconds step) {
  MutexLock lock(mu_);
  now_ += step;
}

// ---- files --------------------------------------------------------------------------------------

Result<NodeId> MemoryEnv::OpenNode(const std::string& path, const OpenOptions& options) {
  FileOp op;
  op.kind = FileOpKind::kCreateFile;
  op.path = path;
  {
    MutexLock lock(mu_);
    if (const std::optional<NodeId> node = image_.Find(path)) {
      if (options.create && options.exclusive) {
        return OsError("create", path, EEXIST);
      }
      if (image_.Get(*node)->kind != FileKind::kRegular) {
        return OsError("open", path, EISDIR);
      }
      ++open_nodes_[*node];
      return *node;
    }
    if (!options.create || !image_.Find(ParentOf(path))) {
      return OsError("open", path, ENOENT);
    }
  }
  SKIPPY_RETURN_IF_ERROR(Before(op).status);
  MutexLock lock(mu_);
  if (const std::optional<NodeId> node = image_.Find(path)) {  // another thread was faster
    if (options.exclusive) {
      return OsError("create", path, EEXIST);
    }
    ++open_nodes_[*node];
    return *node;
  }
  op.node = NodeId{next_node_++};
  ++open_nodes_[op.node];
  Change(op);
  return op.node;
}

void MemoryEnv::CloseNode(NodeId node) {
  MutexLock lock(mu_);
  if (--open_nodes_[node] == 0) {
    open_nodes_.erase(node);
    image_.DropUnreachable(KeysOf(open_nodes_));
  }
}

Result<std::unique_ptr<File>> MemoryEnv::OpenFile(const std::string& path,
                                                  const OpenOptions& options) {
  SKIPPY_ASSIGN_OR_RETURN(const NodeId node, OpenNode(path, options));
  return std::unique_ptr<File>(std::make_unique<MemoryFile>(this, node, path, options));
}

Status MemoryEnv::CreateDirectory(const std::string& path) {
  FileOp op;
  op.kind = FileOpKind::kCreateDirectory;
  op.path = path;
  SKIPPY_RETURN_IF_ERROR(Before(op).status);
  MutexLock lock(mu_);
  if (image_.Find(path)) {
    return OsError("create directory", path, EEXIST);
  }
  if (!image_.Find(ParentOf(path))) {
    return OsError("create directory", path, ENOENT);
  }
  op.node = NodeId{next_node_++};
  Change(op);
  return {};
}

Result<std::vector<std::string>> MemoryEnv::ListDirectory(const std::string& path) {
  MutexLock lock(mu_);
  const std::optional<NodeId> node = image_.Find(path);
  if (!node) {
    return OsError("list", path, ENOENT);
  }
  if (image_.Get(*node)->kind != FileKind::kDirectory) {
    return OsError("list", path, ENOTDIR);
  }
  return image_.List(path);
}

Result<FileInfo> MemoryEnv::Stat(const std::string& path) {
  MutexLock lock(mu_);
  const std::optional<NodeId> id = image_.Find(path);
  if (!id) {
    return OsError("stat", path, ENOENT);
  }
  const MemoryImage::Node& node = *image_.Get(*id);
  FileInfo out;
  out.kind = node.kind;
  out.file_bytes = node.file_bytes;
  out.allocated_bytes = image_.AllocatedBytes(*id);
  out.mode = node.mode;
  out.owner = ::geteuid();
  out.device = 1;
  out.inode = static_cast<std::uint64_t>(*id);
  out.modified_ns = out.changed_ns = node.modified_ns;
  return out;
}

Status MemoryEnv::SetMode(const std::string& path, std::uint32_t mode) {
  FileOp op;
  op.kind = FileOpKind::kSetMode;
  op.path = path;
  op.byte_count = mode;
  SKIPPY_RETURN_IF_ERROR(Before(op).status);
  MutexLock lock(mu_);
  const std::optional<NodeId> node = image_.Find(path);
  if (!node) {
    return OsError("set the permissions of", path, ENOENT);
  }
  op.node = *node;
  Change(op);
  return {};
}

Status MemoryEnv::RemoveName(const std::string& path, FileOpKind kind) {
  FileOp op;
  op.kind = kind;
  op.path = path;
  SKIPPY_RETURN_IF_ERROR(Before(op).status);
  MutexLock lock(mu_);
  const std::optional<NodeId> node = image_.Find(path);
  if (!node) {
    return OsError("remove", path, ENOENT);
  }
  const bool is_directory = image_.Get(*node)->kind == FileKind::kDirectory;
  if (is_directory != (kind == FileOpKind::kRemoveDirectory)) {
    return OsError("remove", path, is_directory ? EISDIR : ENOTDIR);
  }
  if (is_directory && !image_.List(path).empty()) {
    return OsError("remove", path, ENOTEMPTY);
  }
  op.node = *node;
  Change(op);
  image_.DropUnreachable(KeysOf(open_nodes_));
  return {};
}

Status MemoryEnv::RemoveFile(const std::string& path) {
  return RemoveName(path, FileOpKind::kRemoveFile);
}
Status MemoryEnv::RemoveDirectory(const std::string& path) {
  return RemoveName(path, FileOpKind::kRemoveDirectory);
}

Status MemoryEnv::Rename(const std::string& from, const std::string& to) {
  FileOp op;
  op.kind = FileOpKind::kRename;
  op.path = from;
  op.new_path = to;
  SKIPPY_RETURN_IF_ERROR(Before(op).status);
  MutexLock lock(mu_);
  const std::optional<NodeId> node = image_.Find(from);
  if (!node || !image_.Find(ParentOf(to))) {
    return OsError("rename", from, ENOENT);
  }
  op.node = *node;
  Change(op);
  image_.DropUnreachable(KeysOf(open_nodes_));
  return {};
}

Status MemoryEnv::SyncDirectory(const std::string& path) {
  FileOp op;
  op.kind = FileOpKind::kSyncDirectory;
  op.path = path;
  SKIPPY_RETURN_IF_ERROR(Before(op).status);
  MutexLock lock(mu_);
  if (!image_.Find(path)) {
    return OsError("sync directory", path, ENOENT);
  }
  After(op);
  return {};
}

// ---- the rest -----------------------------------------------------------------------------------

Result<std::string> MemoryEnv::Canonicalize(const std::string& path) {
  MutexLock lock(mu_);
  if (!image_.Find(path)) {
    return OsError("resolve", path, ENOENT);
  }
  return path;
}

Result<SpaceInfo> MemoryEnv::Space(const std::string&) {
  MutexLock lock(mu_);
  const std::uint64_t used_bytes = image_.TotalAllocatedBytes();
  return SpaceInfo{capacity_bytes_, capacity_bytes_ - std::min(capacity_bytes_, used_bytes)};
}

Result<FilesystemKind> MemoryEnv::Filesystem(const std::string&) {
  MutexLock lock(mu_);
  return filesystem_;
}

Result<std::unique_ptr<FileLock>> MemoryEnv::LockFile(const std::string& path) {
  OpenOptions options;
  options.create = options.writable = true;
  SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, OpenFile(path, options));
  MutexLock lock(mu_);
  if (!locks_.insert(path).second) {
    return OsError("lock", path, EWOULDBLOCK);
  }
  return std::unique_ptr<FileLock>(std::make_unique<MemoryFileLock>(this, path));
}

void MemoryEnv::Unlock(const std::string& path) {
  MutexLock lock(mu_);
  locks_.erase(path);
}

std::chrono::nanoseconds MemoryEnv::MonotonicNow() {
  MutexLock lock(mu_);
  return now_;
}
std::chrono::nanoseconds MemoryEnv::WallNow() { return MonotonicNow(); }

}  // namespace skippy
