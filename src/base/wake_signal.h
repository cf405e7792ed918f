// A wake-up that can be waited for: what a blocking caller hands to Cache::StartRestore.
#pragma once

#include <functional>

#include "base/mutex.h"

namespace skippy {

// Thread-safe.
class WakeSignal {
 public:
  void Call() EXCLUDES(mu_) {
    MutexLock lock(mu_);
    ++count_;
    changed_.NotifyAll();
  }
  // The signal has to outlive it.
  std::function<void()> callback() {
    return [this] { Call(); };
  }
  // Blocks until there was a wake-up after count() was `seen`.
  void WaitAfter(int seen) EXCLUDES(mu_) {
    MutexLock lock(mu_);
    while (count_ == seen) changed_.Wait(mu_);
  }
  int count() EXCLUDES(mu_) {
    MutexLock lock(mu_);
    return count_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  int count_ GUARDED_BY(mu_) = 0;
};

}  // namespace skippy
