// Goal: the Responses API says what clients of that API expect. Method: a server on loopback over
// the fake engine, which also shows what the chat template was given.
#include <gtest/gtest.h>

#include "serve/server_test_fixture.h"

namespace skippy {
namespace {

using testing::HttpReply;

constexpr const char* kResponsesPath = "/v1/responses";
constexpr const char* kEveryKind =
    R"(<think>hm</think>wait<call>look {"q":1}</call><call>see {}</call>)";

class ResponsesTest : public ServerTest {
 protected:
  static Json Ask(const Json& input, const Json& fields = Json::object()) {
    Json body{{"model", "m"}, {"input", input}};
    body.update(fields);
    return body;
  }

  Json Answer(const Json& body) {
    const HttpReply reply = Client().Post(kResponsesPath, body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json();
  }

  // The payloads, which name their own types.
  std::vector<Json> Events(Json body) {
    body["stream"] = true;
    const HttpReply reply = Client().Post(kResponsesPath, body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    std::vector<Json> events;
    for (std::size_t at = reply.body.find("data: "); at != std::string::npos;
         at = reply.body.find("\ndata: ", at + 1)) {
      at = reply.body.find('{', at);
      events.push_back(Json::parse(reply.body.substr(at, reply.body.find('\n', at) - at)));
    }
    for (std::size_t i = 0; i < events.size(); ++i) {
      EXPECT_EQ(events[i]["sequence_number"], i);
    }
    return events;
  }

  void ExpectError(const Json& body, const std::string& param) {
    const HttpReply reply = Client().Post(kResponsesPath, body);
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(reply.json()["error"]["param"], param) << reply.body;
  }
};

TEST_F(ResponsesTest, AnswersWithTextAndUsageThatAddsUp) {
  StartReplying("hello");
  Answer(Ask("hi"));
  const Json answer = Answer(Ask("hi"));
  EXPECT_EQ(answer["object"], "response");
  EXPECT_EQ(answer["status"], "completed");
  EXPECT_EQ(answer["output"][0]["content"][0]["text"], "hello");
  const Json& usage = answer["usage"];
  EXPECT_EQ(usage["input_tokens_details"]["cached_tokens"], usage["input_tokens"].get<int>() - 1);
  EXPECT_EQ(usage["output_tokens"], 5);
  EXPECT_EQ(usage["total_tokens"], usage["input_tokens"].get<int>() + 5);
}

TEST_F(ResponsesTest, SaysThatAReplyWasCut) {
  StartReplying("hello");
  const Json answer = Answer(Ask("hi", {{"max_output_tokens", 3}}));
  EXPECT_EQ(answer["status"], "incomplete");
  EXPECT_EQ(answer["incomplete_details"]["reason"], "max_output_tokens");
}

TEST_F(ResponsesTest, StreamsTheItemsThatAPlainAnswerHas) {
  StartReplying(kEveryKind);
  Json plain = Answer(Ask("x"))["output"];
  const std::vector<Json> events = Events(Ask("x"));
  EXPECT_EQ(events.front()["type"], "response.created");
  EXPECT_EQ(events.back()["type"], "response.completed");
  Json streamed = events.back()["response"]["output"];
  Json items = Json::array();
  std::string text;
  std::string arguments;
  for (const Json& event : events) {
    const std::string type = event["type"];
    if (type == "response.output_item.done") {
      items.push_back(event["item"]);
    } else if (type == "response.output_text.delta") {
      text += event["delta"].get<std::string>();
    } else if (type == "response.function_call_arguments.delta") {
      arguments += event["delta"].get<std::string>();
    }
  }
  EXPECT_EQ(items, streamed);
  EXPECT_EQ(text, "wait");
  EXPECT_EQ(arguments, R"({"q":1}{})");
  for (Json* output : {&plain, &streamed}) {
    ASSERT_EQ(output->size(), 4U);
    for (Json& item : *output) {
      item.erase("id");
    }
  }
  EXPECT_EQ(streamed, plain);
}

TEST_F(ResponsesTest, GivesTheTemplateAConversationWithTools) {
  Start();
  Answer(Json::parse(R"({"instructions": "be brief",
    "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}],
    "tool_choice": {"type": "function", "name": "look"},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "array"}}},
    "input": [
      {"role": "user", "content": [{"type": "input_text", "text": "weather?"}]},
      {"type": "reasoning", "summary": []},
      {"type": "message", "role": "assistant",
       "content": [{"type": "output_text", "text": "let me look", "annotations": []}]},
      {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "c1", "output": "rain"}]})"));
  const ChatRequest chat = *engine_->last_chat_request();
  EXPECT_EQ(Json::parse(chat.messages_json), Json::parse(R"([
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "weather?"},
    {"role": "assistant", "content": "let me look", "tool_calls": [
      {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "rain"}])"));
  EXPECT_EQ(chat.tool_choice, "required");
  EXPECT_EQ(chat.json_schema, R"({"type":"array"})");
}

TEST_F(ResponsesTest, NamesTheFieldThatIsWrong) {
  Start();
  ExpectError(Json::object(), "input");
  ExpectError(Ask("x", {{"previous_response_id", "resp_1"}}), "previous_response_id");
  ExpectError(Ask("x", {{"background", true}}), "background");
  ExpectError(Ask("x", {{"tools", {{{"type", "web_search"}}}}}), "tools[0]");
  ExpectError(Ask({{{"type", "item_reference"}, {"id", "i"}}}), "input[0]");
  EXPECT_EQ(Answer(Ask("x", {{"background", false}, {"previous_response_id", nullptr}}))["status"],
            "completed");
}

}  // namespace
}  // namespace skippy
