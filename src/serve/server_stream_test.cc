// Goal: streamed answers hold what plain ones hold, in the form that strict clients accept. Method:
// a server on loopback over the fake engine, events parsed one by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "http/raw_connection.h"
#include "serve/server_test_fixture.h"

namespace skippy {
namespace {

using testing::HttpClient;
using testing::StreamReply;

class ServerStreamTest : public ServerTest {
 protected:
  StreamReply Stream(const char* path, const Json& body) {
    StreamReply reply = Client().PostStream(path, body);
    EXPECT_EQ(reply.head.status, 200) << reply.head.body;
    EXPECT_TRUE(reply.head.header("Content-Type").starts_with("text/event-stream"));
    EXPECT_TRUE(reply.done) << reply.head.body;
    return reply;
  }

  // finish_reason of every chunk that has a choice.
  static std::vector<Json> FinishReasons(const StreamReply& reply) {
    std::vector<Json> reasons;
    for (const Json& event : reply.events) {
      for (const Json& choice : event.at("choices")) {
        reasons.push_back(choice.at("finish_reason"));
      }
    }
    return reasons;
  }

  static void ExpectOnlyLastFinish(const StreamReply& reply, const std::string& expected) {
    const std::vector<Json> reasons = FinishReasons(reply);
    ASSERT_FALSE(reasons.empty());
    EXPECT_EQ(reasons.back(), expected);
    EXPECT_EQ(std::count(reasons.begin(), reasons.end(), Json(nullptr)),
              static_cast<long>(reasons.size()) - 1);
  }
};

TEST_F(ServerStreamTest, StreamsTheSameTextThatAPlainAnswerHas) {
  StartReplying("h\u00e9llo \u4e16\u754c \U0001F600 end");
  for (const char* path : {kChatPath, kCompletionsPath}) {
    const Json body = path == kChatPath ? Chat("x") : Completion("x");
    const StreamReply streamed = Stream(path, Streamed(body));
    EXPECT_EQ(JoinedText(streamed), "h\u00e9llo \u4e16\u754c \U0001F600 end");
    for (const Json& event : streamed.events) {
      EXPECT_FALSE(event.is_discarded()) << "an event is not valid JSON in UTF-8";
    }
  }
}

// Case L1.
TEST_F(ServerStreamTest, GivesTheFinishReasonInTheLastChoiceChunkOnly) {
  StartReplying("abcdef");
  for (const char* path : {kChatPath, kCompletionsPath}) {
    const auto with = [&](const Json& fields) {
      return Stream(path,
                    Streamed(path == kChatPath ? Chat("x", fields) : Completion("x", fields)));
    };
    ExpectOnlyLastFinish(with(Json::object()), "stop");
    ExpectOnlyLastFinish(with({{"max_tokens", 3}}), "length");
    ExpectOnlyLastFinish(with({{"stop", {"cd"}}}), "stop");
  }
}

// Case L1 (tool calls).
TEST_F(ServerStreamTest, StreamsToolCallsPieceByPiece) {
  StartReplying(R"(wait<call>look {"q":1}</call><call>see {}</call>)");
  const StreamReply reply = Stream(kChatPath, Streamed(Chat("x")));
  std::vector<std::string> names(2);
  std::vector<std::string> arguments(2);
  for (const Json& event : reply.events) {
    for (const Json& call : event["choices"][0]["delta"].value("tool_calls", Json::array())) {
      const auto index = call.at("index").get<std::size_t>();
      names.at(index) += call["function"].value("name", "");
      arguments.at(index) += call["function"].value("arguments", "");
      EXPECT_EQ(call.contains("id"), call["function"].contains("name"));
    }
  }
  EXPECT_EQ(names, (std::vector<std::string>{"look", "see"}));
  EXPECT_EQ(arguments, (std::vector<std::string>{R"({"q":1})", "{}"}));
  EXPECT_EQ(JoinedText(reply), "wait");
  ExpectOnlyLastFinish(reply, "tool_calls");
}

// Case L3.
TEST_F(ServerStreamTest, ShowsNothingOfAStopStringAndLosesNothingWithoutOne) {
  StartReplying("UNO DUE TRE abcDEFGHIJ \U0001F600!");
  for (const Json& stop : {Json("TRE\nAAAA"), Json("DEFGHIJ"), Json({"DEF", "DEFGHIJ"}),
                           Json({"TRE", "TREE"}), Json("\U0001F600"), Json("absent")}) {
    const Json body = Chat("x", {{"stop", stop}});
    const std::string plain =
        Client().Post(kChatPath, body).json()["choices"][0]["message"]["content"];
    EXPECT_EQ(JoinedText(Stream(kChatPath, Streamed(body))), plain) << stop;
    for (const Json& one : stop.is_array() ? stop : Json::array({stop})) {
      EXPECT_EQ(plain.find(one.get<std::string>()), std::string::npos);
    }
  }
}

// Case E5.
TEST_F(ServerStreamTest, SendsUsageInOneChunkWithoutChoicesOnlyWhenAskedFor) {
  StartReplying("abcdef<call>f {}</call>");
  for (const char* path : {kChatPath, kCompletionsPath}) {
    for (const Json& fields : {Json::object(), Json{{"max_tokens", 3}}, Json{{"stop", "d"}}}) {
      const Json body = path == kChatPath ? Chat("x", fields) : Completion("x", fields);
      const StreamReply with = Stream(path, Streamed(body, true));
      const Json& last = with.events.back();
      EXPECT_EQ(last.at("choices"), Json::array());
      EXPECT_EQ(last["usage"]["total_tokens"].get<int>(),
                last["usage"]["prompt_tokens"].get<int>() +
                    last["usage"]["completion_tokens"].get<int>());
      EXPECT_TRUE(last.contains("timings"));
      for (std::size_t i = 0; i + 1 < with.events.size(); ++i) {
        EXPECT_EQ(with.events[i].at("choices").size(), 1U);
        EXPECT_EQ(with.events[i].at("usage"), nullptr);
      }
      EXPECT_NE(with.events[with.events.size() - 2]["choices"][0]["finish_reason"], nullptr);
      Json off = Streamed(body);
      off["stream_options"] = {{"include_usage", false}};
      for (const StreamReply& without : {Stream(path, Streamed(body)), Stream(path, off)}) {
        for (const Json& event : without.events) {
          EXPECT_EQ(event.at("choices").size(), 1U);
          EXPECT_FALSE(event.contains("usage"));
        }
      }
    }
  }
}

// Case E1.
TEST_F(ServerStreamTest, ReportsTheSameCachedTokensStreamedAndPlain) {
  StartReplying("ok");
  for (const char* path : {kChatPath, kCompletionsPath}) {
    const Json body = path == kChatPath ? Chat("a longer prompt") : Completion("a longer prompt");
    EXPECT_EQ(Client().Post(path, body).status, 200);
    const Json plain = Client().Post(path, body).json()["usage"];
    const Json streamed = Stream(path, Streamed(body, true)).events.back()["usage"];
    EXPECT_EQ(plain["prompt_tokens_details"]["cached_tokens"],
              plain["prompt_tokens"].get<int>() - 1);
    EXPECT_EQ(plain, streamed);
  }
}

TEST_F(ServerStreamTest, StreamsSeveralChoices) {
  StartReplying("abc");
  const StreamReply reply = Stream(kChatPath, Streamed(Chat("x", {{"n", 3}}), true));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(JoinedText(reply, i), "abc");
  }
  EXPECT_EQ(reply.events.back()["usage"]["completion_tokens"], 9);
}

TEST_F(ServerStreamTest, EchoesThePromptOfACompletionFirst) {
  StartReplying("world");
  EXPECT_EQ(JoinedText(Stream(kCompletionsPath, Streamed(Completion("hello ", {{"echo", true}})))),
            "hello world");
}

TEST_F(ServerStreamTest, StreamsOneLogprobPerToken) {
  StartReplying("ab<call>f {}</call>");
  const StreamReply reply =
      Stream(kChatPath, Streamed(Chat("x", {{"logprobs", true}, {"top_logprobs", 2}})));
  std::string tokens;
  for (const Json& event : reply.events) {
    const Json& logprobs = event["choices"][0]["logprobs"];
    if (!logprobs.is_null()) {
      for (const Json& token : logprobs["content"]) {
        tokens += token["token"].get<std::string>();
      }
    }
  }
  EXPECT_EQ(tokens, "ab<call>f {}</call>");
}

TEST_F(ServerStreamTest, SendsNothingForAPrewarmButItsEnd) {
  StartReplying("abc");
  const StreamReply reply = Stream(kChatPath, Streamed(Chat("x", {{"max_tokens", 0}}), true));
  EXPECT_EQ(JoinedText(reply), "");
  EXPECT_EQ(reply.events.back()["usage"]["completion_tokens"], 0);
}

TEST_F(ServerStreamTest, StopsComputingWhenTheClientHangsUpInMidStream) {
  StartReplying(std::string(2000, 'x'));
  Client().PostStream(kChatPath, Streamed(Chat("x")), [this](const Json& event) {
    const bool first_text = event["choices"][0]["delta"].value("content", "") == "x";
    if (first_text) {
      engine_->HoldEvents();  // so that only the hang-up can end it
    }
    return !first_text;
  });
  EXPECT_TRUE(engine_->WaitForCancelled(1, kPatience));
}

TEST_F(ServerStreamTest, TellsAnErrorInMidStreamAsAnEvent) {
  StartReplying("abcdef");
  engine_->FailAfter(3, MakeError(ErrorCode::kInternal, "the device is gone"));
  const StreamReply reply = Stream(kChatPath, Streamed(Chat("x")));
  EXPECT_EQ(reply.events.back()["error"]["message"], "the device is gone");
  EXPECT_EQ(JoinedText(reply), "abc");
}

TEST_F(ServerStreamTest, FinishesForThoseWhoStayWhenHalfOfTheClientsLeave) {
  constexpr int kClients = 32;
  StartReplying(std::string(50, 'x'));
  engine_->HoldEvents();
  std::atomic<int> finished{0};
  std::vector<std::unique_ptr<HttpClient>> clients;
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server_->port()));
    threads.emplace_back([&finished, client = clients.back().get()] {
      finished += client->PostStream(kChatPath, Streamed(Chat("x"))).done ? 1 : 0;
    });
  }
  EXPECT_TRUE(engine_->WaitForRunning(kClients, kPatience));
  for (int i = 0; i < kClients; i += 2) {
    clients[static_cast<std::size_t>(i)]->HangUp();
  }
  EXPECT_TRUE(engine_->WaitForCancelled(kClients / 2, kPatience));
  engine_->ReleaseEvents();
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(finished, kClients / 2);
}

TEST_F(ServerTest, AStreamSaysAtItsEndWhereItsPromptCameFrom) {
  StartReplying("hello");
  testing::RawConnection client(server_->port());
  const std::string body = Streamed(Chat("x")).dump();
  ASSERT_TRUE(
      client.Send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                  "Content-Type: application/json\r\nContent-Length: " +
                  std::to_string(body.size()) + "\r\n\r\n" + body));
  const std::string answer = client.ReadAll();
  EXPECT_NE(answer.find("Trailer: X-Skippy-Cache\r\n"), std::string::npos) << answer;
  const std::size_t end = answer.find("data: [DONE]");
  ASSERT_NE(end, std::string::npos) << answer;
  EXPECT_NE(answer.find("0\r\nX-Skippy-Cache: l1=0;l2=0;l3=0;computed=", end), std::string::npos)
      << answer.substr(end);
}

}  // namespace
}  // namespace skippy
