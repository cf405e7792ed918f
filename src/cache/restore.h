// Reading a found prefix: threads that read and verify, and the object that hands the segments out
// in order.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "cache/shared_state.h"
#include "skippy/cache.h"

namespace skippy {

// Threads that run short tasks in the order they came. Every task is bounded by the read-ahead of
// its restore.
class ReadThreads {
 public:
  explicit ReadThreads(int thread_count);
  ~ReadThreads() { Stop(); }
  ReadThreads(const ReadThreads&) = delete;
  ReadThreads& operator=(const ReadThreads&) = delete;

  // False, and nothing is run, after Stop.
  bool Submit(std::function<void()> task) EXCLUDES(mu_);
  // Runs what was submitted, then ends the threads.
  void Stop() EXCLUDES(mu_);

 private:
  void Loop();

  Mutex mu_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ GUARDED_BY(mu_);
  bool stopping_ GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

// `path` are the tokens that were looked up.
std::unique_ptr<Restore> MakeRestore(const std::shared_ptr<SharedState>& shared,
                                     const std::shared_ptr<ReadThreads>& threads, PrefixMatch match,
                                     std::span<const Token> path, std::function<void()> wake);

}  // namespace skippy
