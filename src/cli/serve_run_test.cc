// Goal: a start that cannot succeed ends with one clear line and a failing status, whatever the log
// level. Method: the real start, up to the point where it fails.
#include "cli/serve_run.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <csignal>
#include <string>

#include "base/log.h"
#include "base/unique_fd.h"
#include "cli/command_line.h"

namespace skippy {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A port of the loopback address that somebody else listens on.
class TakenPort {
 public:
  TakenPort() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t address_bytes = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(fd_.get(), generic, address_bytes), 0);
    EXPECT_EQ(listen(fd_.get(), 1), 0);
    EXPECT_EQ(getsockname(fd_.get(), generic, &address_bytes), 0);
    port_ = ntohs(address.sin_port);
  }
  int port() const { return port_; }

 private:
  UniqueFd fd_;
  int port_ = 0;
};

class ServeRunTest : public ::testing::Test {
 protected:
  ServeRunTest() {
    spdlog::set_level(spdlog::level::off);
    configuration_.listen.port = 0;
    configuration_.management.port = 0;
    configuration_.engine.model_path = "/nonexistent/model.gguf";
  }
  ~ServeRunTest() override { spdlog::set_level(spdlog::level::info); }

  std::string Failure() {
    const auto stop = StopSignal::Open();
    EXPECT_TRUE(stop);
    testing::internal::CaptureStderr();
    EXPECT_EQ(RunServe(configuration_, stop->get()), kExitFailed);
    std::string text = testing::internal::GetCapturedStderr();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
    return text;
  }

  ServeConfiguration configuration_;
};

TEST_F(ServeRunTest, AServingPortInUseIsOneLineThatNamesTheFlag) {
  const TakenPort taken;
  configuration_.listen.port = taken.port();
  EXPECT_THAT(Failure(), AllOf(HasSubstr("skippy: "), HasSubstr("--port"), HasSubstr("in use"),
                               HasSubstr(std::to_string(taken.port()))));
}

TEST_F(ServeRunTest, AManagementPortInUseIsOneLineThatNamesTheFlag) {
  const TakenPort taken;
  configuration_.management.port = taken.port();
  EXPECT_THAT(Failure(), AllOf(HasSubstr("--management-port"), HasSubstr("in use")));
}

TEST_F(ServeRunTest, AModelThatCannotBeReadIsOneLineThatNamesTheFile) {
  EXPECT_THAT(Failure(), HasSubstr("/nonexistent/model.gguf"));
}

TEST_F(ServeRunTest, AStopSignalIsSeenOnceAndStays) {
  const auto stop = StopSignal::Open();
  ASSERT_TRUE(stop);
  EXPECT_FALSE((*stop)->IsRequested());
  pthread_kill(pthread_self(), SIGTERM);
  (*stop)->Wait();
  EXPECT_TRUE((*stop)->IsRequested());
  // Takes it out of the queue, so that it does not end the test's process later.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  int arrived = 0;
  EXPECT_EQ(sigwait(&signals, &arrived), 0);
  EXPECT_EQ(arrived, SIGTERM);
}

}  // namespace
}  // namespace skippy
