// Goal: clients that send slowly, or nothing, harm only themselves. Method: raw connections that
// trickle bytes; each wait between two bytes is a wait for the server to hang up.
#include <utility>
#include <vector>

#include "http/raw_connection.h"
#include "serve/server_test_fixture.h"

namespace skippy {
namespace {

using testing::HttpReply;
using testing::RawConnection;

class SlowClientTest : public ServerTest {
 protected:
  void StartWithReceiveTime(int timeout_ms, int crowded_ms) {
    ServerOptions options;
    options.http.clients_max = 1;
    options.http.receive_timeout_ms = timeout_ms;
    options.http.receive_timeout_crowded_ms = crowded_ms;
    Start({}, options);
  }
};

constexpr std::string_view kEndlessHeader =
    "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Long: ";
constexpr std::string_view kLongBody =
    "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    "Content-Length: 100000\r\n\r\n{";
constexpr int kNever = 600'000;

TEST_F(SlowClientTest, AHeaderThatTricklesInIsCutOff) {
  StartWithReceiveTime(200, 200);
  RawConnection client(server_->port());
  ASSERT_TRUE(client.Send(kEndlessHeader));
  EXPECT_TRUE(client.TrickleUntilAnswered());
  EXPECT_EQ(Client().Get("/health").status, 200);
}

TEST_F(SlowClientTest, ABodyThatTricklesInIsAnswered408) {
  StartWithReceiveTime(200, 200);
  RawConnection client(server_->port());
  ASSERT_TRUE(client.Send(kLongBody));
  EXPECT_TRUE(client.TrickleUntilAnswered());
  const std::string answer = client.ReadAll();
  EXPECT_NE(answer.find(" 408 "), std::string::npos) << answer;
  EXPECT_NE(answer.find("did not arrive in time"), std::string::npos) << answer;
}

// The pool has 17 threads here.
TEST_F(SlowClientTest, HalfOpenConnectionsGiveWayWhenOthersWait) {
  StartWithReceiveTime(kNever, 100);
  std::vector<RawConnection> half_open;
  for (int i = 0; i < 60; ++i) {
    half_open.emplace_back(server_->port());
    ASSERT_TRUE(half_open.back().Send(kEndlessHeader));
  }
  EXPECT_EQ(Client().Get("/health").status, 200);
  EXPECT_EQ(Client().Post(kChatPath, Chat("x")).status, 200);
}

TEST_F(SlowClientTest, AnAnswerMayTakeLongerThanItsRequest) {
  StartWithReceiveTime(200, 200);
  engine_->HoldEvents();
  HttpReply reply;
  std::thread waiting([&] { reply = Client().Post(kChatPath, Chat("x")); });
  EXPECT_TRUE(engine_->WaitForRunning(1, kPatience));
  RawConnection later(server_->port());  // cut off after its time: then the request's is over, too
  ASSERT_TRUE(later.Send(kEndlessHeader));
  EXPECT_TRUE(later.TrickleUntilAnswered());
  engine_->ReleaseEvents();
  waiting.join();
  EXPECT_EQ(reply.status, 200);
}

TEST_F(SlowClientTest, AConnectionThatIsUsedAgainHasItsTimeAnew) {
  StartWithReceiveTime(300, 300);
  RawConnection clock(server_->port());
  RawConnection used(server_->port());
  ASSERT_TRUE(clock.Send(kEndlessHeader));
  bool once_more = true;
  while (!clock.IsAnswered(RawConnection::kBetweenBytesMs) || std::exchange(once_more, false)) {
    ASSERT_TRUE(used.Send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n"));
    ASSERT_NE(used.ReadSome().find(" 200 "), std::string::npos);
  }
}

}  // namespace
}  // namespace skippy
