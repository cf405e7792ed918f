// Which packs have an open descriptor: a bounded number, whatever number of packs there is.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "pack/pack_store.h"
#include "skippy/env.h"
#include "skippy/result.h"

namespace skippy {

// Opens packs when they are used and closes those that were used least recently. A pack that was
// written and not synced since stays open beyond the bound: a sync through another descriptor might
// miss the error of a write-back that failed meanwhile. Thread-safe; opens files without its lock.
class OpenPacks {
 public:
  OpenPacks(Env* env, std::size_t limit) : env_(env), limit_(limit) {}

  // Who holds the file keeps it open, whatever happens here.
  Result<std::shared_ptr<File>> Acquire(PackId pack, const std::string& path, bool direct)
      EXCLUDES(mu_);
  // As Acquire; the pack stays open until a sync covers the write that follows.
  Result<std::shared_ptr<File>> AcquireForWrite(PackId pack, const std::string& path, bool direct)
      EXCLUDES(mu_);
  // A file that was opened elsewhere.
  void Adopt(PackId pack, std::shared_ptr<File> file) EXCLUDES(mu_);
  // Syncs what was written before the call. After a failure the pack stays open for good.
  Status Sync(PackId pack) EXCLUDES(mu_);
  void Forget(PackId pack) EXCLUDES(mu_);

 private:
  struct Entry {
    std::shared_ptr<File> file;
    std::uint64_t unsynced_writes = 0;
    std::list<PackId>::iterator place;  // in by_use_
  };
  using Files = std::vector<std::shared_ptr<File>>;  // to be closed without the lock

  Result<std::shared_ptr<File>> Acquire(PackId pack, const std::string& path, bool direct,
                                        std::uint64_t writes) EXCLUDES(mu_);
  std::shared_ptr<File> Insert(PackId pack, std::shared_ptr<File> file, std::uint64_t writes)
      EXCLUDES(mu_);
  std::shared_ptr<File> Use(PackId pack, std::uint64_t writes) REQUIRES(mu_);
  Files TakeSuperfluous() REQUIRES(mu_);

  Env* const env_;
  const std::size_t limit_;
  Mutex mu_;
  std::map<PackId, Entry> entries_ GUARDED_BY(mu_);
  std::list<PackId> by_use_ GUARDED_BY(mu_);  // most recent first
};

}  // namespace skippy
