#include <algorithm>
#include <array>

#include "serve/openai_request.h"

namespace skippy {
namespace {

constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                    "assistant", "tool",      "function"};

std::string Place(std::size_t index, std::string_view member) {
  return "messages[" + std::to_string(index) + "]." + std::string(member);
}

ApiError MustBe(const std::string& place, std::string_view expected) {
  return InvalidRequest(place, "'" + place + "' must be " + std::string(expected), "invalid_type");
}

ApiStatus CheckPart(const Json& part, const std::string& place) {
  if (!part.is_object()) {
    return MustBe(place, "an object");
  }
  const Json* type = FindMember(part, "type");
  if (type == nullptr || !type->is_string()) {
    return MustBe(place + ".type", "a string");
  }
  if (*type != "text" && *type != "refusal") {
    return InvalidRequest(place, "'" + place + "' is not text: only text content is supported",
                          "unsupported_content");
  }
  const Json* text = FindMember(part, type->get<std::string>());
  return text != nullptr && text->is_string() ? ApiStatus() : MustBe(place + ".text", "a string");
}

ApiStatus CheckContent(const Json& content, const std::string& place) {
  if (content.is_string()) {
    return {};
  }
  if (!content.is_array()) {
    return MustBe(place, "a string or an array of content parts");
  }
  for (std::size_t i = 0; i < content.size(); ++i) {
    if (ApiStatus ok = CheckPart(content[i], place + "[" + std::to_string(i) + "]"); !ok) {
      return ok;
    }
  }
  return content.empty() ? ApiStatus(InvalidRequest(place, "'" + place + "' must not be empty"))
                         : ApiStatus();
}

ApiStatus CheckToolCalls(const Json& calls, const std::string& place) {
  if (!calls.is_array()) {
    return MustBe(place, "an array");
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::string at = place + "[" + std::to_string(i) + "].function";
    const Json* function = calls[i].is_object() ? FindMember(calls[i], "function") : nullptr;
    if (function == nullptr || !function->is_object()) {
      return MustBe(at, "an object");
    }
    const Json* name = FindMember(*function, "name");
    if (name == nullptr || !name->is_string()) {
      return MustBe(at + ".name", "a string");
    }
    const Json* arguments = FindMember(*function, "arguments");
    if (arguments != nullptr && !arguments->is_string() && !arguments->is_object()) {
      return MustBe(at + ".arguments", "a string");
    }
  }
  return {};
}

ApiStatus CheckMessage(const Json& message, std::size_t index) {
  const std::string place = "messages[" + std::to_string(index) + "]";
  if (!message.is_object()) {
    return MustBe(place, "an object");
  }
  const Json* role = FindMember(message, "role");
  if (role == nullptr || !role->is_string()) {
    return MustBe(Place(index, "role"), "a string");
  }
  if (std::find(kRoles.begin(), kRoles.end(), role->get<std::string>()) == kRoles.end()) {
    return InvalidRequest(
        Place(index, "role"),
        "'" + Place(index, "role") + "' must be system, developer, user, assistant or tool");
  }
  const Json* calls = FindMember(message, "tool_calls");
  if (calls != nullptr) {
    if (ApiStatus ok = CheckToolCalls(*calls, Place(index, "tool_calls")); !ok) {
      return ok;
    }
  }
  const Json* content = FindMember(message, "content");
  if (content != nullptr) {
    return CheckContent(*content, Place(index, "content"));
  }
  const bool may_lack_content = *role == "assistant" && calls != nullptr && !calls->empty();
  return may_lack_content ? ApiStatus()
                          : MustBe(Place(index, "content"), "a string or an array of text parts");
}

// A content of one text part as that text.
void CollapseContent(Json& message) {
  const auto content = message.find("content");
  if (content != message.end() && content->is_array() && content->size() == 1 &&
      content->front().contains("text")) {
    Json text = content->front()["text"];
    *content = std::move(text);
  }
}

}  // namespace

ApiResult<Json> NormalizeMessages(const Json& body) {
  const Json* messages = FindMember(body, "messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    return InvalidRequest("messages", "'messages' must be an array of at least one message",
                          messages == nullptr ? "missing_required_parameter" : "invalid_value");
  }
  Json normalized = *messages;
  for (std::size_t i = 0; i < normalized.size(); ++i) {
    if (ApiStatus ok = CheckMessage(normalized[i], i); !ok) {
      return std::move(ok).error();
    }
    CollapseContent(normalized[i]);
  }
  return normalized;
}

}  // namespace skippy
