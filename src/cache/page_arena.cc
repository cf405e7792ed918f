#include "cache/page_arena.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/check.h"

namespace skippy {
namespace {

// Address space taken at a time; pages cost memory only once they are written.
constexpr std::size_t kRegionBytes = std::size_t{256} << 20;

// Of Linux 5.18; the C library's headers may be older.
#ifndef MADV_DONTNEED_LOCKED
constexpr int MADV_DONTNEED_LOCKED = 24;
#endif
constexpr unsigned kLockWhenWritten = 1;  // MLOCK_ONFAULT

std::string ErrorText(int error) { return std::generic_category().message(error); }

}  // namespace

PageArena::PageArena(bool lock_pages) : lock_pages_(lock_pages) {
  if (!lock_pages_) return;
  MutexLock lock(mu_);
  AddRegion(kRegionBytes);  // a lock that is refused is known from the start
}

PageArena::~PageArena() {
  for (const auto& [region, byte_count] : regions_) munmap(region, byte_count);
}

bool PageArena::AddRegion(std::size_t byte_count) {
  const std::size_t wanted = std::max(byte_count, kRegionBytes);
  void* const made = mmap(nullptr, wanted, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return false;
  // A kernel without huge pages refuses the advice and needs none.
  (void)madvise(made, wanted, MADV_NOHUGEPAGE);
  auto* const region = static_cast<std::byte*>(made);
  if (lock_pages_) LockRegion(region, wanted);
  regions_.emplace(region, wanted);
  InsertFree(region, {wanted, region});
  return true;
}

// Pages must be freed at once, so without MADV_DONTNEED_LOCKED nothing is locked. By system call:
// sanitizers replace the library's function.
void PageArena::LockRegion(std::byte* region, std::size_t byte_count) {
  if (madvise(region, kPageBytes, MADV_DONTNEED_LOCKED) != 0) {
    lock_error_ = "this kernel cannot free locked pages (Linux 5.18 or newer can)";
  } else if (syscall(SYS_mlock2, region, byte_count, kLockWhenWritten) != 0) {
    lock_error_ = ErrorText(errno) + "; raise the limit of locked memory (ulimit -l)";
  }
}

void PageArena::EraseFree(std::map<std::byte*, Range>::iterator at) {
  by_size_.erase({at->second.byte_count, at->first});
  free_.erase(at);
}

// Joins the range with its free neighbours.
void PageArena::InsertFree(std::byte* data, Range range) {
  auto next = free_.lower_bound(data);
  if (next != free_.end() && next->first == data + range.byte_count &&
      next->second.region == range.region) {
    range.byte_count += next->second.byte_count;
    const auto joined = next++;
    EraseFree(joined);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second.byte_count == data &&
        before->second.region == range.region) {
      data = before->first;
      range.byte_count += before->second.byte_count;
      EraseFree(before);
    }
  }
  free_.emplace(data, range);
  by_size_.emplace(range.byte_count, data);
}

std::byte* PageArena::Allocate(std::size_t byte_count) {
  SKIPPY_CHECK(byte_count > 0 && byte_count % kPageBytes == 0, "whole pages");
  MutexLock lock(mu_);
  auto fit = by_size_.lower_bound({byte_count, nullptr});
  if (fit == by_size_.end()) {
    if (!AddRegion(byte_count)) return nullptr;
    fit = by_size_.lower_bound({byte_count, nullptr});
  }
  std::byte* const data = fit->second;
  const auto at = free_.find(data);
  const Range range = at->second;
  EraseFree(at);
  if (range.byte_count > byte_count) {
    InsertFree(data + byte_count, {range.byte_count - byte_count, range.region});
  }
  allocated_bytes_ += byte_count;
  return data;
}

void PageArena::ReleaseIfEmpty(std::byte* region) {
  const auto at = free_.find(region);
  const std::size_t region_bytes = regions_.at(region);
  if (at == free_.end() || at->second.byte_count != region_bytes || regions_.size() == 1) return;
  EraseFree(at);
  regions_.erase(region);
  munmap(region, region_bytes);
}

void PageArena::Free(std::byte* data, std::size_t byte_count) {
  if (byte_count == 0) return;
  // MADV_DONTNEED refuses ranges of which a page is locked.
  SKIPPY_CHECK(madvise(data, byte_count, MADV_DONTNEED) == 0 ||
                   madvise(data, byte_count, MADV_DONTNEED_LOCKED) == 0,
               "pages of this arena");
  MutexLock lock(mu_);
  std::byte* const region = std::prev(regions_.upper_bound(data))->first;
  InsertFree(data, {byte_count, region});
  allocated_bytes_ -= byte_count;
  ReleaseIfEmpty(region);
}

std::string PageArena::lock_error() {
  MutexLock lock(mu_);
  return lock_error_;
}

std::uint64_t PageArena::allocated_bytes() {
  MutexLock lock(mu_);
  return allocated_bytes_;
}

}  // namespace skippy
