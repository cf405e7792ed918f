// A queue between threads whose waiting items never hold more than a fixed number of bytes. The
// producer is never blocked: a full queue refuses.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace skippy {

// Thread-safe, first in first out. Bytes count while an item waits; once popped, the item and its
// bytes are the consumer's business.
template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}
  BoundedQueue(const BoundedQueue&) = delete;
  BoundedQueue& operator=(const BoundedQueue&) = delete;

  // False when the item would pass the bound or the queue is closed; then `item` is not touched.
  bool TryPush(T&& item, std::uint64_t item_bytes) EXCLUDES(mu_) {
    MutexLock lock(mu_);
    if (closed_ || item_bytes > capacity_bytes_ - waiting_bytes_) {
      return false;
    }
    items_.push_back(Entry{std::move(item), item_bytes});
    waiting_bytes_ += item_bytes;
    arrived_.NotifyOne();
    return true;
  }

  // The oldest item; waits for one. nullopt once the queue is closed and drained.
  std::optional<T> Pop() EXCLUDES(mu_) {
    MutexLock lock(mu_);
    while (items_.empty() && !closed_) {
      arrived_.Wait(mu_);
    }
    return TakeFront();
  }

  // The oldest item, or nullopt at once when there is none.
  std::optional<T> TryPop() EXCLUDES(mu_) {
    MutexLock lock(mu_);
    return TakeFront();
  }

  // Everything that waits, oldest first; waits for at least one item. Empty once the queue is
  // closed and drained.
  std::vector<T> PopAll() EXCLUDES(mu_) {
    MutexLock lock(mu_);
    while (items_.empty() && !closed_) {
      arrived_.Wait(mu_);
    }
    std::vector<T> out;
    out.reserve(items_.size());
    while (std::optional<T> item = TakeFront()) {
      out.push_back(std::move(*item));
    }
    return out;
  }

  // Refuses new items from now on; what waits can still be popped, then Pop returns nullopt.
  void Close() EXCLUDES(mu_) {
    MutexLock lock(mu_);
    closed_ = true;
    arrived_.NotifyAll();
  }

  std::uint64_t waiting_bytes() const EXCLUDES(mu_) {
    MutexLock lock(mu_);
    return waiting_bytes_;
  }
  std::size_t waiting_items() const EXCLUDES(mu_) {
    MutexLock lock(mu_);
    return items_.size();
  }

 private:
  struct Entry {
    T item;
    std::uint64_t item_bytes;
  };

  std::optional<T> TakeFront() REQUIRES(mu_) {
    if (items_.empty()) {
      return std::nullopt;
    }
    std::optional<T> out(std::move(items_.front().item));
    waiting_bytes_ -= items_.front().item_bytes;
    items_.pop_front();
    return out;
  }

  const std::uint64_t capacity_bytes_;
  mutable Mutex mu_;
  CondVar arrived_;
  std::deque<Entry> items_ GUARDED_BY(mu_);
  std::uint64_t waiting_bytes_ GUARDED_BY(mu_) = 0;
  bool closed_ GUARDED_BY(mu_) = false;
};

}  // namespace skippy
