// Goal: plain answers, errors, limits and hang-ups over real HTTP. Method: a server on loopback
// over the fake engine; conditions instead of sleeps.
#include "serve/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "serve/server_test_fixture.h"

namespace skippy {
namespace {

using testing::HttpClient;
using testing::HttpReply;

TEST_F(ServerTest, AnswersNothingButHealthWhileTheModelLoads) {
  StartLoading();
  server_->SetLoadProgress(0.5F);
  const HttpReply health = Client().Get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.json().at("status"), "loading model");
  EXPECT_EQ(health.json().at("progress"), 0.5);
  const HttpReply chat = Client().Post(kChatPath, Chat("x"));
  EXPECT_EQ(chat.status, 503);
  EXPECT_EQ(chat.json().at("error").at("code"), "loading_model");
  EXPECT_EQ(Client().Get("/").status, 200);

  server_->SetEngine(engine_.get());
  EXPECT_EQ(Client().Get("/health").json(), Json({{"status", "ok"}}));
  EXPECT_EQ(Client().Post(kChatPath, Chat("x", {{"max_tokens", 1}})).status, 200);
}

TEST_F(ServerTest, AnswersAChat) {
  StartReplying("hello there");
  const HttpReply reply = Client().Post(kChatPath, Chat("hi"));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json json = reply.json();
  EXPECT_EQ(json.at("object"), "chat.completion");
  EXPECT_EQ(json.at("model"), "m");
  EXPECT_TRUE(json.at("id").get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(json.at("id"), reply.header("X-Request-Id"));
  const Json& choice = json.at("choices").at(0);
  EXPECT_EQ(choice.at("message").at("content"), "hello there");
  EXPECT_EQ(choice.at("message").at("role"), "assistant");
  EXPECT_EQ(choice.at("finish_reason"), "stop");
  EXPECT_EQ(choice.at("logprobs"), nullptr);
}

TEST_F(ServerTest, AnswersACompletionWithAndWithoutEcho) {
  StartReplying("world");
  EXPECT_EQ(Client().Post(kCompletionsPath, Completion("hello ")).json()["choices"][0]["text"],
            "world");
  EXPECT_EQ(Client()
                .Post(kCompletionsPath, Completion("hello ", {{"echo", true}}))
                .json()["choices"][0]["text"],
            "hello world");
  EXPECT_EQ(Client().Post("/completions", Completion("x")).status, 200);
}

TEST_F(ServerTest, AnswersSeveralPromptsWithSeveralChoicesInOrder) {
  Start();  // the reply is the prompt
  Json body = Completion("");
  body["prompt"] = {"one", "two"};
  body["n"] = 2;
  const Json json = Client().Post(kCompletionsPath, body).json();
  ASSERT_EQ(json.at("choices").size(), 4U);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(json["choices"][i]["index"], i);
    EXPECT_EQ(json["choices"][i]["text"], i < 2 ? "one" : "two");
  }
  EXPECT_EQ(json["usage"]["prompt_tokens"], 6);
  EXPECT_EQ(json["usage"]["completion_tokens"], 12);
  EXPECT_EQ(json["usage"]["total_tokens"], 18);
}

// Case L1 (plain answers).
TEST_F(ServerTest, SaysWhyAReplyEnded) {
  StartReplying("abcdef");
  const auto finish = [&](const Json& fields) {
    return Client().Post(kChatPath, Chat("x", fields)).json()["choices"][0]["finish_reason"];
  };
  EXPECT_EQ(finish(Json::object()), "stop");
  EXPECT_EQ(finish({{"max_tokens", 3}}), "length");
  EXPECT_EQ(finish({{"stop", "cd"}}), "stop");
}

TEST_F(ServerTest, GivesToolCallsAndReasoning) {
  StartReplying(R"(<think>hmm</think><call>look {"q":1}</call>)");
  const Json json = Client().Post(kChatPath, Chat("x")).json();
  const Json& message = json["choices"][0]["message"];
  EXPECT_EQ(message.at("content"), nullptr);
  EXPECT_EQ(message.at("reasoning_content"), "hmm");
  EXPECT_EQ(message.at("tool_calls").at(0).at("function").at("name"), "look");
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], R"({"q":1})");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "tool_calls");
}

TEST_F(ServerTest, GivesOneLogprobPerToken) {
  StartReplying("ab");
  const Json chat =
      Client().Post(kChatPath, Chat("x", {{"logprobs", true}, {"top_logprobs", 3}})).json();
  const Json& content = chat["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 2U);
  EXPECT_EQ(content[0]["token"], "a");
  EXPECT_EQ(content[0]["bytes"], Json::array({97}));
  EXPECT_EQ(content[0]["top_logprobs"].size(), 3U);
  const Json text = Client().Post(kCompletionsPath, Completion("x", {{"logprobs", 2}})).json();
  EXPECT_EQ(text["choices"][0]["logprobs"]["tokens"], Json({"a", "b"}));
  EXPECT_EQ(text["choices"][0]["logprobs"]["text_offset"], Json({0, 1}));
}

// Case E4. Proves O1.
TEST_F(ServerTest, CountsThePromptTheSameColdWarmAndRestored) {
  StartReplying("ok");
  const auto ask = [&] { return Client().Post(kChatPath, Chat("the same prompt")); };
  const HttpReply cold = ask();
  const HttpReply warm = ask();
  engine_->SetCachedTier(3);
  const HttpReply restored = ask();
  const auto prompt_tokens = cold.json()["usage"]["prompt_tokens"].get<int>();
  EXPECT_EQ(cold.json()["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  for (const HttpReply& reply : {warm, restored}) {
    const Json usage = reply.json()["usage"];
    EXPECT_EQ(usage["prompt_tokens"], prompt_tokens);
    EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], prompt_tokens - 1);
    EXPECT_EQ(usage["total_tokens"], prompt_tokens + usage["completion_tokens"].get<int>());
  }
  const std::string cached = std::to_string(prompt_tokens - 1);
  const std::string times =
      ";queue_ms=[0-9.]+;restore_ms=[0-9.]+;prefill_ms=[0-9.]+;decode_ms=[0-9.]+";
  EXPECT_THAT(warm.header("X-Skippy-Cache"),
              ::testing::MatchesRegex("l1=" + cached + ";l2=0;l3=0;computed=1" + times));
  EXPECT_THAT(restored.header("X-Skippy-Cache"),
              ::testing::MatchesRegex("l1=0;l2=0;l3=" + cached + ";computed=1" + times));
  EXPECT_EQ(warm.json()["timings"]["request_id"], warm.header("X-Request-Id"));
  EXPECT_EQ(restored.json()["timings"]["cached_l3"], prompt_tokens - 1);
  EXPECT_EQ(restored.json()["timings"]["computed"], 1);
}

// Case F5.
TEST_F(ServerTest, AnswersGoodRequestsAfterEveryBadOne) {
  Start();
  const std::pair<const char*, const char*> bad[] = {
      {kCompletionsPath, R"({"prompt":""})"},
      {kCompletionsPath, R"({"prompt":[]})"},
      {kCompletionsPath, R"({"prompt":"x","n":100000})"},
      {kCompletionsPath, R"({"prompt":"x","max_tokens":-7})"},
      {kCompletionsPath, R"({"prompt":"x","temperature":"hot"})"},
      {kCompletionsPath, R"({"prompt":"x","stream":"yes"})"},
      {kCompletionsPath, "{"},
      {kCompletionsPath, ""},
      {kCompletionsPath, "[]"},
      {kCompletionsPath, "\xff\xfe"},
      {kChatPath, R"({"messages":[]})"},
      {kChatPath, R"({"messages":[{"role":"user"}]})"},
      {kChatPath, R"({"messages":[{}],"stream":true})"},
      {kChatPath, R"({"messages":{}})"},
      {kChatPath, R"({"messages":[{"role":"user","content":"x"}],"n":0})"},
      {kChatPath, R"({"messages":[{"role":"user","content":"x"}],"tools":[1]})"},
      {kChatPath, R"({"messages":[{"role":"user","content":"x"}],"logit_bias":{"a":1}})"},
      {kChatPath, R"({"messages":[{"role":"user","content":"x"}],"stop":{"a":1}})"},
      {kChatPath, R"({"messages":[{"role":"user","content":"x"}],"response_format":{"type":1}})"},
      {kChatPath, R"({})"},
  };
  for (const auto& [path, body] : bad) {
    const HttpReply refused = Client().Post(path, std::string(body));
    EXPECT_EQ(refused.status, 400) << body;
    EXPECT_TRUE(refused.header("Content-Type").starts_with("application/json")) << body;
    EXPECT_EQ(refused.json()["error"]["type"], "invalid_request_error") << body;
    EXPECT_EQ(Client().Post(kChatPath, Chat("good", {{"max_tokens", 2}})).status, 200);
  }
}

// Case L11 (a stream was asked for).
TEST_F(ServerTest, AnswersEmptyMessagesWithAJsonErrorAlsoWhenAStreamWasAskedFor) {
  Start();
  const HttpReply reply = Client().Post(kChatPath, std::string(R"({"messages":[],"stream":true})"));
  EXPECT_EQ(reply.status, 400);
  EXPECT_TRUE(reply.header("Content-Type").starts_with("application/json"));
  const Json error = reply.json().at("error");
  EXPECT_EQ(error.at("param"), "messages");
  EXPECT_TRUE(error.contains("code") && error.contains("type") && error.contains("message"));
}

// Case K1.
TEST_F(ServerTest, RefusesAnOverlongPromptBeforeAnyEvent) {
  FakeEngineOptions options;
  options.context_tokens = 64;
  Start(std::move(options));
  for (const bool stream : {false, true}) {
    const HttpReply reply =
        Client().Post(kCompletionsPath, Completion(std::string(164, 'x'), {{"stream", stream}}));
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(reply.json()["error"]["code"], "context_length_exceeded");
    EXPECT_NE(reply.body.find("164"), std::string::npos);
    EXPECT_NE(reply.body.find("64"), std::string::npos);
  }
  const Json clipped =
      Client()
          .Post(kCompletionsPath, Completion(std::string(60, 'x'), {{"max_tokens", 50}}))
          .json();
  EXPECT_EQ(clipped["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(clipped["usage"]["total_tokens"], 64);
}

// Proves B17.
TEST_F(ServerTest, AnswersAFullQueueWith429) {
  FakeEngineOptions options;
  options.queue_max = 1;
  Start(std::move(options));
  engine_->HoldEvents();
  std::thread first([&] { EXPECT_EQ(Client().Post(kChatPath, Chat("x")).status, 200); });
  EXPECT_TRUE(engine_->WaitForRunning(1, kPatience));
  const HttpReply refused = Client().Post(kChatPath, Streamed(Chat("y")));
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.header("Retry-After"), "1");
  EXPECT_EQ(refused.json()["error"]["code"], "rate_limit_exceeded");
  engine_->ReleaseEvents();
  first.join();
}

TEST_F(ServerTest, SubmitsNothingWhenNotAllChoicesFitTheQueue) {
  FakeEngineOptions options;
  options.queue_max = 2;
  Start(std::move(options));
  EXPECT_EQ(Client().Post(kChatPath, Chat("x", {{"n", 3}})).status, 429);
  EXPECT_EQ(engine_->GetStatus().lanes_busy, 0);
}

TEST_F(ServerTest, AnswersMoreClientsThanItsLimitWith429AndHealthStill) {
  ServerOptions options;
  options.http.clients_max = 2;
  Start({}, options);
  engine_->HoldEvents();
  std::vector<std::thread> clients;
  for (int i = 0; i < 2; ++i) {
    clients.emplace_back([&] { EXPECT_EQ(Client().Post(kChatPath, Chat("x")).status, 200); });
  }
  EXPECT_TRUE(engine_->WaitForRunning(2, kPatience));
  for (int i = 0; i < 40; ++i) {
    const HttpReply refused = Client().Post(kChatPath, Chat("x"));
    EXPECT_EQ(refused.status, 429);
    EXPECT_EQ(refused.header("Retry-After"), "1");
  }
  EXPECT_EQ(Client().Get("/health").status, 200);
  engine_->ReleaseEvents();
  for (std::thread& client : clients) {
    client.join();
  }
  EXPECT_EQ(Client().Post(kChatPath, Chat("x")).status, 200);
}

TEST_F(ServerTest, StopsComputingWhenAWaitingClientHangsUp) {
  Start();
  engine_->HoldEvents();
  HttpClient client = Client();
  std::thread waiting([&] { client.Post(kChatPath, Chat("x")); });
  EXPECT_TRUE(engine_->WaitForRunning(1, kPatience));
  client.HangUp();
  EXPECT_TRUE(engine_->WaitForCancelled(1, kPatience));
  waiting.join();
}

TEST_F(ServerTest, GivesTheEnginesErrorItsStatus) {
  Start();
  engine_->FailAfter(2, MakeError(ErrorCode::kInternal, "the device is gone"));
  const HttpReply reply = Client().Post(kChatPath, Chat("x"));
  EXPECT_EQ(reply.status, 500);
  EXPECT_EQ(reply.json()["error"]["message"], "the device is gone");
  EXPECT_EQ(reply.json()["error"]["type"], "server_error");
}

TEST_F(ServerTest, EndsRunningRequestsWhenItStops) {
  Start();
  engine_->HoldEvents();
  std::thread waiting([&] {
    const HttpReply reply = Client().Post(kChatPath, Chat("x"));
    EXPECT_EQ(reply.status, 503);
  });
  EXPECT_TRUE(engine_->WaitForRunning(1, kPatience));
  server_->Stop();
  waiting.join();
  EXPECT_EQ(engine_->GetStatus().cancelled_total, 1U);
}

TEST_F(ServerTest, AsksForTheKeyOnEverythingButHealth) {
  ServerOptions options;
  options.http.api_keys = {"sesame", "other"};
  Start({}, options);
  EXPECT_EQ(Client().Get("/health").status, 200);
  EXPECT_EQ(Client().Get("/v1/models").status, 401);
  EXPECT_EQ(Client().Get("/v1/models", {{"Authorization", "Bearer sesam"}}).status, 401);
  EXPECT_EQ(Client().Get("/v1/models", {{"Authorization", "Bearer sesame"}}).status, 200);
  EXPECT_EQ(Client().Get("/v1/models", {{"X-Api-Key", "other"}}).status, 200);
  const HttpReply refused = Client().Post(kChatPath, Chat("x"));
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.json()["error"]["code"], "invalid_api_key");
}

TEST_F(ServerTest, RefusesBodiesOverItsLimit) {
  ServerOptions options;
  options.http.body_bytes_max = 1024;
  Start({}, options);
  const HttpReply refused = Client().Post(kChatPath, Chat(std::string(4096, 'x')));
  EXPECT_EQ(refused.status, 413);
  EXPECT_EQ(refused.json()["error"]["type"], "invalid_request_error");
  EXPECT_EQ(Client().Post(kChatPath, Chat("x")).status, 200);
}

TEST_F(ServerTest, RefusesHeadersOverItsLimits) {
  Start();
  const std::string value(64U << 10, 'x');
  const HttpReply reply = Client().Get("/v1/models", {{"X-Long", value}});
  EXPECT_TRUE(reply.status == 400 || reply.status == 414 || reply.status == 431) << reply.status;
  HttpClient::Headers many;
  for (int i = 0; i < 1000; ++i) {
    many.emplace_back("X-" + std::to_string(i), "v");
  }
  EXPECT_EQ(Client().Get("/v1/models", many).status, 400);
  EXPECT_EQ(Client().Get("/v1/models").status, 200);
}

// Pages of other origins must not be able to call the server: no request is answered with leave.
TEST_F(ServerTest, GivesWebPagesOfOtherOriginsNoLeave) {
  Start();
  const HttpClient::Headers origin = {{"Origin", "https://example.com"},
                                      {"Access-Control-Request-Method", "POST"},
                                      {"Access-Control-Request-Headers", "content-type"}};
  for (const HttpReply& reply :
       {Client().Options(kChatPath, origin), Client().Get("/v1/models", origin),
        Client().Post(kChatPath, Chat("x").dump(), origin)}) {
    for (const auto& [name, value] : reply.headers) {
      EXPECT_FALSE(name.starts_with("Access-Control")) << name << ": " << value;
    }
  }
  EXPECT_EQ(Client().Options(kChatPath, origin).status, 405);
}

TEST_F(ServerTest, SaysWhichMethodsAPathAnswers) {
  Start();
  const HttpReply wrong_method = Client().Get(kChatPath);
  EXPECT_EQ(wrong_method.status, 405);
  EXPECT_EQ(wrong_method.header("Allow"), "POST");
  const HttpReply nowhere = Client().Get("/v1/nowhere");
  EXPECT_EQ(nowhere.status, 404);
  EXPECT_EQ(nowhere.json()["error"]["code"], "not_found");
}

TEST_F(ServerTest, ReportsAPortThatIsTaken) {
  Start();
  ServerOptions options;
  options.http.port = server_->port();
  const auto second = Server::Start(options);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kBusy);
  EXPECT_NE(second.error().text.find(std::to_string(options.http.port)), std::string::npos);
}

TEST_F(ServerTest, ReportsAnAddressItCannotUse) {
  ServerOptions options;
  options.http.host = "203.0.113.7";
  const auto server = Server::Start(options);
  ASSERT_FALSE(server);
  EXPECT_NE(server.error().text.find("203.0.113.7"), std::string::npos);
}

TEST_F(ServerTest, ListsItsModel) {
  Start();
  const Json list = Client().Get("/v1/models").json();
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"][0]["id"], "fake-bytes");
  EXPECT_EQ(Client().Get("/v1/models/fake-bytes").json()["object"], "model");
  EXPECT_EQ(Client().Get("/v1/models/other").status, 404);
}

TEST_F(ServerTest, SaysThatItComputesNoEmbeddings) {
  Start();
  const HttpReply reply = Client().Post("/v1/embeddings", Json{{"input", "x"}});
  EXPECT_EQ(reply.status, 501);
  EXPECT_EQ(reply.json()["error"]["code"], "embeddings_not_supported");
}

TEST_F(ServerTest, TokenizesAndAppliesTheTemplate) {
  Start();
  EXPECT_EQ(Client().Post("/tokenize", Json{{"content", "AB"}}).json()["tokens"], Json({65, 66}));
  EXPECT_EQ(Client().Post("/detokenize", Json{{"tokens", {65, 66}}}).json()["content"], "AB");
  EXPECT_EQ(Client().Post("/detokenize", Json{{"tokens", {999}}}).status, 400);
  EXPECT_EQ(Client().Post("/apply-template", Chat("x")).json()["prompt"],
            "[{\"role\":\"user\",\"content\":\"x\"}]\nassistant:");
}

TEST_F(ServerTest, SharesNoStateBetweenKeysWhenAskedNotTo) {
  for (const bool isolate : {false, true}) {
    ServerOptions options;
    options.http.api_keys = {"first", "second"};
    options.isolate_by_key = isolate;
    Start({}, options);
    const auto cached = [&](const std::string& key, const Json& fields = Json::object()) {
      const HttpReply reply = Client().Post(kChatPath, Chat("the same prompt", fields).dump(),
                                            {{"Authorization", "Bearer " + key}});
      return reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
    };
    EXPECT_EQ(cached("first"), 0);
    const int all = cached("first");
    EXPECT_GT(all, 0);
    EXPECT_EQ(cached("second"), isolate ? 0 : all);
    EXPECT_EQ(cached("second"), all);
    EXPECT_EQ(cached("second", {{"cache_salt", "s"}}), 0);
    EXPECT_EQ(cached("first", {{"cache_salt", "s"}}), isolate ? 0 : all);
    EXPECT_EQ(cached("first"), all);
    EXPECT_EQ(engine_->last_request()->name_space.find("first"), std::string::npos);
    server_->Stop();
  }
}

TEST_F(ServerTest, PassesTheCacheSaltOnAsTheNamespace) {
  Start();
  const auto cached = [&](const Json& fields) {
    return Client()
        .Post(kChatPath, Chat("shared prompt", fields))
        .json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        .get<int>();
  };
  EXPECT_EQ(cached(Json::object()), 0);
  EXPECT_GT(cached({{"prompt_cache_key", "k"}}), 0);
  EXPECT_EQ(cached({{"cache_salt", "a"}}), 0);
  EXPECT_GT(cached({{"cache_salt", "a"}}), 0);
}

}  // namespace
}  // namespace skippy
