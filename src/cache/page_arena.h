// Page-aligned memory whose pages really go back to the system when they are freed: what is
// resident is what is allocated, whatever the order of frees. Address space is not returned as
// readily; it costs nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/mutex.h"

namespace skippy {

// Thread-safe. Byte counts are multiples of kPageBytes. Huge pages are off for its memory: they
// would make more resident than was allocated. Locked pages are never swapped out; they are locked
// when they are first written, so that locking makes nothing resident by itself.
class PageArena {
 public:
  static constexpr std::size_t kPageBytes = 4096;

  explicit PageArena(bool lock_pages = false);
  ~PageArena();
  PageArena(const PageArena&) = delete;
  PageArena& operator=(const PageArena&) = delete;

  // Null when the system gives no more address space. Contents are arbitrary.
  std::byte* Allocate(std::size_t byte_count) EXCLUDES(mu_);
  // All of an allocation, or its tail. Its pages are the system's when the call returns.
  void Free(std::byte* data, std::size_t byte_count) EXCLUDES(mu_);

  std::uint64_t allocated_bytes() EXCLUDES(mu_);
  // Why pages that should be locked are not, or not all; empty when they are, or nobody asked.
  std::string lock_error() EXCLUDES(mu_);

 private:
  struct Range {
    std::size_t byte_count = 0;
    std::byte* region = nullptr;  // ranges of two regions are never joined
  };
  bool AddRegion(std::size_t byte_count) REQUIRES(mu_);
  void LockRegion(std::byte* region, std::size_t byte_count) REQUIRES(mu_);
  void InsertFree(std::byte* data, Range range) REQUIRES(mu_);
  void EraseFree(std::map<std::byte*, Range>::iterator at) REQUIRES(mu_);
  void ReleaseIfEmpty(std::byte* region) REQUIRES(mu_);

  const bool lock_pages_;
  Mutex mu_;
  std::string lock_error_ GUARDED_BY(mu_);
  std::map<std::byte*, std::size_t> regions_ GUARDED_BY(mu_);
  std::map<std::byte*, Range> free_ GUARDED_BY(mu_);
  std::set<std::pair<std::size_t, std::byte*>> by_size_ GUARDED_BY(mu_);  // the free ranges
  std::uint64_t allocated_bytes_ GUARDED_BY(mu_) = 0;
};

}  // namespace skippy
