// A thread for each connection that waits for one, up to a bound, then a bounded queue; and a limit
// on how long a client may take to send a request, whatever it does meanwhile: otherwise some
// hundred clients that send a byte now and then would hold every thread. Knows sockets, no HTTP.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/unique_fd.h"

namespace skippy {

// The socket that this thread accepted last, -1: none or taken already. Set by accept4() itself,
// which the linker redirects (see connection_threads.cc): the HTTP library tells nobody.
int TakeAcceptedSocket();

class ConnectionThreads {
 public:
  struct Limits {
    std::size_t threads_max = 1;
    std::size_t waiting_max = 0;  // accepted connections without a thread yet
    // From the first byte, or the end of the last answer, to the end of a request.
    std::chrono::milliseconds receive_time{0};
    // The same while others wait for a thread.
    std::chrono::milliseconds receive_time_crowded{0};
  };
  explicit ConnectionThreads(const Limits& limits);
  // After Shutdown.
  ~ConnectionThreads();
  ConnectionThreads(const ConnectionThreads&) = delete;
  ConnectionThreads& operator=(const ConnectionThreads&) = delete;

  // `serve` runs on a thread of its own and closes `socket` (-1: not known, then without a limit).
  // False, with nothing done, when too many wait.
  bool Enqueue(std::function<void()> serve, int socket) EXCLUDES(mu_);
  // Waits for all connections.
  void Shutdown() EXCLUDES(mu_);

  // What the connection that the calling thread serves does from now on; nothing on other threads.
  // A new connection receives.
  static void BeginAnswer();
  static void EndAnswer();
  // Whether the connection was cut off because its request took too long to arrive.
  static bool IsCutOff();

 private:
  struct Connection {
    std::function<void()> serve;
    UniqueFd socket;  // a duplicate: still this connection's when the library has closed its own
    std::chrono::steady_clock::time_point receiving_since{};
    bool receives = true;
    bool is_cut_off = false;
  };
  using Connections = std::list<Connection>;
  struct Current;

  void StartThread() REQUIRES(mu_);
  void Work() EXCLUDES(mu_);
  void Watch() EXCLUDES(mu_);
  std::chrono::nanoseconds CutOff() REQUIRES(mu_);
  static thread_local Current* current_;

  const Limits limits_;
  Mutex mu_;
  CondVar changed_;
  CondVar watch_;
  std::deque<Connection> waiting_ GUARDED_BY(mu_);
  Connections served_ GUARDED_BY(mu_);
  std::vector<std::thread> threads_ GUARDED_BY(mu_);
  std::thread watcher_;
  std::size_t idle_ GUARDED_BY(mu_) = 0;
  bool stopping_ GUARDED_BY(mu_) = false;
};

}  // namespace skippy
