// std::mutex with clang's thread-safety annotations: every mutex names what it guards.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define SKIPPY_TSA(x) __attribute__((x))
#else
#define SKIPPY_TSA(x)
#endif
#define GUARDED_BY(x) SKIPPY_TSA(guarded_by(x))
#define REQUIRES(...) SKIPPY_TSA(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) SKIPPY_TSA(locks_excluded(__VA_ARGS__))

namespace skippy {

class SKIPPY_TSA(capability("mutex")) Mutex {
 public:
  void lock() SKIPPY_TSA(acquire_capability()) { mu_.lock(); }
  void unlock() SKIPPY_TSA(release_capability()) { mu_.unlock(); }

 private:
  std::mutex mu_;
};

class SKIPPY_TSA(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mu) SKIPPY_TSA(acquire_capability(mu)) : mu_(mu) { mu_.lock(); }
  ~MutexLock() SKIPPY_TSA(release_capability()) { mu_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mu_;
};

// Waits with a Mutex held; spurious wake-ups happen, so call it in a loop over the condition.
class CondVar {
 public:
  void Wait(Mutex& mu) REQUIRES(mu) { cv_.wait(mu); }
  // False on timeout.
  bool WaitFor(Mutex& mu, std::chrono::nanoseconds timeout) REQUIRES(mu) {
    return cv_.wait_for(mu, timeout) == std::cv_status::no_timeout;
  }
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  std::condition_variable_any cv_;
};

}  // namespace skippy
