#include "serve/json.h"

#include <algorithm>

namespace skippy {
namespace {

// Deepest nesting in `text`, which need not be valid JSON. The library parses without recursion but
// prints with it, so that depth is bounded before anything is built.
int NestingDepth(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      i += c == '\\' ? 1 : 0;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

ApiResult<Json> ParseJsonObject(std::string_view body) {
  if (NestingDepth(body) > kJsonDepthMax) {
    return InvalidRequest("", "the request body is nested more than " +
                                  std::to_string(kJsonDepthMax) + " levels deep");
  }
  try {
    Json value = Json::parse(body);
    if (!value.is_object()) {
      return InvalidRequest(
          "", "the request body must be a JSON object, not " + std::string(value.type_name()));
    }
    return value;
  } catch (const nlohmann::json::exception&) {
    // The library's own text quotes the input, which must not reach logs.
    return InvalidRequest("", "the request body is not valid JSON");
  }
}

std::string DumpJson(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

const Json* FindMember(const Json& object, std::string_view name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

}  // namespace skippy
