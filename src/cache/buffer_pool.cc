#include "cache/buffer_pool.h"

#include <algorithm>
#include <new>

#include "pack/pack_store.h"

namespace skippy {
namespace {

std::byte* AllocateAligned(std::size_t byte_count) {
  return static_cast<std::byte*>(::operator new(byte_count, std::align_val_t(kBlockBytes)));
}

void FreeAligned(std::byte* data) { ::operator delete(data, std::align_val_t(kBlockBytes)); }

std::size_t RoundUpToBlocks(std::uint64_t byte_count) {
  const std::uint64_t blocks = (byte_count + kBlockBytes - 1) / kBlockBytes;
  return static_cast<std::size_t>(std::max<std::uint64_t>(blocks, 1) * kBlockBytes);
}

}  // namespace

PooledBuffer::~PooledBuffer() { pool_->Return(*this); }

std::shared_ptr<BufferPool> BufferPool::Create(const Limits& limits) {
  return std::shared_ptr<BufferPool>(new BufferPool(limits));
}

BufferPool::~BufferPool() {
  for (const auto& [capacity, data] : idle_) FreeAligned(data);
}

std::unique_ptr<PooledBuffer> BufferPool::Acquire(std::uint64_t byte_count) {
  const std::size_t wanted = RoundUpToBlocks(byte_count);
  std::unique_ptr<PooledBuffer> buffer(new PooledBuffer);
  buffer->pool_ = shared_from_this();
  buffer->byte_count_ = static_cast<std::size_t>(byte_count);
  buffer->block_bytes_ = wanted;
  {
    MutexLock lock(mu_);
    const auto fit = idle_.lower_bound(wanted);
    if (fit != idle_.end() && fit->first <= 2 * wanted) {
      buffer->capacity_bytes_ = fit->first;
      buffer->data_ = fit->second;
      idle_bytes_ -= fit->first;
      idle_.erase(fit);
      return buffer;
    }
  }
  buffer->capacity_bytes_ = wanted;
  buffer->data_ = AllocateAligned(wanted);
  return buffer;
}

std::unique_ptr<PooledBuffer> BufferPool::AcquireCharged(std::uint64_t byte_count) {
  const std::uint64_t charge = RoundUpToBlocks(byte_count);
  std::uint64_t held = charged_bytes_.load();
  do {
    if (charge > limits_.charged_bytes || held > limits_.charged_bytes - charge) return nullptr;
  } while (!charged_bytes_.compare_exchange_weak(held, held + charge));
  auto buffer = Acquire(byte_count);
  buffer->charge_bytes_ = charge;
  return buffer;
}

std::uint64_t BufferPool::idle_bytes() {
  MutexLock lock(mu_);
  return idle_bytes_;
}

void BufferPool::Return(PooledBuffer& buffer) {
  charged_bytes_ -= buffer.charge_bytes_;
  {
    MutexLock lock(mu_);
    if (idle_bytes_ + buffer.capacity_bytes_ <= limits_.idle_bytes) {
      idle_.emplace(buffer.capacity_bytes_, buffer.data_);
      idle_bytes_ += buffer.capacity_bytes_;
      return;
    }
  }
  FreeAligned(buffer.data_);
}

}  // namespace skippy
