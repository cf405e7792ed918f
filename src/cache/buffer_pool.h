// Page-aligned memory that is used again: exporting into warm pages is several times faster than
// into fresh ones. Of two classes: buffers that belong to the RAM tier, which are part of its
// budget and are neither kept idle nor larger than asked for, and all others.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "cache/page_arena.h"
#include "ram/ram_pool.h"
#include "skippy/cache.h"

namespace skippy {

// A buffer of the pool. The writable range covers whole blocks, so that direct I/O needs no copy.
class PooledBuffer final : public Buffer {
 public:
  ~PooledBuffer() override;
  std::span<std::byte> bytes() override { return {data_, byte_count_}; }
  // bytes() and the rest of its last block.
  std::span<std::byte> blocks() { return {data_, block_bytes_}; }
  // Memory it takes.
  std::uint64_t capacity_bytes() const { return capacity_bytes_; }

  bool in_ram_tier() const { return in_ram_tier_; }
  // From now on the buffer is part of the RAM tier's budget, where `reservation` stands for it
  // until it is admitted. Without other users of the buffer.
  void JoinRamTier(RamReservation reservation);
  RamReservation TakeReservation() { return std::move(reservation_); }
  // The buffer does not wait to be written any more.
  void EndCharge();

 private:
  friend class BufferPool;
  PooledBuffer() = default;

  std::shared_ptr<class BufferPool> pool_;
  std::byte* data_ = nullptr;
  std::size_t capacity_bytes_ = 0;
  std::size_t byte_count_ = 0;
  std::size_t block_bytes_ = 0;
  std::uint64_t charge_bytes_ = 0;
  bool in_ram_tier_ = false;
  RamReservation reservation_;  // ends after the memory
};

// Thread-safe. Buffers keep the pool alive.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  struct Limits {
    std::uint64_t charged_bytes = 0;  // AcquireCharged hands out no more than this at a time
    std::uint64_t idle_bytes = 0;     // kept for reuse
    bool lock_pages = false;
  };
  static std::shared_ptr<BufferPool> Create(const Limits& limits);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Null when the system is out of memory. Counts against no bound: the caller has one of its own.
  std::unique_ptr<PooledBuffer> Acquire(std::uint64_t byte_count);
  // Null when the bound would be passed, too. The charge ends with EndCharge or the buffer.
  std::unique_ptr<PooledBuffer> AcquireCharged(std::uint64_t byte_count);
  // The same as a buffer of the RAM tier, of RamBytesFor(byte_count) bytes, in the memory of one of
  // `evicted` where that is large enough. The others are let go before anything is allocated.
  std::unique_ptr<PooledBuffer> AcquireInRamTier(std::uint64_t byte_count,
                                                 RamReservation reservation,
                                                 std::vector<RamEvicted> evicted);
  static std::uint64_t RamBytesFor(std::uint64_t byte_count);
  bool MayCharge(std::uint64_t byte_count) const;

  std::uint64_t charged_bytes() const { return charged_bytes_.load(); }
  std::uint64_t idle_bytes() EXCLUDES(mu_);
  // Memory outside the RAM tier: buffers in use and idle ones.
  std::uint64_t other_bytes() EXCLUDES(mu_);
  std::string lock_error() { return arena_.lock_error(); }

 private:
  friend class PooledBuffer;
  explicit BufferPool(const Limits& limits) : limits_(limits), arena_(limits.lock_pages) {}
  void Return(PooledBuffer& buffer) EXCLUDES(mu_);
  bool Charge(std::uint64_t charge);
  std::unique_ptr<PooledBuffer> Make(std::uint64_t byte_count);
  void Recycle(std::vector<RamEvicted>* evicted, PooledBuffer* into);

  const Limits limits_;
  PageArena arena_;
  std::atomic<std::uint64_t> other_bytes_{0};  // buffers in use outside the RAM tier
  std::atomic<std::uint64_t> charged_bytes_{0};
  Mutex mu_;
  std::multimap<std::size_t, std::byte*> idle_ GUARDED_BY(mu_);  // by capacity
  std::uint64_t idle_bytes_ GUARDED_BY(mu_) = 0;
};

}  // namespace skippy
