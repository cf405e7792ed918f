// Page-aligned memory that is used again: exporting into warm pages is several times faster than
// into fresh ones.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "base/mutex.h"
#include "skippy/cache.h"

namespace skippy {

// A buffer of the pool. The writable range covers whole blocks, so that direct I/O needs no copy.
class PooledBuffer final : public Buffer {
 public:
  ~PooledBuffer() override;
  std::span<std::byte> bytes() override { return {data_, byte_count_}; }
  // bytes() and the rest of its last block.
  std::span<std::byte> blocks() { return {data_, block_bytes_}; }

 private:
  friend class BufferPool;
  PooledBuffer() = default;

  std::shared_ptr<class BufferPool> pool_;
  std::byte* data_ = nullptr;
  std::size_t capacity_bytes_ = 0;
  std::size_t byte_count_ = 0;
  std::size_t block_bytes_ = 0;
  std::uint64_t charge_bytes_ = 0;
};

// Thread-safe. Buffers keep the pool alive.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  struct Limits {
    std::uint64_t charged_bytes = 0;  // AcquireCharged hands out no more than this at a time
    std::uint64_t idle_bytes = 0;     // kept for reuse
  };
  static std::shared_ptr<BufferPool> Create(const Limits& limits);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Counts against no bound: the caller has one of its own.
  std::unique_ptr<PooledBuffer> Acquire(std::uint64_t byte_count);
  // Null when the bound would be passed. The charge ends with the buffer.
  std::unique_ptr<PooledBuffer> AcquireCharged(std::uint64_t byte_count);

  std::uint64_t charged_bytes() const { return charged_bytes_.load(); }
  std::uint64_t idle_bytes() EXCLUDES(mu_);

 private:
  friend class PooledBuffer;
  explicit BufferPool(const Limits& limits) : limits_(limits) {}
  void Return(PooledBuffer& buffer) EXCLUDES(mu_);

  const Limits limits_;
  std::atomic<std::uint64_t> charged_bytes_{0};
  Mutex mu_;
  std::multimap<std::size_t, std::byte*> idle_ GUARDED_BY(mu_);  // by capacity
  std::uint64_t idle_bytes_ GUARDED_BY(mu_) = 0;
};

}  // namespace skippy
