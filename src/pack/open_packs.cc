#include "pack/open_packs.h"

#include <utility>

namespace skippy {

std::shared_ptr<File> OpenPacks::Use(PackId pack, std::uint64_t writes) {
  const auto found = entries_.find(pack);
  if (found == entries_.end()) return nullptr;
  Entry& entry = found->second;
  by_use_.splice(by_use_.begin(), by_use_, entry.place);
  entry.unsynced_writes += writes;
  return entry.file;
}

OpenPacks::Files OpenPacks::TakeSuperfluous() {
  Files closed;
  for (auto at = by_use_.end(); entries_.size() > limit_ && at != by_use_.begin();) {
    --at;
    const auto found = entries_.find(*at);
    // The first is in use by the caller.
    if (found->second.unsynced_writes > 0 || at == by_use_.begin()) continue;
    closed.push_back(std::move(found->second.file));
    entries_.erase(found);
    at = by_use_.erase(at);
  }
  return closed;
}

Result<std::shared_ptr<File>> OpenPacks::Acquire(PackId pack, const std::string& path, bool direct,
                                                 std::uint64_t writes) {
  {
    MutexLock lock(mu_);
    if (std::shared_ptr<File> file = Use(pack, writes)) return file;
  }
  OpenOptions options;
  options.writable = true;
  options.direct = direct;
  SKIPPY_ASSIGN_OR_RETURN(std::unique_ptr<File> opened, env_->OpenFile(path, options));
  return Insert(pack, std::move(opened), writes);
}

Result<std::shared_ptr<File>> OpenPacks::Acquire(PackId pack, const std::string& path,
                                                 bool direct) {
  return Acquire(pack, path, direct, 0);
}

Result<std::shared_ptr<File>> OpenPacks::AcquireForWrite(PackId pack, const std::string& path,
                                                         bool direct) {
  return Acquire(pack, path, direct, 1);
}

void OpenPacks::Adopt(PackId pack, std::shared_ptr<File> file) { Insert(pack, std::move(file), 0); }

// Another thread may have been first: then its file is the one.
std::shared_ptr<File> OpenPacks::Insert(PackId pack, std::shared_ptr<File> file,
                                        std::uint64_t writes) {
  Files closed;
  MutexLock lock(mu_);
  if (std::shared_ptr<File> theirs = Use(pack, writes)) {
    closed.push_back(std::move(file));
    return theirs;
  }
  by_use_.push_front(pack);
  entries_.emplace(pack, Entry{.file = file, .unsynced_writes = writes, .place = by_use_.begin()});
  closed = TakeSuperfluous();
  return file;
}

Status OpenPacks::Sync(PackId pack) {
  std::shared_ptr<File> file;
  std::uint64_t covered_writes = 0;
  {
    MutexLock lock(mu_);
    const auto found = entries_.find(pack);
    if (found == entries_.end()) return {};  // nothing was written since the last sync
    file = found->second.file;
    covered_writes = found->second.unsynced_writes;
  }
  SKIPPY_RETURN_IF_ERROR(file->Sync());
  MutexLock lock(mu_);
  if (const auto found = entries_.find(pack); found != entries_.end()) {
    found->second.unsynced_writes -= covered_writes;
  }
  return {};
}

void OpenPacks::Forget(PackId pack) {
  std::shared_ptr<File> closed;
  MutexLock lock(mu_);
  const auto found = entries_.find(pack);
  if (found == entries_.end()) return;
  closed = std::move(found->second.file);
  by_use_.erase(found->second.place);
  entries_.erase(found);
}

}  // namespace skippy
