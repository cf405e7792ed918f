#include <string>
#include <utility>

#include "serve/anthropic.h"
#include "serve/openai_request.h"

namespace skippy {
namespace {

// A line that a coding assistant puts before its system prompt, with a number that is another one
// in every request: as part of the prompt it would make every prefix a new one.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header:";

ApiError MustBe(const std::string& place, std::string_view expected) {
  return InvalidRequest(place, "'" + place + "' must be " + std::string(expected), "invalid_type");
}

std::string Indexed(const std::string& place, std::size_t index) {
  return place + "[" + std::to_string(index) + "]";
}

std::string TypeOf(const Json& block) {
  const Json* type = block.is_object() ? FindMember(block, "type") : nullptr;
  return type != nullptr && type->is_string() ? type->get<std::string>() : "";
}

ApiResult<std::string> Text(const Json& block, const char* member, const std::string& place) {
  const Json* text = FindMember(block, member);
  if (text == nullptr || !text->is_string()) {
    return MustBe(place + "." + member, "a string");
  }
  return text->get<std::string>();
}

// A string, or text blocks joined by line breaks. `skip` is the beginning of blocks to leave out.
ApiResult<std::string> JoinedText(const Json& content, const std::string& place,
                                  std::string_view skip = {}) {
  if (content.is_string()) {
    return content.get<std::string>();
  }
  if (!content.is_array()) {
    return MustBe(place, "a string or an array of text blocks");
  }
  std::string joined;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string at = Indexed(place, i);
    if (TypeOf(content[i]) != "text") {
      return InvalidRequest(at, "'" + at + "' is not text: only text content is supported",
                            "unsupported_content");
    }
    ApiResult<std::string> text = Text(content[i], "text", at);
    if (!text) {
      return text;
    }
    if (!skip.empty() && text->starts_with(skip)) {
      continue;
    }
    joined += (joined.empty() ? "" : "\n") + *text;
  }
  return joined;
}

// Turns the blocks of one message into messages of chat completions: each tool result is one, what
// else the user said is another.
class MessageReader {
 public:
  MessageReader(Json& out, std::string role) : out_(out), role_(std::move(role)) {}

  ApiStatus Read(const Json& block, const std::string& place) {
    const std::string type = TypeOf(block);
    if (type == "text") {
      return AddText(block, place);
    }
    if (type == "tool_result" && role_ == "user") {
      return AddToolResult(block, place);
    }
    if (type == "tool_use" && role_ == "assistant") {
      return AddToolUse(block, place);
    }
    if (type == "thinking" && role_ == "assistant") {
      return AddThinking(block, place);
    }
    if (type == "redacted_thinking" && role_ == "assistant") {
      return {};
    }
    return InvalidRequest(place,
                          "'" + place + "' is '" + type +
                              "', which is not supported in a message "
                              "of the " +
                              role_,
                          "unsupported_content");
  }

  // The message that is still open.
  void Flush() {
    if (texts_.empty() && calls_.empty() && reasoning_.empty()) {
      return;
    }
    Json message{{"role", role_}};
    if (!reasoning_.empty()) {
      message["reasoning_content"] = std::exchange(reasoning_, {});
    }
    if (!texts_.empty() || calls_.empty()) {
      message["content"] = texts_.empty() ? Json("") : std::exchange(texts_, Json::array());
    }
    if (!calls_.empty()) {
      message["tool_calls"] = std::exchange(calls_, Json::array());
    }
    out_.push_back(std::move(message));
  }

 private:
  ApiStatus AddText(const Json& block, const std::string& place) {
    ApiResult<std::string> text = Text(block, "text", place);
    if (!text) {
      return std::move(text).error();
    }
    texts_.push_back(Json{{"type", "text"}, {"text", std::move(*text)}});
    return {};
  }

  ApiStatus AddToolResult(const Json& block, const std::string& place) {
    ApiResult<std::string> id = Text(block, "tool_use_id", place);
    if (!id) {
      return std::move(id).error();
    }
    const Json* content = FindMember(block, "content");
    ApiResult<std::string> text =
        content == nullptr ? std::string() : JoinedText(*content, place + ".content");
    if (!text) {
      return std::move(text).error();
    }
    Flush();
    out_.push_back(
        Json{{"role", "tool"}, {"tool_call_id", std::move(*id)}, {"content", std::move(*text)}});
    return {};
  }

  ApiStatus AddToolUse(const Json& block, const std::string& place) {
    ApiResult<std::string> id = Text(block, "id", place);
    ApiResult<std::string> name = Text(block, "name", place);
    if (!id || !name) {
      return std::move(!id ? id : name).error();
    }
    const Json* input = FindMember(block, "input");
    if (input != nullptr && !input->is_object()) {
      return MustBe(place + ".input", "an object");
    }
    calls_.push_back(Json{
        {"id", std::move(*id)},
        {"type", "function"},
        {"function",
         {{"name", std::move(*name)}, {"arguments", input == nullptr ? "{}" : DumpJson(*input)}}}});
    return {};
  }

  ApiStatus AddThinking(const Json& block, const std::string& place) {
    ApiResult<std::string> text = Text(block, "thinking", place);
    if (!text) {
      return std::move(text).error();
    }
    reasoning_ += *text;
    return {};
  }

  Json& out_;
  const std::string role_;
  Json texts_ = Json::array();
  Json calls_ = Json::array();
  std::string reasoning_;
};

ApiStatus AddMessage(const Json& message, const std::string& place, Json& out) {
  if (!message.is_object()) {
    return MustBe(place, "an object");
  }
  ApiResult<std::string> role = Text(message, "role", place);
  if (!role) {
    return std::move(role).error();
  }
  if (*role != "user" && *role != "assistant" && *role != "system") {
    return InvalidRequest(place + ".role", "'" + place + ".role' must be user or assistant");
  }
  const Json* content = FindMember(message, "content");
  if (content == nullptr || (!content->is_string() && !content->is_array())) {
    return MustBe(place + ".content", "a string or an array of content blocks");
  }
  if (content->is_string()) {
    out.push_back(Json{{"role", *role}, {"content", *content}});
    return {};
  }
  MessageReader reader(out, *role);
  for (std::size_t i = 0; i < content->size(); ++i) {
    if (ApiStatus ok = reader.Read((*content)[i], Indexed(place + ".content", i)); !ok) {
      return ok;
    }
  }
  reader.Flush();
  return {};
}

ApiResult<Json> ReadMessages(const Json& body) {
  Json out = Json::array();
  if (const Json* system = FindMember(body, "system")) {
    ApiResult<std::string> text = JoinedText(*system, "system", kBillingHeader);
    if (!text) {
      return std::move(text).error();
    }
    if (!text->empty()) {
      out.push_back(Json{{"role", "system"}, {"content", std::move(*text)}});
    }
  }
  const Json* messages = FindMember(body, "messages");
  if (messages == nullptr || messages->empty()) {
    return InvalidRequest("messages", "'messages' must be an array of at least one message",
                          "missing_required_parameter");
  }
  for (std::size_t i = 0; i < messages->size(); ++i) {
    if (ApiStatus ok = AddMessage((*messages)[i], Indexed("messages", i), out); !ok) {
      return std::move(ok).error();
    }
  }
  return out;
}

ApiStatus ReadTools(const Json& body, Json& chat) {
  const Json* tools = FindMember(body, "tools");
  if (tools == nullptr || tools->empty()) {
    return {};
  }
  for (std::size_t i = 0; i < tools->size(); ++i) {
    const Json& tool = (*tools)[i];
    const std::string place = Indexed("tools", i);
    const Json* schema = tool.is_object() ? FindMember(tool, "input_schema") : nullptr;
    if (schema == nullptr || !schema->is_object()) {
      return InvalidRequest(place,
                            "'" + place +
                                "' has no 'input_schema': tools that the server "
                                "would run are not supported",
                            "unsupported_tool");
    }
    ApiResult<std::string> name = Text(tool, "name", place);
    if (!name) {
      return std::move(name).error();
    }
    Json function{{"name", std::move(*name)}};
    if (const Json* description = FindMember(tool, "description")) {
      function["description"] = *description;
    }
    function["parameters"] = *schema;
    chat["tools"].push_back(Json{{"type", "function"}, {"function", std::move(function)}});
  }
  chat["parallel_tool_calls"] =
      !GetBool(body, "tool_choice.disable_parallel_tool_use").value_or(false);
  return {};
}

ApiStatus ReadToolChoice(const Json& body, Json& chat) {
  if (FindMember(body, "tool_choice") == nullptr) {
    return {};
  }
  const std::string type = GetString(body, "tool_choice.type").value_or("");
  if (type == "auto" || type == "none") {
    chat["tool_choice"] = type;
  } else if (type == "any") {
    chat["tool_choice"] = "required";
  } else if (type == "tool") {
    chat["tool_choice"] =
        Json{{"type", "function"},
             {"function", {{"name", GetString(body, "tool_choice.name").value_or("")}}}};
  } else {
    return InvalidRequest("tool_choice.type", "'tool_choice.type' must be auto, any, tool or none");
  }
  return {};
}

ApiStatus ReadOutputConfig(const Json& body, Json& chat) {
  if (const auto effort = GetString(body, "output_config.effort")) {
    chat["reasoning_effort"] = *effort;
  }
  if (GetString(body, "thinking.type") == "disabled") {
    chat["chat_template_kwargs"] = Json{{"enable_thinking", false}};
  }
  const Json* config = FindMember(body, "output_config");
  const Json* format = config == nullptr ? nullptr : FindMember(*config, "format");
  if (format == nullptr) {
    return {};
  }
  const Json* schema = FindMember(*format, "schema");
  if (TypeOf(*format) != "json_schema" || schema == nullptr || !schema->is_object()) {
    return InvalidRequest("output_config.format",
                          "'output_config.format' must be {\"type\": \"json_schema\", \"schema\": "
                          "{...}}");
  }
  chat["response_format"] =
      Json{{"type", "json_schema"}, {"json_schema", {{"name", "reply"}, {"schema", *schema}}}};
  return {};
}

void CopyFields(const Json& body, Json& chat) {
  for (const char* name : {"model", "stream", "max_tokens", "temperature", "top_p", "top_k",
                           "cache_salt", "prompt_cache_retention"}) {
    if (const Json* value = FindMember(body, name)) {
      chat[name] = *value;
    }
  }
}

ApiStatus ReadStops(const Json& body, Json& chat) {
  const Json* stops = FindMember(body, "stop_sequences");
  if (stops == nullptr) {
    return {};
  }
  for (const Json& stop : *stops) {
    if (!stop.is_string()) {
      return InvalidRequest("stop_sequences", "'stop_sequences' must be an array of strings",
                            "invalid_type");
    }
  }
  chat["stop"] = *stops;
  return {};
}

}  // namespace

ApiResult<Json> ChatBodyOfMessages(const Json& body) {
  if (ApiStatus valid = ValidateFields(body, Endpoint::kMessages); !valid) {
    return std::move(valid).error();
  }
  ApiResult<Json> messages = ReadMessages(body);
  if (!messages) {
    return messages;
  }
  Json chat = Json::object();
  CopyFields(body, chat);
  chat["messages"] = std::move(*messages);
  for (const auto read : {ReadStops, ReadTools, ReadToolChoice, ReadOutputConfig}) {
    if (ApiStatus ok = read(body, chat); !ok) {
      return std::move(ok).error();
    }
  }
  return chat;
}

}  // namespace skippy
