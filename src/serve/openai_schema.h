// The one table of request fields: what each may hold, and what becomes of it. Validation and the
// documentation are made from it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "serve/api_error.h"
#include "serve/json.h"

namespace skippy {

enum class Endpoint : std::uint8_t {
  kChat = 1,
  kCompletions = 2,
  kMessages = 4,
  kResponses = 8,
  kEmbeddings = 16,
};

enum class FieldUse : std::uint8_t {
  kHonoured,
  kNoEffect,  // accepted, and nothing changes
  kRefused,   // 400: doing as if nothing were asked would give a wrong answer
};

// JSON types as a set.
enum FieldType : unsigned {
  kBoolean = 1U << 0,
  kInteger = 1U << 1,
  kNumber = 1U << 2,
  kString = 1U << 3,
  kArray = 1U << 4,
  kObject = 1U << 5,
};

inline constexpr unsigned kBothEndpoints = 3;
inline constexpr double kUnbounded = std::numeric_limits<double>::infinity();

struct FieldSpec {
  std::string_view name;                // "outer.inner" for a member of an object
  unsigned types = 0;                   // of FieldType; null always counts as absent
  unsigned endpoints = kBothEndpoints;  // of Endpoint
  FieldUse use = FieldUse::kHonoured;
  std::string_view note;  // honoured how; refused why
  double min = -kUnbounded;
  double max = kUnbounded;
};

std::span<const FieldSpec> FieldTable();

// Checks every field of the table that `body` has; fields that the table lacks are ignored.
ApiStatus ValidateFields(const Json& body, Endpoint endpoint);

// Typed access to fields that ValidateFields has seen; nullopt when absent or null.
std::optional<bool> GetBool(const Json& body, std::string_view name);
std::optional<double> GetNumber(const Json& body, std::string_view name);
std::optional<std::int64_t> GetInteger(const Json& body, std::string_view name);
std::optional<std::string> GetString(const Json& body, std::string_view name);

}  // namespace skippy
