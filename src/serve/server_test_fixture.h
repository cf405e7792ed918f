// A real server on loopback over a fake engine. For tests only.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "engine/fake_engine.h"
#include "http/http_client.h"
#include "serve/server.h"

namespace skippy {

inline constexpr std::chrono::seconds kPatience{10};  // a condition that takes longer has failed
inline constexpr const char* kChatPath = "/v1/chat/completions";
inline constexpr const char* kCompletionsPath = "/v1/completions";

class ServerTest : public ::testing::Test {
 protected:
  using Json = testing::TestJson;

  ~ServerTest() override {
    if (server_ != nullptr) {
      server_->Stop();
    }
    EXPECT_EQ(engine_->GetStatus().lanes_busy, 0) << "a generation was left running";
  }

  void StartLoading(ServerOptions options = {}) {
    auto server = Server::Start(options);
    ASSERT_TRUE(server) << server.error().text;
    server_ = std::move(*server);
  }
  void Start(FakeEngineOptions engine = {}, ServerOptions options = {}) {
    engine_ = std::make_unique<FakeEngine>(std::move(engine));
    StartLoading(std::move(options));
    server_->SetEngine(engine_.get());
  }
  // Every prompt is answered with `reply`.
  void StartReplying(const std::string& reply) {
    FakeEngineOptions options;
    options.reply = [reply](const GenerateRequest&, std::string_view) { return reply; };
    Start(std::move(options));
  }

  testing::HttpClient Client() { return testing::HttpClient(server_->port()); }

  static Json Chat(const std::string& text, const Json& fields = Json::object()) {
    Json body{{"model", "m"}, {"messages", Json::array({{{"role", "user"}, {"content", text}}})}};
    body.update(fields);
    return body;
  }
  static Json Completion(const std::string& prompt, const Json& fields = Json::object()) {
    Json body{{"model", "m"}, {"prompt", prompt}};
    body.update(fields);
    return body;
  }
  static Json Streamed(Json body, bool include_usage = false) {
    body["stream"] = true;
    if (include_usage) {
      body["stream_options"] = {{"include_usage", true}};
    }
    return body;
  }

  std::unique_ptr<FakeEngine> engine_ = std::make_unique<FakeEngine>();
  std::unique_ptr<Server> server_;
};

// The content of all chunks of a streamed reply, joined.
inline std::string JoinedText(const testing::StreamReply& reply, int index = 0) {
  std::string text;
  for (const auto& event : reply.events) {
    for (const auto& choice : event.value("choices", testing::TestJson::array())) {
      if (choice.at("index") == index) {
        text += choice.contains("delta") ? choice["delta"].value("content", "")
                                         : choice.value("text", "");
      }
    }
  }
  return text;
}

}  // namespace skippy
