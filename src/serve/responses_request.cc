#include <string>
#include <utility>

#include "serve/responses.h"

namespace skippy {
namespace {

std::string Member(const Json& object, const char* name) {
  const Json* value = object.is_object() ? FindMember(object, name) : nullptr;
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

// The parts of a message as chat completions name them.
Json ChatContent(const Json& content) {
  if (!content.is_array()) {
    return content;
  }
  Json parts = Json::array();
  for (const Json& part : content) {
    const std::string type = Member(part, "type");
    const bool text = type == "input_text" || type == "output_text" || type == "text";
    parts.push_back(text ? Json{{"type", "text"}, {"text", Member(part, "text")}} : part);
  }
  return parts;
}

// Calls that follow each other, or a message of the assistant, are one message.
void AddCall(const Json& item, Json& messages) {
  Json call{
      {"id", Member(item, "call_id")},
      {"type", "function"},
      {"function", {{"name", Member(item, "name")}, {"arguments", Member(item, "arguments")}}}};
  if (messages.empty() || messages.back()["role"] != "assistant") {
    messages.push_back(Json{{"role", "assistant"}});
  }
  messages.back()["tool_calls"].push_back(std::move(call));
}

ApiStatus AddItem(const Json& item, std::size_t index, Json& messages) {
  const std::string place = "input[" + std::to_string(index) + "]";
  const std::string type = Member(item, "type");
  if (type == "function_call") {
    AddCall(item, messages);
    return {};
  }
  if (type == "function_call_output") {
    const Json* output = FindMember(item, "output");
    messages.push_back(Json{{"role", "tool"},
                            {"tool_call_id", Member(item, "call_id")},
                            {"content", output == nullptr ? Json("") : ChatContent(*output)}});
    return {};
  }
  if (type == "reasoning") {
    return {};
  }
  const Json* content = item.is_object() ? FindMember(item, "content") : nullptr;
  if ((!type.empty() && type != "message") || content == nullptr || Member(item, "role").empty()) {
    return InvalidRequest(place,
                          "'" + place +
                              "' must be a message with role and content, a function_call, a "
                              "function_call_output or a reasoning item",
                          "unsupported_content");
  }
  messages.push_back(Json{{"role", Member(item, "role")}, {"content", ChatContent(*content)}});
  return {};
}

ApiStatus ReadInput(const Json& body, Json& chat) {
  Json messages = Json::array();
  if (const auto instructions = GetString(body, "instructions")) {
    messages.push_back(Json{{"role", "system"}, {"content", *instructions}});
  }
  const Json* input = FindMember(body, "input");
  if (input == nullptr || input->empty()) {
    return InvalidRequest("input", "'input' is required", "missing_required_parameter");
  }
  if (input->is_string()) {
    messages.push_back(Json{{"role", "user"}, {"content", *input}});
  } else {
    for (std::size_t i = 0; i < input->size(); ++i) {
      if (ApiStatus ok = AddItem((*input)[i], i, messages); !ok) {
        return ok;
      }
    }
  }
  chat["messages"] = std::move(messages);
  return {};
}

ApiStatus ReadTools(const Json& body, Json& chat) {
  const Json* tools = FindMember(body, "tools");
  for (std::size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
    const Json& tool = (*tools)[i];
    const std::string place = "tools[" + std::to_string(i) + "]";
    if (Member(tool, "type") != "function" || Member(tool, "name").empty()) {
      return InvalidRequest(place,
                            "'" + place + "' must be {\"type\": \"function\", \"name\": ...}",
                            "unsupported_tool");
    }
    Json function = tool;
    function.erase("type");
    chat["tools"].push_back(Json{{"type", "function"}, {"function", std::move(function)}});
  }
  const Json* choice = FindMember(body, "tool_choice");
  if (choice != nullptr) {
    chat["tool_choice"] = choice->is_object()
                              ? Json{{"type", Member(*choice, "type")},
                                     {"function", {{"name", Member(*choice, "name")}}}}
                              : *choice;
  }
  return {};
}

// Here the schema stands beside the type, there in a member of its own.
void ReadFormat(const Json& body, Json& chat) {
  const Json* text = FindMember(body, "text");
  const Json* format = text == nullptr ? nullptr : FindMember(*text, "format");
  if (format == nullptr) {
    return;
  }
  chat["response_format"] = *format;
  if (Member(*format, "type") == "json_schema") {
    Json wrapper = *format;
    wrapper.erase("type");
    chat["response_format"] = Json{{"type", "json_schema"}, {"json_schema", std::move(wrapper)}};
  }
}

void CopyFields(const Json& body, Json& chat) {
  for (const char* name : {"model", "stream", "temperature", "top_p", "parallel_tool_calls",
                           "cache_salt", "prompt_cache_retention", "prompt_cache_key"}) {
    if (const Json* value = FindMember(body, name)) {
      chat[name] = *value;
    }
  }
  if (const auto max_tokens = GetInteger(body, "max_output_tokens")) {
    chat["max_tokens"] = *max_tokens;
  }
  if (const auto effort = GetString(body, "reasoning.effort")) {
    chat["reasoning_effort"] = *effort;
  }
}

}  // namespace

ApiResult<Json> ChatBodyOfResponses(const Json& body) {
  if (ApiStatus valid = ValidateFields(body, Endpoint::kResponses); !valid) {
    return std::move(valid).error();
  }
  Json chat = Json::object();
  CopyFields(body, chat);
  ReadFormat(body, chat);
  for (const auto read : {ReadInput, ReadTools}) {
    if (ApiStatus ok = read(body, chat); !ok) {
      return std::move(ok).error();
    }
  }
  return chat;
}

}  // namespace skippy
