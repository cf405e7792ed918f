// A connection to a server of this machine that sends what a test wants, however wrong or slow.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace skippy::testing {

class RawConnection {
 public:
  static constexpr std::chrono::seconds kTrickleTime{10};
  static constexpr int kBetweenBytesMs = 10;

  explicit RawConnection(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }

  bool Send(std::string_view bytes) {
    return ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }

  // Sends a byte now and then until the server says something or hangs up; false when it does
  // neither within kTrickleTime.
  bool TrickleUntilAnswered() {
    const auto end = std::chrono::steady_clock::now() + kTrickleTime;
    while (std::chrono::steady_clock::now() < end) {
      if (IsAnswered(kBetweenBytesMs) || !Send("a")) {
        return true;
      }
    }
    return false;
  }

  bool IsAnswered(int wait_ms) {
    pollfd wait{socket_.get(), POLLIN, 0};
    return ::poll(&wait, 1, wait_ms) > 0;
  }

  // What has come, at least one byte unless the server hung up.
  std::string ReadSome() {
    char bytes[4096];
    const ssize_t got = ::recv(socket_.get(), bytes, sizeof(bytes), 0);
    return {bytes, got > 0 ? static_cast<std::size_t>(got) : 0};
  }

  // What the server sends until it hangs up.
  std::string ReadAll() {
    std::string all;
    for (std::string some = ReadSome(); !some.empty(); some = ReadSome()) {
      all += some;
    }
    return all;
  }

 private:
  UniqueFd socket_;
};

}  // namespace skippy::testing
