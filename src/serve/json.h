// JSON at the HTTP edge. Objects keep the order of their keys: prompts are made of what clients
// send, and a prefix is only the same prefix when its bytes are.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "serve/api_error.h"

namespace skippy {

using Json = nlohmann::ordered_json;

// Deepest nesting of arrays and objects that a body may have.
inline constexpr int kJsonDepthMax = 128;

// A body that must be a JSON object. Never throws.
ApiResult<Json> ParseJsonObject(std::string_view body);

// One line. Bytes that are not UTF-8 become U+FFFD. Never throws.
std::string DumpJson(const Json& value);

// The member `name` of `object`, or null when it is absent or null.
const Json* FindMember(const Json& object, std::string_view name);

}  // namespace skippy
