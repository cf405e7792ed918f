// SIGINT and SIGTERM as something to wait for.
#pragma once

#include <chrono>
#include <memory>

#include "base/unique_fd.h"
#include "skippy/result.h"

namespace skippy {

// Open it before any thread starts: it blocks both signals in the calling thread, and threads
// started later inherit that. They stay blocked, so a second signal changes nothing.
class StopSignal {
 public:
  static Result<std::unique_ptr<StopSignal>> Open();

  // Waits until a signal has arrived.
  void Wait();
  // Whether one has arrived; never waits.
  bool IsRequested();

 private:
  explicit StopSignal(UniqueFd fd) : fd_(std::move(fd)) {}
  bool Poll(int timeout_ms);

  UniqueFd fd_;
  bool requested_ = false;
};

}  // namespace skippy
