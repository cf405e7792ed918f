// Goal: messages become the tokens that the model's template means, in whatever OpenAI form they
// come, and replies are read back. Method: the demo model's vocabulary with its own ChatML template
// and with small templates for tools and for strictness.
#include "engine/chat_format.h"

#include "engine/reply_format.h"
#include "engine/sampler.h"
#include "engine/test_model.h"

namespace skippy {
namespace {

// Tools are listed in a system message; a call is JSON between two tags.
constexpr char kToolTemplate[] = R"(
{%- if tools %}<|im_start|>system
Functions: {% for tool in tools %}{{ tool | tojson }}
{% endfor %}Call them as <tool_call>
{"name": "...", "arguments": {...}}
</tool_call><|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% elif message.role == 'assistant' and message.tool_calls %}<|im_start|>assistant
{% if message.content %}{{ message.content }}
{% endif %}
{%- for call in message.tool_calls %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% else %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %})";

constexpr char kStrictTemplate[] = R"(
{%- for message in messages %}
{%- if loop.index0 > 0 and message.role == 'system' %}
{{- raise_exception('System message must be at the beginning.') }}
{%- endif %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %})";

constexpr char kTools[] = R"([{"type": "function", "function": {"name": "get_time",
  "description": "the time in a city", "parameters": {"type": "object",
  "properties": {"city": {"type": "string"}}, "required": ["city"]}}}])";

class ChatFormatTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = LoadTestModel(DemoModelPath()).release(); }
  static void TearDownTestSuite() { llama_model_free(model_); }

  void SetUp() override {
    ASSERT_NE(model_, nullptr);
    Use("");
  }

  void Use(const std::string& chat_template) {
    auto format = MakeChatFormat(model_, chat_template);
    ASSERT_TRUE(format.has_value()) << format.error().text;
    format_ = *std::move(format);
  }

  ChatPrompt Apply(const std::string& messages, const std::string& tools = "") {
    ChatRequest request;
    request.messages_json = messages;
    request.tools_json = tools;
    auto prompt = format_->Apply(request);
    EXPECT_TRUE(prompt.has_value()) << prompt.error().text;
    return prompt.value_or(ChatPrompt{});
  }

  Error ApplyError(const ChatRequest& request) {
    auto prompt = format_->Apply(request);
    EXPECT_FALSE(prompt.has_value());
    return prompt ? Error{} : prompt.error();
  }

  std::string Text(std::span<const Token> tokens) { return format_->Detokenize(tokens); }

  // The text of a reply of at most `count` tokens, as random as a grammar lets it be.
  std::string Generate(const ChatPrompt& prompt, std::uint32_t seed, int count) {
    SamplingOptions options;
    options.temperature = 1.5F;
    options.seed = seed;
    auto sampler = Sampler::Create(model_, options, "", prompt.reply_format.get(), -1);
    EXPECT_TRUE(sampler.has_value()) << (sampler ? "" : sampler.error().text);
    ContextPtr context = MakeTestContext(model_);
    std::vector<Token> next = prompt.tokens;
    std::string text;
    for (int i = 0; sampler && i < count; ++i) {
      auto batch = llama_batch_get_one(next.data(), static_cast<std::int32_t>(next.size()));
      EXPECT_EQ(llama_decode(context.get(), batch), 0);
      const auto token = (*sampler)->Sample(context.get(), -1);
      EXPECT_TRUE(token.has_value()) << (token ? "" : token.error().text);
      if (!token || llama_vocab_is_eog(llama_model_get_vocab(model_), *token)) break;
      text += (*sampler)->TextPiece(*token);
      next = {*token};
    }
    return text;
  }

  static ChatRequest Hello() {
    ChatRequest request;
    request.messages_json = R"([{"role": "user", "content": "Hello"}])";
    return request;
  }

  static llama_model* model_;
  std::unique_ptr<ChatFormat> format_;
};
llama_model* ChatFormatTest::model_ = nullptr;

TEST_F(ChatFormatTest, AppliesTheModelsOwnTemplate) {
  const ChatPrompt prompt = Apply(R"([{"role": "user", "content": "Hello"}])");
  EXPECT_EQ(prompt.text, "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(Text(prompt.tokens), prompt.text);
}

TEST_F(ChatFormatTest, SaysWhereTheLastUserMessageBegins) {
  const ChatPrompt prompt = Apply(R"([{"role": "system", "content": "Be brief."},
      {"role": "user", "content": "One"}, {"role": "assistant", "content": "Two"},
      {"role": "user", "content": "Three"}])");
  const auto rest = std::span(prompt.tokens).subspan(prompt.last_user_position);
  EXPECT_EQ(Text(rest), "<|im_start|>user\nThree<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(ChatFormatTest, APromptIsThePrefixOfTheNextTurn) {
  const ChatPrompt first = Apply(R"([{"role": "user", "content": "One"}])");
  const ChatPrompt second = Apply(R"([{"role": "user", "content": "One"},
      {"role": "assistant", "content": "Two"}, {"role": "user", "content": "Three"}])");
  ASSERT_LT(first.tokens.size(), second.tokens.size());
  EXPECT_TRUE(std::equal(first.tokens.begin(), first.tokens.end(), second.tokens.begin()));
}

// Proves J8: null, empty and missing content give the same prompt, and the call is in it.
TEST_F(ChatFormatTest, NullEmptyAndMissingContentAreTheSame) {
  Use(kToolTemplate);
  const auto conversation = [](const std::string& content) {
    return R"([{"role": "user", "content": "What time is it?"}, {"role": "assistant", )" + content +
           R"("tool_calls": [{"id": "c1", "type": "function", "function":
           {"name": "get_time", "arguments": "{\"city\": \"Paris\"}"}}]},
           {"role": "tool", "tool_call_id": "c1", "content": "noon"}])";
  };
  const ChatPrompt null_content = Apply(conversation("\"content\": null, "), kTools);
  EXPECT_EQ(null_content.tokens, Apply(conversation("\"content\": \"\", "), kTools).tokens);
  EXPECT_EQ(null_content.tokens, Apply(conversation(""), kTools).tokens);
  EXPECT_NE(null_content.text.find("Paris"), std::string::npos);
  EXPECT_NE(null_content.text.find("noon"), std::string::npos);
}

// Proves J10: text in an array of parts renders as the plain string.
TEST_F(ChatFormatTest, ArrayOfTextIsThePlainString) {
  const auto plain = Apply(R"([{"role": "user", "content": "Hello there"}])");
  const auto parts =
      Apply(R"([{"role": "user", "content": [{"type": "text", "text": "Hello there"}]}])");
  EXPECT_EQ(plain.tokens, parts.tokens);
}

// Proves J10: a strict template's complaint reaches the caller.
TEST_F(ChatFormatTest, TemplateExceptionsAreTheCallersMistake) {
  Use(kStrictTemplate);
  ChatRequest request;
  request.messages_json =
      R"([{"role": "user", "content": "a"}, {"role": "system", "content": "b"}])";
  const Error error = ApplyError(request);
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_NE(error.text.find("System message must be at the beginning"), std::string::npos);
  EXPECT_EQ(error.text.find('\n'), std::string::npos);
}

TEST_F(ChatFormatTest, MalformedRequestsAreTheCallersMistake) {
  for (const char* messages : {"", "{}", "[]", "[{}]", "[1]", R"([{"role": "user"}])",
                               R"([{"role": "user", "content": [{"type": "image_url"}]}])",
                               R"([{"role": "user", "content": [{"type": "media_marker",
                                    "text": "x"}]}])"}) {
    ChatRequest request;
    request.messages_json = messages;
    EXPECT_EQ(ApplyError(request).code, ErrorCode::kInvalidArgument) << messages;
  }
  ChatRequest request = Hello();
  request.tools_json = "[{}]";
  EXPECT_EQ(ApplyError(request).code, ErrorCode::kInvalidArgument);
  request = Hello();
  request.template_kwargs["x"] = "{";
  EXPECT_EQ(ApplyError(request).code, ErrorCode::kInvalidArgument);
}

TEST_F(ChatFormatTest, RefusesATemplateThatCannotBeParsed) {
  const auto format = MakeChatFormat(model_, "{% if %}");
  ASSERT_FALSE(format.has_value());
  EXPECT_EQ(format.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(ChatFormatTest, ReadsAPlainReply) {
  const ChatPrompt prompt = Apply(Hello().messages_json);
  const ReplyMessage reply = format_->Parse(prompt.reply_format.get(), "Hi you", false).value();
  EXPECT_EQ(reply.content, "Hi you");
  EXPECT_EQ(format_->Parse(nullptr, "as it is", false).value().content, "as it is");
}

TEST_F(ChatFormatTest, DiffsJoinToTheWhole) {
  ReplyMessage before;
  std::string content;
  for (const char* text : {"H", "Hello", "Hello you"}) {
    ReplyMessage after{text, "", {}};
    for (const ReplyDelta& delta : format_->Diff(before, after)) content += delta.content;
    before = after;
  }
  EXPECT_EQ(content, "Hello you");
  EXPECT_TRUE(format_->Diff(before, before).empty());
}

TEST_F(ChatFormatTest, ReadsAToolCall) {
  Use(kToolTemplate);
  const ChatPrompt prompt = Apply(Hello().messages_json, kTools);
  const ReplyMessage reply =
      format_
          ->Parse(prompt.reply_format.get(),
                  "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {\"city\": \"Rome\"}}\n"
                  "</tool_call>",
                  false)
          .value();
  ASSERT_EQ(reply.tool_calls.size(), 1U);
  EXPECT_EQ(reply.tool_calls[0].name, "get_time");
  EXPECT_NE(reply.tool_calls[0].arguments.find("Rome"), std::string::npos);
  const auto deltas = format_->Diff({}, reply);
  ASSERT_EQ(deltas.size(), 1U);
  EXPECT_EQ(deltas[0].tool_call_index, 0);
}

// Proves case L7: a call that is required is enforced, or the request is refused.
TEST_F(ChatFormatTest, RequiredToolCallIsEnforcedOrRefused) {
  ChatRequest request = Hello();
  request.tool_choice = "required";
  EXPECT_EQ(ApplyError(request).code, ErrorCode::kInvalidArgument);  // no tools
  request.tools_json = kTools;
  EXPECT_EQ(ApplyError(request).code, ErrorCode::kInvalidArgument);  // no form in ChatML
  Use(kToolTemplate);
  const ChatPrompt prompt = format_->Apply(request).value();
  const auto& format = dynamic_cast<const LlamaReplyFormat&>(*prompt.reply_format);
  EXPECT_NE(format.grammar.find("get_time"), std::string::npos);
  EXPECT_FALSE(format.grammar_lazy);
}

TEST_F(ChatFormatTest, RefusesWhatCannotBeCombined) {
  ChatRequest request = Hello();
  request.json_schema = "{}";
  request.grammar = "root ::= \"a\"";
  EXPECT_EQ(ApplyError(request).code, ErrorCode::kInvalidArgument);
  request.json_schema.clear();
  request.tools_json = kTools;
  EXPECT_EQ(ApplyError(request).code, ErrorCode::kInvalidArgument);
}

// Proves case L6: a schema is enforced at any temperature, or the request is refused.
TEST_F(ChatFormatTest, SchemasAreEnforced) {
  for (const char* schema : {R"({"type": "string", "enum": ["red", "green"]})", "{}"}) {
    ChatRequest request = Hello();
    request.json_schema = schema;
    const ChatPrompt prompt = format_->Apply(request).value();
    for (std::uint32_t seed = 1; seed <= 5; ++seed) {
      const std::string text = Generate(prompt, seed, 24);
      const auto reply = format_->Parse(prompt.reply_format.get(), text, true);
      ASSERT_TRUE(reply.has_value()) << text;
      const std::string& content = reply->content;
      const bool fits = std::string(schema) == "{}"
                            ? content.starts_with("{")
                            : content == "\"red\"" || content == "\"green\"";
      EXPECT_TRUE(fits) << schema << " gave " << text;
    }
  }
  ChatRequest request = Hello();
  request.json_schema = R"({"type": "foo"})";
  EXPECT_EQ(ApplyError(request).code, ErrorCode::kInvalidArgument);
}

// A template with marks of its own: the schema's grammar comes from the library.
TEST_F(ChatFormatTest, SchemasAreEnforcedBesideTools) {
  Use(kToolTemplate);
  ChatRequest request = Hello();
  request.json_schema = R"({"type": "string", "enum": ["red", "green"]})";
  const ChatPrompt prompt = format_->Apply(request).value();
  for (std::uint32_t seed = 1; seed <= 5; ++seed) {
    const std::string text = Generate(prompt, seed, 100);
    const ReplyMessage reply = format_->Parse(prompt.reply_format.get(), text, true).value();
    EXPECT_TRUE(reply.content == "\"red\"" || reply.content == "\"green\"") << text;
  }
}

TEST_F(ChatFormatTest, AUsersGrammarIsKept) {
  ChatRequest request = Hello();
  request.grammar = "root ::= \"yes\" | \"no\"";
  const ChatPrompt prompt = format_->Apply(request).value();
  const auto& format = dynamic_cast<const LlamaReplyFormat&>(*prompt.reply_format);
  EXPECT_EQ(format.grammar, request.grammar);
  EXPECT_TRUE(format.grammar_from_user);
}

TEST_F(ChatFormatTest, ContinuesALastAssistantMessage) {
  const ChatPrompt prompt = Apply(R"([{"role": "user", "content": "Count"},
      {"role": "assistant", "content": "One, two"}])");
  EXPECT_TRUE(prompt.text.ends_with("<|im_start|>assistant\nOne, two")) << prompt.text;
  const ReplyMessage reply = format_->Parse(prompt.reply_format.get(), ", three", false).value();
  EXPECT_EQ(reply.content, ", three");
}

TEST_F(ChatFormatTest, TokenizesAndBack) {
  const std::string text = "Hello <|im_end|> w\xC3\xB6rld";
  const auto plain = format_->Tokenize(text, false, false).value();
  const auto special = format_->Tokenize(text, false, true).value();
  EXPECT_GT(plain.size(), special.size());
  EXPECT_EQ(format_->Detokenize(special), text);
  EXPECT_TRUE(format_->IsValidToken(0));
  EXPECT_FALSE(format_->IsValidToken(-1));
  EXPECT_FALSE(format_->IsValidToken(1 << 30));
  EXPECT_EQ(format_->Piece(1 << 30), "");
}

}  // namespace
}  // namespace skippy
