// The replies of the management API as text for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace skippy {

// The whole status, many lines. Fields that are missing are shown as 0 or "unknown".
std::string StatusText(const nlohmann::ordered_json& status);

// One line without an end: state and usage.
std::string StatusLine(const nlohmann::ordered_json& status);

// One line without an end: the RAM tier of a status.
std::string LimitsLine(const nlohmann::ordered_json& status);

// One line without an end: what a mutation freed and what is used after it.
std::string MutationLine(const nlohmann::ordered_json& reply);

// The message of an error reply, or what the body begins with.
std::string ErrorText(int http_status, const std::string& body);

}  // namespace skippy
