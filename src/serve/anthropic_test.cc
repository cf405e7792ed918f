// Goal: the Messages API says what clients of that API expect. Method: a server on loopback over
// the fake engine, which also shows what the chat template was given.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "serve/server_test_fixture.h"

namespace skippy {
namespace {

using testing::HttpReply;
using testing::TestJson;

constexpr const char* kMessagesPath = "/v1/messages";
constexpr const char* kCountPath = "/v1/messages/count_tokens";

struct NamedEvent {
  std::string name;
  TestJson data;
};

class AnthropicTest : public ServerTest {
 protected:
  static Json Message(const Json& content, const Json& fields = Json::object()) {
    Json body{{"model", "m"},
              {"max_tokens", 1000},
              {"messages", Json::array({{{"role", "user"}, {"content", content}}})}};
    body.update(fields);
    return body;
  }

  Json Answer(const Json& body) {
    const HttpReply reply = Client().Post(kMessagesPath, body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json();
  }

  // What the template was given for `body`.
  Json TemplateMessages(const Json& body) {
    EXPECT_EQ(Client().Post(kCountPath, body).status, 200);
    return Json::parse(engine_->last_chat_request()->messages_json);
  }

  std::vector<NamedEvent> Events(Json body) {
    body["stream"] = true;
    const HttpReply reply = Client().Post(kMessagesPath, body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    std::vector<NamedEvent> events;
    std::istringstream lines(reply.body);
    for (std::string name, data, blank;
         std::getline(lines, name) && std::getline(lines, data) && std::getline(lines, blank);) {
      events.push_back({name.substr(7), Json::parse(data.substr(6))});
      EXPECT_EQ(events.back().data["type"], events.back().name);
      EXPECT_EQ(blank, "");
    }
    return events;
  }

  void ExpectError(const Json& body, int status, const std::string& type,
                   const std::string& text_part) {
    const HttpReply reply = Client().Post(kMessagesPath, body);
    EXPECT_EQ(reply.status, status);
    EXPECT_EQ(reply.json()["type"], "error");
    EXPECT_EQ(reply.json()["error"]["type"], type);
    EXPECT_NE(reply.json()["error"]["message"].get<std::string>().find(text_part),
              std::string::npos)
        << reply.body;
  }

  static std::vector<std::string> Names(const std::vector<NamedEvent>& events) {
    std::vector<std::string> names;
    for (const NamedEvent& event : events) {
      if (names.empty() || names.back() != event.name) {
        names.push_back(event.name);
      }
    }
    return names;
  }
};

TEST_F(AnthropicTest, AnswersWithTextAndUsageThatAddsUp) {
  StartReplying("hello");
  const Json first = Answer(Message("hi"));
  EXPECT_EQ(first["type"], "message");
  EXPECT_EQ(first["role"], "assistant");
  EXPECT_EQ(first["content"], Json::parse(R"([{"type":"text","text":"hello"}])"));
  EXPECT_EQ(first["stop_reason"], "end_turn");
  EXPECT_EQ(first["stop_sequence"], nullptr);
  EXPECT_EQ(first["usage"]["output_tokens"], 5);
  EXPECT_EQ(first["usage"]["cache_read_input_tokens"], 0);
  EXPECT_GT(first["usage"]["cache_creation_input_tokens"], 0);

  const Json usage = Answer(Message("hi"))["usage"];
  const int counted = Client().Post(kCountPath, Message("hi")).json()["input_tokens"];
  EXPECT_EQ(usage["input_tokens"].get<int>() + usage["cache_creation_input_tokens"].get<int>() +
                usage["cache_read_input_tokens"].get<int>(),
            counted);
  EXPECT_EQ(usage["cache_read_input_tokens"], counted - 1);
}

TEST_F(AnthropicTest, SaysWhyAReplyEnded) {
  StartReplying("one STOP two");
  const Json stopped = Answer(Message("x", {{"stop_sequences", {"STOP"}}}));
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "STOP");
  EXPECT_EQ(stopped["content"][0]["text"], "one ");
  EXPECT_EQ(Answer(Message("x", {{"max_tokens", 3}}))["stop_reason"], "max_tokens");
}

TEST_F(AnthropicTest, GivesThinkingAndToolCallsAsBlocks) {
  StartReplying(R"(<think>hm</think>wait<call>look {"q":1}</call><call>see {}</call>)");
  const Json answer = Answer(Message("x"));
  EXPECT_EQ(answer["stop_reason"], "tool_use");
  const Json& content = answer["content"];
  ASSERT_EQ(content.size(), 4U);
  EXPECT_EQ(content[0]["thinking"], "hm");
  EXPECT_EQ(content[1]["text"], "wait");
  EXPECT_EQ(content[2]["name"], "look");
  EXPECT_EQ(content[2]["input"], Json({{"q", 1}}));
  EXPECT_EQ(content[3]["input"], Json::object());
}

TEST_F(AnthropicTest, StreamsTheBlocksThatAPlainAnswerHas) {
  StartReplying(R"(<think>hm</think>wait<call>look {"q":1}</call><call>see {}</call>)");
  const Json plain = Answer(Message("x"));
  const std::vector<NamedEvent> events = Events(Message("x"));
  std::vector<Json> blocks;
  std::string arguments;
  for (const NamedEvent& event : events) {
    if (event.name == "content_block_start") {
      EXPECT_EQ(event.data["index"], blocks.size());
      blocks.push_back(event.data["content_block"]);
      arguments.clear();
    } else if (event.name == "content_block_delta") {
      const Json& delta = event.data["delta"];
      if (delta["type"] == "input_json_delta") {
        arguments += delta["partial_json"].get<std::string>();
        continue;
      }
      const std::string member = delta["type"] == "text_delta" ? "text" : "thinking";
      blocks.back()[member] =
          blocks.back()[member].get<std::string>() + delta[member].get<std::string>();
    } else if (event.name == "content_block_stop" && blocks.back()["type"] == "tool_use") {
      blocks.back()["input"] = Json::parse(arguments);
    }
  }
  EXPECT_EQ(Json(blocks), plain["content"]);
}

TEST_F(AnthropicTest, StreamsEventsInTheOrderOfTheApi) {
  StartReplying("ab STOP");
  const std::vector<NamedEvent> events = Events(Message("hello", {{"stop_sequences", {" STOP"}}}));
  EXPECT_EQ(Names(events), (std::vector<std::string>{"ping", "message_start", "content_block_start",
                                                     "content_block_delta", "content_block_stop",
                                                     "message_delta", "message_stop"}));
  const NamedEvent& delta = events[events.size() - 2];
  EXPECT_EQ(delta.data["delta"]["stop_reason"], "stop_sequence");
  EXPECT_EQ(delta.data["delta"]["stop_sequence"], " STOP");
  EXPECT_GT(delta.data["usage"]["output_tokens"], 0);
  EXPECT_GT(delta.data["usage"]["cache_creation_input_tokens"], 0);
}

TEST_F(AnthropicTest, TellsAStreamOfAFailure) {
  StartReplying("abcdef");
  engine_->FailAfter(2, MakeError(ErrorCode::kInternal, "the device is gone"));
  const std::vector<NamedEvent> events = Events(Message("x"));
  EXPECT_EQ(events.back().name, "error");
  EXPECT_EQ(events.back().data["error"]["type"], "api_error");
  EXPECT_EQ(events.back().data["error"]["message"], "the device is gone");
}

TEST_F(AnthropicTest, GivesTheTemplateAConversationWithTools) {
  Start();
  Json body = Json::parse(R"({
    "model": "m", "max_tokens": 10,
    "system": [{"type": "text", "text": "x-anthropic-billing-header: cch=a1;"},
               {"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}},
               {"type": "text", "text": "be kind"}],
    "tools": [{"name": "look", "description": "looks", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
    "messages": [
      {"role": "user", "content": "weather?"},
      {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "text", "text": "let me look"},
        {"type": "tool_use", "id": "t1", "name": "look", "input": {"z": 1, "a": 2}}]},
      {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1",
         "content": [{"type": "text", "text": "rain"}]},
        {"type": "text", "text": "so?"}]}]})");
  EXPECT_EQ(TemplateMessages(body), Json::parse(R"([
    {"role": "system", "content": "be brief\nbe kind"},
    {"role": "user", "content": "weather?"},
    {"role": "assistant", "reasoning_content": "hm", "content": "let me look", "tool_calls": [
      {"id": "t1", "type": "function",
       "function": {"name": "look", "arguments": "{\"z\":1,\"a\":2}"}}]},
    {"role": "tool", "tool_call_id": "t1", "content": "rain"},
    {"role": "user", "content": "so?"}])"));
  const ChatRequest chat = *engine_->last_chat_request();
  EXPECT_EQ(Json::parse(chat.tools_json), Json::parse(R"([{"type": "function", "function":
    {"name": "look", "description": "looks", "parameters": {"type": "object"}}}])"));
  EXPECT_EQ(chat.tool_choice, "required");
  EXPECT_FALSE(chat.parallel_tool_calls);
}

TEST_F(AnthropicTest, PassesSchemaThinkingAndSamplingOn) {
  Start();
  Answer(Message("x", Json::parse(R"({
    "temperature": 0.5, "top_k": 7, "thinking": {"type": "disabled"}, "cache_salt": "s",
    "output_config": {"format": {"type": "json_schema", "schema": {"type": "array"}}}})")));
  EXPECT_EQ(engine_->last_chat_request()->json_schema, R"({"type":"array"})");
  EXPECT_FALSE(engine_->last_chat_request()->enable_thinking);
  EXPECT_EQ(engine_->last_request()->sampling.temperature, 0.5F);
  EXPECT_EQ(engine_->last_request()->sampling.top_k, 7);
  EXPECT_EQ(engine_->last_request()->name_space, "s");
}

TEST_F(AnthropicTest, NamesTheFieldThatIsWrong) {
  Start();
  const std::string invalid = "invalid_request_error";
  Json body = Message("x");
  body.erase("max_tokens");
  ExpectError(body, 400, invalid, "'max_tokens' is required");
  EXPECT_EQ(Client().Post(kCountPath, body).status, 200);
  ExpectError(Message("x", {{"top_p", "high"}}), 400, invalid, "'top_p'");
  ExpectError(Message("x", {{"tools", {{{"type", "web_search_20250305"}, {"name", "w"}}}}}), 400,
              invalid, "'tools[0]'");
  ExpectError(Message("x", {{"tool_choice", {{"type", "some"}}}}), 400, invalid,
              "'tool_choice.type'");
  ExpectError(Message({{{"type", "image"}}}), 400, invalid, "'messages[0].content[0]'");
  ExpectError(Message("x", {{"mcp_servers", {{{"url", "u"}}}}}), 400, invalid, "'mcp_servers'");
  ExpectError(Message(std::string(5000, 'x')), 400, invalid, "4096");
}

TEST_F(AnthropicTest, RefusesInItsOwnFormBeforeTheHandlerToo) {
  ServerOptions options;
  options.http.api_keys = {"sesame"};
  Start({}, options);
  ExpectError(Message("x"), 401, "authentication_error", "API key");
  const HttpReply reply =
      Client().Post(kMessagesPath, Message("x").dump(), {{"x-api-key", "sesame"}});
  EXPECT_EQ(reply.status, 200) << reply.body;
}

TEST_F(AnthropicTest, SaysThatTheModelIsLoadingInItsOwnForm) {
  StartLoading();
  ExpectError(Message("x"), 503, "overloaded_error", "loading");
}

TEST_F(AnthropicTest, CountsWithoutGenerating) {
  Start();
  EXPECT_GT(Client().Post(kCountPath, Message(std::string(5000, 'x'))).json()["input_tokens"],
            5000);
  EXPECT_FALSE(engine_->last_request().has_value());
}

}  // namespace
}  // namespace skippy
