#include "serve/openai_schema.h"

#include <cmath>
#include <string>
#include <vector>

namespace skippy {
namespace {

struct TypeName {
  FieldType type;
  const char* name;
};
constexpr TypeName kTypeNames[] = {{kBoolean, "a boolean"}, {kInteger, "an integer"},
                                   {kNumber, "a number"},   {kString, "a string"},
                                   {kArray, "an array"},    {kObject, "an object"}};

std::string DescribeTypes(unsigned types) {
  std::string text;
  for (const TypeName& known : kTypeNames) {
    if ((types & known.type) != 0) {
      text += (text.empty() ? "" : " or ") + std::string(known.name);
    }
  }
  return text;
}

bool IsWholeNumber(const Json& value) {
  constexpr double kExact = 9007199254740992.0;  // 2^53: larger doubles skip integers
  if (value.is_number_float()) {
    const double number = value.get<double>();
    return std::abs(number) <= kExact && std::trunc(number) == number;
  }
  return value.is_number_integer() &&
         (!value.is_number_unsigned() ||
          value.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX));
}

bool HasType(const Json& value, unsigned types) {
  const bool number = value.is_number();
  return ((types & kBoolean) != 0 && value.is_boolean()) ||
         ((types & kInteger) != 0 && number && IsWholeNumber(value)) ||
         ((types & kNumber) != 0 && number && std::isfinite(value.get<double>())) ||
         ((types & kString) != 0 && value.is_string()) ||
         ((types & kArray) != 0 && value.is_array()) ||
         ((types & kObject) != 0 && value.is_object());
}

const Json* FindField(const Json& body, std::string_view name) {
  const std::size_t dot = name.find('.');
  const Json* outer = FindMember(body, name.substr(0, dot));
  if (outer == nullptr || dot == std::string_view::npos) {
    return outer;
  }
  return outer->is_object() ? FindMember(*outer, name.substr(dot + 1)) : nullptr;
}

// Values of refused fields that ask for nothing.
bool AsksForNothing(const Json& body, const FieldSpec& field, const Json& value) {
  if (field.name == "best_of") {
    return GetInteger(body, "best_of") == GetInteger(body, "n").value_or(1);
  }
  if (field.name == "modalities") {
    return value == Json::array({"text"});
  }
  if (field.name == "top_logprobs") {
    return value == 0;
  }
  if (value.is_boolean()) {
    return !value.get<bool>();
  }
  return value.is_string() ? value.get_ref<const std::string&>().empty() : value.empty();
}

std::string FormatNumber(double number) {
  std::string text = std::to_string(number);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) {
    text.pop_back();
  }
  return text;
}

ApiStatus ValidateField(const Json& body, const FieldSpec& field) {
  const Json* value = FindField(body, field.name);
  const std::string name(field.name);
  if (value == nullptr) {
    return {};
  }
  if (!HasType(*value, field.types)) {
    return InvalidRequest(name,
                          "'" + name + "' must be " + DescribeTypes(field.types) + ", not " +
                              (value->is_number() ? DumpJson(*value) : value->type_name()),
                          "invalid_type");
  }
  if (value->is_number()) {
    const auto number = value->get<double>();
    if (number < field.min || number > field.max) {
      return InvalidRequest(name, "'" + name + "' must be between " + FormatNumber(field.min) +
                                      " and " + FormatNumber(field.max) + ", not " +
                                      DumpJson(*value));
    }
  }
  if (field.use == FieldUse::kRefused && !AsksForNothing(body, field, *value)) {
    return InvalidRequest(name, "'" + name + "' is not supported: " + std::string(field.note),
                          "unsupported_parameter");
  }
  return {};
}

}  // namespace

ApiStatus ValidateFields(const Json& body, Endpoint endpoint) {
  for (const FieldSpec& field : FieldTable()) {
    if ((field.endpoints & static_cast<unsigned>(endpoint)) != 0) {
      if (ApiStatus valid = ValidateField(body, field); !valid) {
        return valid;
      }
    }
  }
  return {};
}

std::optional<bool> GetBool(const Json& body, std::string_view name) {
  const Json* value = FindField(body, name);
  return value == nullptr ? std::nullopt : std::optional(value->get<bool>());
}

std::optional<double> GetNumber(const Json& body, std::string_view name) {
  const Json* value = FindField(body, name);
  return value == nullptr ? std::nullopt : std::optional(value->get<double>());
}

std::optional<std::int64_t> GetInteger(const Json& body, std::string_view name) {
  const Json* value = FindField(body, name);
  return value == nullptr ? std::nullopt : std::optional(value->get<std::int64_t>());
}

std::optional<std::string> GetString(const Json& body, std::string_view name) {
  const Json* value = FindField(body, name);
  return value == nullptr ? std::nullopt : std::optional(value->get<std::string>());
}

}  // namespace skippy
