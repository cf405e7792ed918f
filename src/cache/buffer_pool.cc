#include "cache/buffer_pool.h"

#include <algorithm>

#include "base/check.h"
#include "pack/pack_store.h"

namespace skippy {
namespace {

static_assert(kBlockBytes == PageArena::kPageBytes);

std::size_t RoundUpToBlocks(std::uint64_t byte_count) {
  const std::uint64_t blocks = (byte_count + kBlockBytes - 1) / kBlockBytes;
  return static_cast<std::size_t>(std::max<std::uint64_t>(blocks, 1) * kBlockBytes);
}

}  // namespace

PooledBuffer::~PooledBuffer() { pool_->Return(*this); }

void PooledBuffer::JoinRamTier(RamReservation reservation) {
  SKIPPY_CHECK(!std::exchange(in_ram_tier_, true), "a buffer joins once");
  reservation_ = std::move(reservation);
  pool_->other_bytes_ -= capacity_bytes_;
}

void PooledBuffer::EndCharge() { pool_->charged_bytes_ -= std::exchange(charge_bytes_, 0); }

std::shared_ptr<BufferPool> BufferPool::Create(const Limits& limits) {
  return std::shared_ptr<BufferPool>(new BufferPool(limits));
}

BufferPool::~BufferPool() {
  for (const auto& [capacity, data] : idle_) arena_.Free(data, capacity);
}

std::uint64_t BufferPool::RamBytesFor(std::uint64_t byte_count) {
  return RoundUpToBlocks(byte_count);
}

// Without memory, and counted nowhere yet.
std::unique_ptr<PooledBuffer> BufferPool::Make(std::uint64_t byte_count) {
  std::unique_ptr<PooledBuffer> buffer(new PooledBuffer);
  buffer->pool_ = shared_from_this();
  buffer->byte_count_ = static_cast<std::size_t>(byte_count);
  buffer->block_bytes_ = RoundUpToBlocks(byte_count);
  return buffer;
}

std::unique_ptr<PooledBuffer> BufferPool::Acquire(std::uint64_t byte_count) {
  auto buffer = Make(byte_count);
  const std::size_t wanted = buffer->block_bytes_;
  {
    MutexLock lock(mu_);
    const auto fit = idle_.lower_bound(wanted);
    if (fit != idle_.end() && fit->first <= 2 * wanted) {
      buffer->capacity_bytes_ = fit->first;
      buffer->data_ = fit->second;
      idle_bytes_ -= fit->first;
      idle_.erase(fit);
    }
  }
  if (buffer->data_ == nullptr) {
    buffer->data_ = arena_.Allocate(wanted);
    if (buffer->data_ == nullptr) return nullptr;
    buffer->capacity_bytes_ = wanted;
  }
  other_bytes_ += buffer->capacity_bytes_;
  return buffer;
}

bool BufferPool::MayCharge(std::uint64_t byte_count) const {
  const std::uint64_t charge = RoundUpToBlocks(byte_count);
  return charge <= limits_.charged_bytes && charged_bytes_.load() <= limits_.charged_bytes - charge;
}

bool BufferPool::Charge(std::uint64_t charge) {
  std::uint64_t held = charged_bytes_.load();
  do {
    if (charge > limits_.charged_bytes || held > limits_.charged_bytes - charge) return false;
  } while (!charged_bytes_.compare_exchange_weak(held, held + charge));
  return true;
}

std::unique_ptr<PooledBuffer> BufferPool::AcquireCharged(std::uint64_t byte_count) {
  const std::uint64_t charge = RoundUpToBlocks(byte_count);
  if (!Charge(charge)) return nullptr;
  auto buffer = Acquire(byte_count);
  if (buffer == nullptr) {
    charged_bytes_ -= charge;
    return nullptr;
  }
  buffer->charge_bytes_ = charge;
  return buffer;
}

void BufferPool::Recycle(std::vector<RamEvicted>* evicted, PooledBuffer* into) {
  const std::size_t wanted = into->block_bytes_;
  for (RamEvicted& entry : *evicted) {
    for (RamHandle& handle : entry.freed) {
      if (handle.owner.use_count() != 1 || handle.physical_bytes < wanted) continue;
      // Whatever is in the tier of this cache is a buffer of this pool.
      auto& old = *const_cast<PooledBuffer*>(static_cast<const PooledBuffer*>(handle.owner.get()));
      into->data_ = std::exchange(old.data_, nullptr);
      into->capacity_bytes_ = wanted;
      arena_.Free(into->data_ + wanted, std::exchange(old.capacity_bytes_, 0) - wanted);
      handle = {};
      return;
    }
  }
}

std::unique_ptr<PooledBuffer> BufferPool::AcquireInRamTier(std::uint64_t byte_count,
                                                           RamReservation reservation,
                                                           std::vector<RamEvicted> evicted) {
  auto buffer = Make(byte_count);
  buffer->in_ram_tier_ = true;
  buffer->reservation_ = std::move(reservation);
  Recycle(&evicted, buffer.get());
  evicted.clear();
  if (!Charge(buffer->block_bytes_)) return nullptr;
  buffer->charge_bytes_ = buffer->block_bytes_;
  if (buffer->data_ == nullptr) {
    buffer->data_ = arena_.Allocate(buffer->block_bytes_);
    if (buffer->data_ == nullptr) return nullptr;
    buffer->capacity_bytes_ = buffer->block_bytes_;
  }
  return buffer;
}

std::uint64_t BufferPool::idle_bytes() {
  MutexLock lock(mu_);
  return idle_bytes_;
}

std::uint64_t BufferPool::other_bytes() { return other_bytes_.load() + idle_bytes(); }

void BufferPool::Return(PooledBuffer& buffer) {
  charged_bytes_ -= buffer.charge_bytes_;
  if (buffer.data_ == nullptr) return;
  if (!buffer.in_ram_tier_) {
    other_bytes_ -= buffer.capacity_bytes_;
    MutexLock lock(mu_);
    if (idle_bytes_ + buffer.capacity_bytes_ <= limits_.idle_bytes) {
      idle_.emplace(buffer.capacity_bytes_, buffer.data_);
      idle_bytes_ += buffer.capacity_bytes_;
      return;
    }
  }
  arena_.Free(buffer.data_, buffer.capacity_bytes_);
}

}  // namespace skippy
