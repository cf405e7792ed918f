// Events of one request, from the engine thread to the client's thread.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <optional>

#include "base/mutex.h"
#include "engine/engine.h"

namespace skippy {

// Never blocks the engine: past kMaxEvents, text is joined to the newest waiting text event, so a
// slow client costs what its reply takes and no more. Any thread.
class EventQueue {
 public:
  static constexpr std::size_t kMaxEvents = 64;

  void Push(GenerateEvent event);
  std::optional<GenerateEvent> Pop(std::chrono::milliseconds timeout);

  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> cancelled_ = false;
  Mutex mu_;
  CondVar changed_;
  std::deque<GenerateEvent> events_ GUARDED_BY(mu_);
  bool done_ GUARDED_BY(mu_) = false;  // kDone was taken
};

}  // namespace skippy
