#include "cli/stop_signal.h"

#include <poll.h>
#include <sys/signalfd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

namespace skippy {

Result<std::unique_ptr<StopSignal>> StopSignal::Open() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  const int blocked = pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  UniqueFd fd(blocked == 0 ? signalfd(-1, &signals, SFD_CLOEXEC) : -1);
  if (!fd.valid()) {
    const int os_errno = blocked == 0 ? errno : blocked;
    return MakeError(ErrorCode::kIo,
                     std::string("cannot wait for signals: ") + std::strerror(os_errno), os_errno);
  }
  return std::unique_ptr<StopSignal>(new StopSignal(std::move(fd)));
}

bool StopSignal::Poll(int timeout_ms) {
  if (!requested_) {
    pollfd entry{fd_.get(), POLLIN, 0};
    requested_ = poll(&entry, 1, timeout_ms) > 0;
  }
  return requested_;
}

void StopSignal::Wait() {
  while (!Poll(-1)) {
  }
}

bool StopSignal::IsRequested() { return Poll(0); }

}  // namespace skippy
