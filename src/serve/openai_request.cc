#include "serve/openai_request.h"

#include <charconv>
#include <chrono>
#include <limits>
#include <optional>

namespace skippy {
namespace {

constexpr std::size_t kStopStringsMax = 32;
constexpr std::size_t kNamespaceBytesMax = 256;
constexpr std::size_t kChoicesMax = 128;  // prompts x n
// From the last request that asked for it.
constexpr std::chrono::hours kLongRetention{24};  // prompt_cache_retention: 24h
constexpr std::chrono::hours kKeyRetention{1};    // prompt_cache_key
constexpr double kForbiddingBias = -100;

std::optional<float> GetFloat(const Json& body, std::string_view name) {
  const std::optional<double> value = GetNumber(body, name);
  return value ? std::optional(static_cast<float>(*value)) : std::nullopt;
}

std::optional<int> GetInt(const Json& body, std::string_view name) {
  const std::optional<std::int64_t> value = GetInteger(body, name);
  return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
}

ApiStatus ParseStop(const Json& body, std::vector<std::string>& stop) {
  const Json* field = FindMember(body, "stop");
  if (field == nullptr) {
    return {};
  }
  const Json list = field->is_string() ? Json::array({*field}) : *field;
  if (list.size() > kStopStringsMax) {
    return InvalidRequest("stop", "'stop' has " + std::to_string(list.size()) +
                                      " strings, at most " + std::to_string(kStopStringsMax) +
                                      " are allowed");
  }
  for (const Json& item : list) {
    if (!item.is_string()) {
      return InvalidRequest("stop", "'stop' must be a string or an array of strings",
                            "invalid_type");
    }
    // An empty string would end every reply before it begins; clients send it for "none".
    if (!item.get_ref<const std::string&>().empty()) {
      stop.push_back(item.get<std::string>());
    }
  }
  return {};
}

ApiError BadBias() {
  return InvalidRequest("logit_bias",
                        "'logit_bias' must map token ids of this model to numbers, as "
                        "{\"id\": bias} or [[id, bias]]");
}

std::optional<Token> ParseToken(const Json& value) {
  Token token = -1;
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), token);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(token)
                                                                    : std::nullopt;
  }
  if (!value.is_number_integer()) {
    return std::nullopt;
  }
  const auto number = value.get<std::int64_t>();
  return number >= 0 && number <= std::numeric_limits<Token>::max()
             ? std::optional(static_cast<Token>(number))
             : std::nullopt;
}

ApiStatus AddBias(const Json& id, const Json& bias, const ChatFormat& chat,
                  SamplingOptions& sampling) {
  const std::optional<Token> token = ParseToken(id);
  if (!token || !chat.IsValidToken(*token) || !bias.is_number()) {
    return BadBias();
  }
  const auto value = bias.get<double>();
  sampling.logit_bias.emplace_back(*token, value <= kForbiddingBias
                                               ? -std::numeric_limits<float>::infinity()
                                               : static_cast<float>(value));
  return {};
}

ApiStatus ParseLogitBias(const Json& body, const ChatFormat& chat, SamplingOptions& sampling) {
  const Json* field = FindMember(body, "logit_bias");
  if (field == nullptr) {
    return {};
  }
  for (const auto& [key, value] : field->items()) {
    const bool pair = field->is_array() && value.is_array() && value.size() == 2;
    if (field->is_array() && !pair) {
      return BadBias();
    }
    ApiStatus added = pair ? AddBias(value[0], value[1], chat, sampling)
                           : AddBias(Json(key), value, chat, sampling);
    if (!added) {
      return added;
    }
  }
  return {};
}

ApiStatus ParseSampling(const Json& body, const ChatFormat& chat, SamplingOptions& sampling) {
  sampling.temperature = GetFloat(body, "temperature");
  sampling.top_k = GetInt(body, "top_k");
  sampling.top_p = GetFloat(body, "top_p");
  sampling.min_p = GetFloat(body, "min_p");
  sampling.typical_p = GetFloat(body, "typical_p");
  sampling.frequency_penalty = GetFloat(body, "frequency_penalty");
  sampling.presence_penalty = GetFloat(body, "presence_penalty");
  sampling.repeat_penalty = GetFloat(body, "repeat_penalty");
  sampling.repeat_last_n = GetInt(body, "repeat_last_n");
  sampling.ignore_eos = GetBool(body, "ignore_eos").value_or(false);
  const std::optional<std::int64_t> seed = GetInteger(body, "seed");
  if (seed && *seed >= 0) {
    sampling.seed = static_cast<std::uint32_t>(*seed);
  }
  return ParseLogitBias(body, chat, sampling);
}

ApiStatus ParseLogprobs(const Json& body, OpenAiRequest& request) {
  if (request.endpoint == Endpoint::kCompletions) {
    request.base.top_logprobs = GetInt(body, "logprobs").value_or(-1);
    return {};
  }
  const bool wanted = GetBool(body, "logprobs").value_or(false);
  const std::optional<int> top = GetInt(body, "top_logprobs");
  if (top.value_or(0) > 0 && !wanted) {
    return InvalidRequest("top_logprobs", "'top_logprobs' needs 'logprobs' to be true");
  }
  request.base.top_logprobs = wanted ? top.value_or(0) : -1;
  return {};
}

ApiStatus ParseCacheFields(const Json& body, GenerateRequest& base) {
  base.name_space = GetString(body, "cache_salt").value_or("");
  if (base.name_space.size() > kNamespaceBytesMax) {
    return InvalidRequest("cache_salt", "'cache_salt' must have at most 256 bytes");
  }
  base.cache_read = GetBool(body, "cache_prompt").value_or(true);
  const std::string retention = GetString(body, "prompt_cache_retention").value_or("");
  if (!retention.empty() && retention != "24h" && retention != "in_memory" &&
      retention != "in-memory") {
    return InvalidRequest("prompt_cache_retention",
                          "'prompt_cache_retention' must be in_memory or 24h");
  }
  base.cache_persist = retention.empty() || retention == "24h";
  base.affinity_key = GetString(body, "prompt_cache_key").value_or("");
  if (retention == "24h") {
    base.retain_for = kLongRetention;
  } else if (!base.affinity_key.empty()) {
    base.retain_for = kKeyRetention;
  }
  return {};
}

// What both endpoints have in common.
ApiResult<OpenAiRequest> ParseCommon(const Json& body, Endpoint endpoint, const ChatFormat& chat) {
  if (ApiStatus valid = ValidateFields(body, endpoint); !valid) {
    return std::move(valid).error();
  }
  OpenAiRequest request;
  request.endpoint = endpoint;
  request.model = GetString(body, "model").value_or("");
  request.stream = GetBool(body, "stream").value_or(false);
  request.include_usage = GetBool(body, "stream_options.include_usage").value_or(false);
  request.choices_per_prompt = GetInt(body, "n").value_or(1);
  const std::optional<int> completion_max = GetInt(body, "max_completion_tokens");
  const std::optional<int> plain_max = GetInt(body, "max_tokens");
  const int predict_max = GetInt(body, "n_predict").value_or(-1);
  request.base.max_tokens = completion_max.value_or(plain_max.value_or(predict_max));
  for (ApiStatus step :
       {ParseStop(body, request.base.stop), ParseSampling(body, chat, request.base.sampling),
        ParseLogprobs(body, request), ParseCacheFields(body, request.base)}) {
    if (!step) {
      return std::move(step).error();
    }
  }
  request.client_stop_count = request.base.stop.size();
  return request;
}

ApiStatus CheckLength(std::size_t prompt_tokens, const OpenAiRequest& request,
                      const ModelInfo& info) {
  const auto context = static_cast<std::size_t>(info.context_tokens);
  // A reply needs room for a token, and so that prewarming a prompt and asking it agree, this holds
  // without a reply too.
  if (prompt_tokens < context) {
    return {};
  }
  const char* param = request.endpoint == Endpoint::kChat ? "messages" : "prompt";
  return InvalidRequest(param,
                        "the prompt has " + std::to_string(prompt_tokens) +
                            " tokens, which does not fit this server's context of " +
                            std::to_string(context) + " tokens",
                        "context_length_exceeded");
}

ApiError BadPrompt(const PromptField& field) {
  return InvalidRequest(field.name,
                        "'" + std::string(field.name) +
                            "' must be a string, an array of strings, an array of token ids or an "
                            "array of arrays of token ids, not empty, and at most " +
                            std::to_string(field.prompts_max) + " of them");
}

ApiResult<PreparedPrompt> ParseTokenPrompt(const PromptField& field, const Json& ids,
                                           const ChatFormat& chat) {
  PreparedPrompt prompt;
  for (const Json& id : ids) {
    const std::optional<Token> token = id.is_number_integer() ? ParseToken(id) : std::nullopt;
    if (!token || !chat.IsValidToken(*token)) {
      return InvalidRequest(field.name, "'" + std::string(field.name) +
                                            "' has an element that is not a token id of the model");
    }
    prompt.tokens.push_back(*token);
  }
  prompt.echo_text = chat.Detokenize(prompt.tokens);
  return prompt;
}

ApiResult<PreparedPrompt> ParsePrompt(const PromptField& field, const Json& item,
                                      const ChatFormat& chat) {
  if (item.is_array()) {
    return ParseTokenPrompt(field, item, chat);
  }
  if (!item.is_string()) {
    return BadPrompt(field);
  }
  PreparedPrompt prompt;
  prompt.echo_text = item.get<std::string>();
  Result<std::vector<Token>> tokens = chat.Tokenize(prompt.echo_text, true, true);
  if (!tokens) {
    return FromError(tokens.error());
  }
  prompt.tokens = std::move(*tokens);
  return prompt;
}

// The schema that the reply must follow, "" for none.
ApiResult<std::string> ParseResponseFormat(const Json& body) {
  const Json* schema = FindMember(body, "json_schema");
  const Json* format = FindMember(body, "response_format");
  if (format == nullptr) {
    return schema == nullptr ? std::string() : DumpJson(*schema);
  }
  const Json* type = FindMember(*format, "type");
  if (type == nullptr || !type->is_string()) {
    return InvalidRequest("response_format.type", "'response_format.type' must be a string",
                          "invalid_type");
  }
  if (*type == "text") {
    return std::string();
  }
  if (*type == "json_object") {
    schema = FindMember(*format, "schema");
    return schema == nullptr ? std::string(R"({"type":"object"})") : DumpJson(*schema);
  }
  if (*type != "json_schema") {
    return InvalidRequest("response_format.type",
                          "'response_format.type' must be text, json_object or json_schema");
  }
  const Json* wrapper = FindMember(*format, "json_schema");
  schema = wrapper != nullptr && wrapper->is_object() ? FindMember(*wrapper, "schema") : nullptr;
  if (schema == nullptr || !schema->is_object()) {
    return InvalidRequest("response_format.json_schema.schema",
                          "'response_format.json_schema.schema' must be an object", "invalid_type");
  }
  return DumpJson(*schema);
}

// What a completion must look like.
ApiStatus ParseGrammar(const Json& body, const ChatFormat& chat, GenerateRequest& base) {
  base.grammar = GetString(body, "grammar").value_or("");
  const ApiResult<std::string> schema = ParseResponseFormat(body);
  if (!schema) {
    return schema.error();
  }
  if (schema->empty()) {
    return {};
  }
  if (!base.grammar.empty()) {
    return InvalidRequest("grammar", "'grammar' cannot be combined with a schema");
  }
  Result<std::string> grammar = chat.GrammarOfSchema(*schema);
  if (!grammar) {
    return FromError(grammar.error());
  }
  base.grammar = std::move(*grammar);
  return {};
}

// The name of a function tool, null when `tool` is not a well-formed one.
const std::string* FunctionName(const Json& tool) {
  const Json* type = tool.is_object() ? FindMember(tool, "type") : nullptr;
  const Json* function = tool.is_object() ? FindMember(tool, "function") : nullptr;
  if (type == nullptr || *type != "function" || function == nullptr || !function->is_object()) {
    return nullptr;
  }
  const Json* name = FindMember(*function, "name");
  return name != nullptr && name->is_string() ? &name->get_ref<const std::string&>() : nullptr;
}

ApiStatus ParseNamedTool(const Json& choice, const Json& tools, ChatRequest& chat) {
  const std::string* wanted = FunctionName(choice);
  if (wanted == nullptr) {
    return InvalidRequest("tool_choice",
                          "'tool_choice' must be none, auto, required or {\"type\": \"function\", "
                          "\"function\": {\"name\": ...}}");
  }
  for (const Json& tool : tools) {
    if (*FunctionName(tool) == *wanted) {
      chat.tools_json = DumpJson(Json::array({tool}));
      chat.tool_choice = "required";
      return {};
    }
  }
  return InvalidRequest("tool_choice", "'tool_choice' names a function that 'tools' does not have");
}

ApiStatus ParseTools(const Json& body, ChatRequest& chat) {
  const Json* field = FindMember(body, "tools");
  const Json tools = field == nullptr ? Json::array() : *field;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    if (FunctionName(tools[i]) == nullptr) {
      const std::string place = "tools[" + std::to_string(i) + "]";
      return InvalidRequest(place, "'" + place +
                                       "' must be {\"type\": \"function\", \"function\": "
                                       "{\"name\": ..., ...}}");
    }
  }
  chat.tools_json = tools.empty() ? "" : DumpJson(tools);
  const Json* choice = FindMember(body, "tool_choice");
  if (choice == nullptr) {
    return {};
  }
  if (choice->is_object()) {
    return ParseNamedTool(*choice, tools, chat);
  }
  chat.tool_choice = choice->get<std::string>();
  if (chat.tool_choice != "auto" && chat.tool_choice != "none" && chat.tool_choice != "required") {
    return InvalidRequest("tool_choice",
                          "'tool_choice' must be none, auto, required or a function");
  }
  if (chat.tool_choice == "required" && tools.empty()) {
    return InvalidRequest("tool_choice", "'tool_choice' is required, but there are no 'tools'");
  }
  return {};
}

void ParseTemplateFields(const Json& body, ChatRequest& chat) {
  chat.grammar = GetString(body, "grammar").value_or("");
  chat.parallel_tool_calls = GetBool(body, "parallel_tool_calls").value_or(false);
  chat.add_generation_prompt = GetBool(body, "add_generation_prompt").value_or(true);
  if (const std::optional<std::string> effort = GetString(body, "reasoning_effort")) {
    chat.enable_thinking = *effort != "none";
    chat.template_kwargs["reasoning_effort"] = DumpJson(*effort);
  }
  if (const Json* kwargs = FindMember(body, "chat_template_kwargs")) {
    for (const auto& [name, value] : kwargs->items()) {
      chat.template_kwargs[name] = DumpJson(value);
      if (name == "enable_thinking" && value.is_boolean()) {
        chat.enable_thinking = value.get<bool>();
      }
    }
  }
}

}  // namespace

ApiResult<std::vector<PreparedPrompt>> ParsePrompts(const Json& body, const PromptField& field,
                                                    const ChatFormat& chat) {
  const Json* value = FindMember(body, field.name);
  if (value == nullptr) {
    return InvalidRequest(field.name, "'" + std::string(field.name) + "' is required",
                          "missing_required_parameter");
  }
  const bool single =
      value->is_string() || (value->is_array() && !value->empty() && value->front().is_number());
  const Json list = single ? Json::array({*value}) : *value;
  if (list.empty() || list.size() > field.prompts_max) {
    return BadPrompt(field);
  }
  std::vector<PreparedPrompt> prompts;
  for (const Json& item : list) {
    ApiResult<PreparedPrompt> prompt = ParsePrompt(field, item, chat);
    if (!prompt) {
      return std::move(prompt).error();
    }
    if (prompt->tokens.empty()) {
      return BadPrompt(field);
    }
    prompts.push_back(std::move(*prompt));
  }
  return prompts;
}

ApiResult<ChatRequest> ParseChatTemplateInput(const Json& body) {
  ApiResult<Json> messages = NormalizeMessages(body);
  if (!messages) {
    return std::move(messages).error();
  }
  ApiResult<std::string> schema = ParseResponseFormat(body);
  if (!schema) {
    return std::move(schema).error();
  }
  ChatRequest chat;
  chat.messages_json = DumpJson(*messages);
  chat.json_schema = std::move(*schema);
  if (ApiStatus ok = ParseTools(body, chat); !ok) {
    return std::move(ok).error();
  }
  ParseTemplateFields(body, chat);
  return chat;
}

ApiResult<OpenAiRequest> ParseChatRequest(const Json& body, const Engine& engine) {
  ApiResult<OpenAiRequest> request = ParseCommon(body, Endpoint::kChat, engine.chat());
  if (!request) {
    return request;
  }
  ApiResult<ChatRequest> chat = ParseChatTemplateInput(body);
  if (!chat) {
    return std::move(chat).error();
  }
  Result<ChatPrompt> prompt = engine.chat().Apply(*chat);
  if (!prompt) {
    return FromError(prompt.error());
  }
  if (prompt->tokens.empty()) {
    return InvalidRequest("messages", "'messages' give an empty prompt");
  }
  if (ApiStatus fits = CheckLength(prompt->tokens.size(), *request, engine.Info()); !fits) {
    return std::move(fits).error();
  }
  request->base.reply_format = std::move(prompt->reply_format);
  request->base.stop.insert(request->base.stop.end(), prompt->extra_stops.begin(),
                            prompt->extra_stops.end());
  request->prompts.push_back({std::move(prompt->tokens), prompt->last_user_position, ""});
  return request;
}

ApiResult<OpenAiRequest> ParseCompletionRequest(const Json& body, const Engine& engine) {
  ApiResult<OpenAiRequest> request = ParseCommon(body, Endpoint::kCompletions, engine.chat());
  if (!request) {
    return request;
  }
  const bool echo = GetBool(body, "echo").value_or(false);
  if (echo && request->base.top_logprobs >= 0) {
    return InvalidRequest("echo", "'echo' cannot be combined with 'logprobs'",
                          "unsupported_parameter");
  }
  if (ApiStatus ok = ParseGrammar(body, engine.chat(), request->base); !ok) {
    return std::move(ok).error();
  }
  ApiResult<std::vector<PreparedPrompt>> prompts =
      ParsePrompts(body, {"prompt", kChoicesMax}, engine.chat());
  if (!prompts) {
    return std::move(prompts).error();
  }
  if (prompts->size() * static_cast<std::size_t>(request->choices_per_prompt) > kChoicesMax) {
    return InvalidRequest("n", "prompts x 'n' must be at most " + std::to_string(kChoicesMax));
  }
  for (PreparedPrompt& prompt : *prompts) {
    if (ApiStatus fits = CheckLength(prompt.tokens.size(), *request, engine.Info()); !fits) {
      return std::move(fits).error();
    }
    if (!echo) {
      prompt.echo_text.clear();
    }
  }
  request->prompts = std::move(*prompts);
  return request;
}

}  // namespace skippy
