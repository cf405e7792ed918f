// Goal: request bodies become what the engine is asked for, and mistakes are named. Method: bodies
// as text against a fake engine, no sockets.
#include "serve/openai_request.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/fake_engine.h"

namespace skippy {
namespace {

constexpr std::string_view kHello = R"("messages":[{"role":"user","content":"hello"}])";

class OpenAiRequestTest : public ::testing::Test {
 protected:
  ApiResult<OpenAiRequest> Chat(const std::string& fields) {
    return ParseChatRequest(Json::parse("{" + fields + "}"), engine_);
  }
  ApiResult<OpenAiRequest> ChatWith(const std::string& fields) {
    return Chat(std::string(kHello) + "," + fields);
  }
  ApiResult<OpenAiRequest> Completion(const std::string& fields) {
    return ParseCompletionRequest(Json::parse("{" + fields + "}"), engine_);
  }
  static std::string Param(const ApiResult<OpenAiRequest>& result) {
    return result ? "accepted" : result.error().param;
  }
  static std::string Code(const ApiResult<OpenAiRequest>& result) {
    return result ? "accepted" : result.error().code;
  }

  FakeEngine engine_;
};

TEST_F(OpenAiRequestTest, IgnoresUnknownFieldsAndNulls) {
  EXPECT_TRUE(ChatWith(R"("no_such_field":{"a":1},"temperature":null,"tools":null,"stop":null)"));
}

TEST_F(OpenAiRequestTest, NamesTheFieldOfAWrongType) {
  for (const char* field : {"temperature", "max_tokens", "stream", "stop", "tools", "n", "seed",
                            "response_format", "logit_bias", "logprobs", "top_p", "model"}) {
    const std::string wrong =
        std::string_view(field) == "model" || std::string_view(field) == "stop" ? ":7" : R"(:"x")";
    const auto result = ChatWith("\"" + std::string(field) + "\"" + wrong);
    ASSERT_FALSE(result) << field;
    EXPECT_EQ(result.error().status, 400) << field;
    EXPECT_EQ(result.error().param, field);
    EXPECT_NE(result.error().message.find(field), std::string::npos);
  }
}

TEST_F(OpenAiRequestTest, SaysWhatWasExpectedInsteadOfAWrongType) {
  const auto result = ChatWith(R"("max_tokens":1.5)");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "'max_tokens' must be an integer, not 1.5");
  EXPECT_EQ(result.error().code, "invalid_type");
}

TEST_F(OpenAiRequestTest, ChecksRanges) {
  EXPECT_EQ(Param(ChatWith(R"("temperature":-0.1)")), "temperature");
  EXPECT_EQ(Param(ChatWith(R"("top_p":1.01)")), "top_p");
  EXPECT_EQ(Param(ChatWith(R"("n":0)")), "n");
  EXPECT_EQ(Param(ChatWith(R"("n":100000)")), "n");
  EXPECT_EQ(Param(ChatWith(R"("max_tokens":-2)")), "max_tokens");
  EXPECT_EQ(Param(ChatWith(R"("max_tokens":99999999999)")), "max_tokens");
  EXPECT_EQ(Param(ChatWith(R"("logprobs":true,"top_logprobs":21)")), "top_logprobs");
  EXPECT_EQ(Param(ChatWith(R"("stream_options":{"include_usage":1})")),
            "stream_options.include_usage");
}

TEST_F(OpenAiRequestTest, TakesOverSampling) {
  const auto result = ChatWith(
      R"("temperature":0.5,"top_k":7,"top_p":0.25,"min_p":0.125,"seed":42,"presence_penalty":1,
         "frequency_penalty":-1,"repeat_penalty":1.5,"logit_bias":{"65":-100,"66":2.5})");
  ASSERT_TRUE(result);
  const SamplingOptions& sampling = result->base.sampling;
  EXPECT_EQ(sampling.temperature, 0.5F);
  EXPECT_EQ(sampling.top_k, 7);
  EXPECT_EQ(sampling.top_p, 0.25F);
  EXPECT_EQ(sampling.min_p, 0.125F);
  EXPECT_EQ(sampling.seed, 42U);
  EXPECT_EQ(sampling.presence_penalty, 1.0F);
  EXPECT_EQ(sampling.frequency_penalty, -1.0F);
  EXPECT_EQ(sampling.repeat_penalty, 1.5F);
  ASSERT_EQ(sampling.logit_bias.size(), 2U);
  EXPECT_EQ(sampling.logit_bias[0].first, 65);
  EXPECT_TRUE(std::isinf(sampling.logit_bias[0].second));
  EXPECT_EQ(sampling.logit_bias[1].second, 2.5F);
}

TEST_F(OpenAiRequestTest, TakesALogitBiasOfPairs) {
  const auto result = ChatWith(R"("logit_bias":[[65,1],[66,-1]])");
  ASSERT_TRUE(result);
  EXPECT_EQ(result->base.sampling.logit_bias.size(), 2U);
  EXPECT_EQ(Param(ChatWith(R"("logit_bias":{"300":1})")), "logit_bias");
  EXPECT_EQ(Param(ChatWith(R"("logit_bias":{"x":1})")), "logit_bias");
  EXPECT_EQ(Param(ChatWith(R"("logit_bias":[[65]])")), "logit_bias");
}

TEST_F(OpenAiRequestTest, PrefersMaxCompletionTokens) {
  EXPECT_EQ(ChatWith(R"("max_completion_tokens":5,"max_tokens":9)")->base.max_tokens, 5);
  EXPECT_EQ(ChatWith(R"("max_tokens":9)")->base.max_tokens, 9);
  EXPECT_EQ(ChatWith(R"("n_predict":3)")->base.max_tokens, 3);
  EXPECT_EQ(ChatWith(R"("max_tokens":0)")->base.max_tokens, 0);
  EXPECT_EQ(Chat(std::string(kHello))->base.max_tokens, -1);
}

TEST_F(OpenAiRequestTest, TakesStopAsAStringOrAnArrayAndDropsEmptyOnes) {
  EXPECT_EQ(ChatWith(R"("stop":"END")")->base.stop, std::vector<std::string>{"END"});
  EXPECT_EQ(ChatWith(R"("stop":["a","","b"])")->base.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(Param(ChatWith(R"("stop":[1])")), "stop");
}

TEST_F(OpenAiRequestTest, TakesOverCacheFields) {
  const auto result = ChatWith(
      R"("cache_salt":"team-a","cache_prompt":false,"prompt_cache_retention":"in_memory")");
  ASSERT_TRUE(result);
  EXPECT_EQ(result->base.name_space, "team-a");
  EXPECT_FALSE(result->base.cache_read);
  EXPECT_FALSE(result->base.cache_persist);
  EXPECT_EQ(Param(ChatWith(R"("cache_salt":")" + std::string(257, 'x') + "\"")), "cache_salt");
}

TEST_F(OpenAiRequestTest, KeepsThePrefixWhateverThePromptCacheKey) {
  EXPECT_EQ(ChatWith(R"("prompt_cache_key":"k")")->base.name_space, "");
  EXPECT_EQ(ChatWith(R"("prompt_cache_key":"k")")->base.affinity_key, "k");
}

TEST_F(OpenAiRequestTest, KeepsLongerWhatClientsWantToBeKept) {
  EXPECT_EQ(ChatWith(R"("temperature":0)")->base.retain_for, std::chrono::seconds(0));
  EXPECT_EQ(ChatWith(R"("prompt_cache_key":"k")")->base.retain_for, std::chrono::hours(1));
  EXPECT_EQ(ChatWith(R"("prompt_cache_retention":"24h")")->base.retain_for, std::chrono::hours(24));
}

// Each member is compared with all before it: 200,000 of them took minutes.
TEST_F(OpenAiRequestTest, RefusesObjectsOfTooManyMembersAtOnce) {
  const auto body = [](int members) {
    std::string text = R"({"logit_bias":{)";
    for (int i = 0; i < members; ++i) {
      text += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":1";
    }
    return text + "}}";
  };
  EXPECT_TRUE(ParseJsonObject(body(5000)));
  EXPECT_FALSE(ParseJsonObject(body(200000)));
}

// Case L11.
TEST_F(OpenAiRequestTest, RefusesMessagesThatAreNotMessages) {
  for (const char* messages :
       {"[]", "null", "{}", "[{}]", R"([{"role":"user"}])", R"([{"role":"alien","content":"x"}])",
        R"([{"role":"user","content":null}])", R"([{"role":"user","content":5}])", R"(["x"])",
        R"([{"role":"user","content":[]}])", R"([{"role":"user","content":[{"type":"text"}]}])",
        R"([{"role":"assistant"}])", R"([{"role":5,"content":"x"}])"}) {
    const auto result = Chat(R"("messages":)" + std::string(messages));
    ASSERT_FALSE(result) << messages;
    EXPECT_EQ(result.error().status, 400) << messages;
    EXPECT_TRUE(result.error().param.starts_with("messages")) << messages;
  }
  EXPECT_EQ(Param(Chat(R"("model":"m")")), "messages");
}

TEST_F(OpenAiRequestTest, AllowsEmptyContentAndToolMessages) {
  EXPECT_TRUE(Chat(R"("messages":[{"role":"system","content":""},{"role":"user","content":"x"}])"));
  EXPECT_TRUE(Chat(
      R"("messages":[{"role":"user","content":"x"},
         {"role":"assistant","content":null,"tool_calls":[
           {"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},
         {"role":"tool","tool_call_id":"1","content":"42"}])"));
}

TEST_F(OpenAiRequestTest, RefusesContentThatIsNotText) {
  const auto result = Chat(
      R"("messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])");
  EXPECT_EQ(Code(result), "unsupported_content");
}

TEST_F(OpenAiRequestTest, MakesTheSamePromptOfOneTextPartAndOfPlainText) {
  const auto plain = Chat(std::string(kHello));
  const auto part =
      Chat(R"("messages":[{"role":"user","content":[{"type":"text","text":"hello"}]}])");
  ASSERT_TRUE(plain && part);
  EXPECT_EQ(plain->prompts[0].tokens, part->prompts[0].tokens);
}

TEST_F(OpenAiRequestTest, KeepsTheOrderOfKeysInToolsAndMessages) {
  ASSERT_TRUE(ChatWith(
      R"("tools":[{"type":"function","function":{"name":"f","parameters":{"z":1,"a":2}}}])"));
  EXPECT_EQ(engine_.last_chat_request()->tools_json,
            R"([{"type":"function","function":{"name":"f","parameters":{"z":1,"a":2}}}])");
}

TEST_F(OpenAiRequestTest, OffersANamedToolAloneAndRequiresIt) {
  const std::string tools =
      R"("tools":[{"type":"function","function":{"name":"a"}},
                  {"type":"function","function":{"name":"b"}}],)";
  ASSERT_TRUE(ChatWith(tools + R"("tool_choice":{"type":"function","function":{"name":"b"}})"));
  EXPECT_EQ(engine_.last_chat_request()->tool_choice, "required");
  EXPECT_EQ(engine_.last_chat_request()->tools_json,
            R"([{"type":"function","function":{"name":"b"}}])");
  EXPECT_EQ(Param(ChatWith(tools + R"("tool_choice":{"type":"function","function":{"name":"c"}})")),
            "tool_choice");
  EXPECT_EQ(Param(ChatWith(tools + R"("tool_choice":"maybe")")), "tool_choice");
  EXPECT_EQ(Param(ChatWith(R"("tool_choice":"required")")), "tool_choice");
  EXPECT_EQ(Param(ChatWith(R"("tools":[{"type":"function"}])")), "tools[0]");
}

TEST_F(OpenAiRequestTest, PassesTheSchemaOfTheResponseFormat) {
  ASSERT_TRUE(ChatWith(
      R"("response_format":{"type":"json_schema",
          "json_schema":{"name":"n","schema":{"b":1,"a":2}}})"));
  EXPECT_EQ(engine_.last_chat_request()->json_schema, R"({"b":1,"a":2})");
  ASSERT_TRUE(ChatWith(R"("response_format":{"type":"json_object"})"));
  EXPECT_EQ(engine_.last_chat_request()->json_schema, R"({"type":"object"})");
  ASSERT_TRUE(ChatWith(R"("response_format":{"type":"text"})"));
  EXPECT_EQ(engine_.last_chat_request()->json_schema, "");
  EXPECT_EQ(Param(ChatWith(R"("response_format":{"type":"foo"})")), "response_format.type");
  EXPECT_EQ(Param(ChatWith(R"("response_format":{"type":"json_schema"})")),
            "response_format.json_schema.schema");
}

// Proves case L6 on completions.
TEST_F(OpenAiRequestTest, MakesAGrammarOfTheSchemaOfACompletion) {
  const auto with = [this](const std::string& fields) {
    return ParseCompletionRequest(Json::parse(R"({"prompt":"a",)" + fields + "}"), engine_);
  };
  const std::string schema = R"({"type":"array"})";
  EXPECT_EQ(with(R"("json_schema":)" + schema)->base.grammar, "schema " + schema);
  EXPECT_EQ(
      with(R"("response_format":{"type":"json_schema","json_schema":{"schema":)" + schema + "}}")
          ->base.grammar,
      "schema " + schema);
  EXPECT_EQ(with(R"("response_format":{"type":"text"},"grammar":"g")")->base.grammar, "g");
  EXPECT_EQ(Param(with(R"("json_schema":{},"grammar":"g")")), "grammar");
  EXPECT_EQ(Param(with(R"("response_format":{"type":"foo"})")), "response_format.type");
  EXPECT_FALSE(with(R"("json_schema":{"unsupported":1})"));
}

TEST_F(OpenAiRequestTest, RefusesWhatWouldBeAnsweredWrongly) {
  EXPECT_EQ(Code(ChatWith(R"("functions":[{"name":"f"}])")), "unsupported_parameter");
  EXPECT_EQ(Code(ChatWith(R"("modalities":["text","audio"])")), "unsupported_parameter");
  EXPECT_TRUE(ChatWith(R"("modalities":["text"],"functions":[])"));
  EXPECT_EQ(Code(Completion(R"("prompt":"x","suffix":"y")")), "unsupported_parameter");
  EXPECT_EQ(Code(Completion(R"("prompt":"x","best_of":2)")), "unsupported_parameter");
  EXPECT_TRUE(Completion(R"("prompt":"x","suffix":"","best_of":1)"));
  EXPECT_EQ(Code(Completion(R"("prompt":"x","echo":true,"logprobs":1)")), "unsupported_parameter");
}

TEST_F(OpenAiRequestTest, TakesPromptsOfTextAndOfTokens) {
  EXPECT_EQ(Completion(R"("prompt":"AB")")->prompts[0].tokens, (std::vector<Token>{65, 66}));
  EXPECT_EQ(Completion(R"("prompt":[65,66])")->prompts[0].tokens, (std::vector<Token>{65, 66}));
  const auto texts = Completion(R"("prompt":["A","BC"])");
  ASSERT_TRUE(texts);
  EXPECT_EQ(texts->prompts.size(), 2U);
  const auto arrays = Completion(R"("prompt":[[65],[66,67]])");
  ASSERT_TRUE(arrays);
  EXPECT_EQ(arrays->prompts[1].tokens, (std::vector<Token>{66, 67}));
}

TEST_F(OpenAiRequestTest, RefusesPromptsThatAreNone) {
  for (const char* prompt : {"\"\"", "[]", "null", "[[]]", "[300]", "[-1]", "[1.5]", "[true]",
                             R"([65,"a"])", "{}", "5", R"(["a",""])", "[[[65]]]"}) {
    EXPECT_EQ(Param(Completion(R"("prompt":)" + std::string(prompt))), "prompt") << prompt;
  }
  EXPECT_EQ(Param(Completion("")), "prompt");
}

// Case K1.
TEST_F(OpenAiRequestTest, RefusesAPromptThatDoesNotFitTheContextWithBothNumbers) {
  const auto result = Completion(R"("prompt":")" + std::string(4196, 'x') + "\"");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, "context_length_exceeded");
  EXPECT_NE(result.error().message.find("4196"), std::string::npos);
  EXPECT_NE(result.error().message.find("4096"), std::string::npos);
  EXPECT_EQ(Code(Completion(R"("prompt":")" + std::string(4096, 'x') + "\"")),
            "context_length_exceeded");
  EXPECT_TRUE(Completion(R"("prompt":")" + std::string(4095, 'x') + R"(","max_tokens":1000)"));
}

TEST(JsonTest, RefusesBodiesThatAreTooDeepOrNoObject) {
  EXPECT_TRUE(ParseJsonObject(R"({"a":[1,{"b":"]]]["}]})"));
  EXPECT_FALSE(ParseJsonObject(""));
  EXPECT_FALSE(ParseJsonObject("[]"));
  EXPECT_FALSE(ParseJsonObject("{\"a\":"));
  EXPECT_FALSE(ParseJsonObject("{\"a\":\"\xff\"}"));
  const std::string deep = R"({"a":)" + std::string(200, '[') + std::string(200, ']') + "}";
  const auto result = ParseJsonObject(deep);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("128"), std::string::npos);
}

}  // namespace
}  // namespace skippy
