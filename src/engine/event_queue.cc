#include "engine/event_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace skippy {

void EventQueue::Push(GenerateEvent event) {
  {
    MutexLock lock(mu_);
    const bool join = events_.size() >= kMaxEvents && event.kind == GenerateEvent::Kind::kText &&
                      events_.back().kind == GenerateEvent::Kind::kText;
    if (join) {
      GenerateEvent& last = events_.back();
      last.text += event.text;
      last.tokens.insert(last.tokens.end(), std::make_move_iterator(event.tokens.begin()),
                         std::make_move_iterator(event.tokens.end()));
    } else {
      events_.push_back(std::move(event));
    }
  }
  changed_.NotifyAll();
}

std::optional<GenerateEvent> EventQueue::Pop(std::chrono::milliseconds timeout) {
  constexpr std::chrono::hours kLongest{24};  // keeps the deadline inside the clock's range
  const auto deadline =
      std::chrono::steady_clock::now() + std::min<std::chrono::milliseconds>(timeout, kLongest);
  MutexLock lock(mu_);
  while (events_.empty() && !done_) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= std::chrono::nanoseconds::zero()) {
      return std::nullopt;
    }
    changed_.WaitFor(mu_, left);
  }
  if (done_) {
    return std::nullopt;
  }
  GenerateEvent event = std::move(events_.front());
  events_.pop_front();
  done_ = event.kind == GenerateEvent::Kind::kDone;
  return event;
}

}  // namespace skippy
