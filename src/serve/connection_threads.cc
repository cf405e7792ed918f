#include "serve/connection_threads.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/log.h"

namespace {

thread_local int accepted_socket = -1;

}  // namespace

// The linker sends every accept4 of the program here (--wrap) and the real one is __real_accept4.
extern "C" {
int __real_accept4(int listener, sockaddr* address, socklen_t* length, int flags);   // NOLINT
int __wrap_accept4(int listener, sockaddr* address, socklen_t* length, int flags) {  // NOLINT
  accepted_socket = __real_accept4(listener, address, length, flags);
  return accepted_socket;
}
}

namespace skippy {

using Clock = std::chrono::steady_clock;

int TakeAcceptedSocket() { return std::exchange(accepted_socket, -1); }

// The connection that a thread serves.
struct ConnectionThreads::Current {
  ConnectionThreads* threads = nullptr;
  Connection* connection = nullptr;
};

thread_local ConnectionThreads::Current* ConnectionThreads::current_ = nullptr;

ConnectionThreads::ConnectionThreads(const Limits& limits)
    : limits_(limits), watcher_([this] { Watch(); }) {}

ConnectionThreads::~ConnectionThreads() { Shutdown(); }

bool ConnectionThreads::Enqueue(std::function<void()> serve, int socket) {
  Connection connection;
  connection.serve = std::move(serve);
  if (socket >= 0) {
    connection.socket = UniqueFd(fcntl(socket, F_DUPFD_CLOEXEC, 0));
  }
  MutexLock lock(mu_);
  if (waiting_.size() >= limits_.waiting_max) {
    return false;
  }
  waiting_.push_back(std::move(connection));
  if (waiting_.size() > idle_) {
    if (threads_.size() < limits_.threads_max) {
      StartThread();
    } else {
      watch_.NotifyOne();  // it is crowded now
    }
  }
  changed_.NotifyOne();
  return true;
}

void ConnectionThreads::Shutdown() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    changed_.NotifyAll();
    watch_.NotifyAll();
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (watcher_.joinable()) {
    watcher_.join();
  }
}

void ConnectionThreads::StartThread() {
  try {
    threads_.emplace_back([this] { Work(); });
  } catch (const std::system_error& error) {
    // The connection waits for one of the threads that exist.
    LogWarning("cannot start a thread for a connection: {}", error.what());
  }
}

void ConnectionThreads::Work() {
  while (true) {
    Connections::iterator served;
    {
      MutexLock lock(mu_);
      ++idle_;
      while (waiting_.empty() && !stopping_) {
        changed_.Wait(mu_);
      }
      --idle_;
      if (waiting_.empty()) {
        return;
      }
      served = served_.insert(served_.end(), std::move(waiting_.front()));
      waiting_.pop_front();
      served->receiving_since = Clock::now();
      watch_.NotifyOne();
    }
    Current current{this, &*served};
    current_ = &current;
    served->serve();
    current_ = nullptr;
    MutexLock lock(mu_);
    served_.erase(served);
  }
}

// Ends what receives for too long; the time until the next may be too long.
std::chrono::nanoseconds ConnectionThreads::CutOff() {
  const bool is_crowded = waiting_.size() > idle_ && threads_.size() >= limits_.threads_max;
  const auto limit = is_crowded ? std::min(limits_.receive_time_crowded, limits_.receive_time)
                                : limits_.receive_time;
  const auto now = Clock::now();
  std::chrono::nanoseconds next = limits_.receive_time;
  for (Connection& connection : served_) {
    if (!connection.receives || connection.is_cut_off || !connection.socket.valid()) {
      continue;
    }
    const std::chrono::nanoseconds left = connection.receiving_since + limit - now;
    if (left > std::chrono::nanoseconds::zero()) {
      next = std::min(next, left);
      continue;
    }
    connection.is_cut_off = true;
    // The server may still say why.
    ::shutdown(connection.socket.get(), SHUT_RD);
  }
  return next;
}

void ConnectionThreads::Watch() {
  MutexLock lock(mu_);
  while (!stopping_) {
    const std::chrono::nanoseconds next = CutOff();
    if (served_.empty()) {
      watch_.Wait(mu_);
    } else {
      watch_.WaitFor(mu_, next);
    }
  }
}

void ConnectionThreads::BeginAnswer() {
  if (current_ == nullptr) {
    return;
  }
  MutexLock lock(current_->threads->mu_);
  current_->connection->receives = false;
}

void ConnectionThreads::EndAnswer() {
  if (current_ == nullptr) {
    return;
  }
  MutexLock lock(current_->threads->mu_);
  current_->connection->receives = true;
  current_->connection->receiving_since = Clock::now();
  current_->threads->watch_.NotifyOne();
}

bool ConnectionThreads::IsCutOff() {
  if (current_ == nullptr) {
    return false;
  }
  MutexLock lock(current_->threads->mu_);
  return current_->connection->is_cut_off;
}

}  // namespace skippy
