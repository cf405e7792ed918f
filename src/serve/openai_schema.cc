#include "serve/openai_schema.h"

#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace skippy {
namespace {

constexpr unsigned kChatOnly = static_cast<unsigned>(Endpoint::kChat);
constexpr unsigned kCompletionsOnly = static_cast<unsigned>(Endpoint::kCompletions);
constexpr auto kHonoured = FieldUse::kHonoured;
constexpr auto kNoEffect = FieldUse::kNoEffect;
constexpr auto kRefused = FieldUse::kRefused;
constexpr double kInt32Max = 2147483647.0;

constexpr FieldSpec kFields[] = {
    {"model", kString, kBothEndpoints, kHonoured, "echoed; the loaded model answers"},
    {"messages", kArray, kChatOnly, kHonoured, "text only"},
    {"prompt", kString | kArray, kCompletionsOnly, kHonoured,
     "a string, token ids, or an array of either"},
    {"stream", kBoolean, kBothEndpoints, kHonoured, "server-sent events"},
    {"stream_options", kObject, kBothEndpoints, kHonoured, ""},
    {"stream_options.include_usage", kBoolean, kBothEndpoints, kHonoured,
     "one last chunk with usage and no choices"},
    {"max_tokens", kInteger, kBothEndpoints, kHonoured,
     "-1: until the context is full; 0: compute and record the prompt only", -1, kInt32Max},
    {"max_completion_tokens", kInteger, kBothEndpoints, kHonoured, "wins over max_tokens", -1,
     kInt32Max},
    {"n_predict", kInteger, kBothEndpoints, kHonoured, "max_tokens by its llama-server name", -1,
     kInt32Max},
    {"n", kInteger, kBothEndpoints, kHonoured, "choices per prompt", 1, 64},
    {"best_of", kInteger, kCompletionsOnly, kRefused, "only best_of = n can be answered", 1, 64},
    {"stop", kString | kArray, kBothEndpoints, kHonoured, "at most 32 strings"},
    {"seed", kInteger, kBothEndpoints, kHonoured, "choice i uses seed + i; negative: random"},
    {"temperature", kNumber, kBothEndpoints, kHonoured, "0: greedy", 0, 100},
    {"top_p", kNumber, kBothEndpoints, kHonoured, "", 0, 1},
    {"top_k", kInteger, kBothEndpoints, kHonoured, "0 or less: off", -1, kInt32Max},
    {"min_p", kNumber, kBothEndpoints, kHonoured, "", 0, 1},
    {"typical_p", kNumber, kBothEndpoints, kHonoured, "", 0, 1},
    {"frequency_penalty", kNumber, kBothEndpoints, kHonoured, "", -2, 2},
    {"presence_penalty", kNumber, kBothEndpoints, kHonoured, "", -2, 2},
    {"repeat_penalty", kNumber, kBothEndpoints, kHonoured, "1: off", 0, 10},
    {"repeat_last_n", kInteger, kBothEndpoints, kHonoured, "-1: the whole context", -1, kInt32Max},
    {"logit_bias", kObject | kArray, kBothEndpoints, kHonoured,
     "{\"id\": bias} or [[id, bias]]; -100 forbids the token"},
    {"ignore_eos", kBoolean, kBothEndpoints, kHonoured, ""},
    {"logprobs", kBoolean, kChatOnly, kHonoured, ""},
    {"top_logprobs", kInteger, kChatOnly, kHonoured, "needs logprobs", 0, 20},
    {"logprobs", kInteger, kCompletionsOnly, kHonoured, "", 0, 20},
    {"echo", kBoolean, kCompletionsOnly, kHonoured, "not together with logprobs"},
    {"suffix", kString, kCompletionsOnly, kRefused, "fill-in-the-middle is not offered"},
    {"grammar", kString, kBothEndpoints, kHonoured, "GBNF"},
    {"response_format", kObject, kChatOnly, kHonoured, "text, json_object, json_schema"},
    {"json_schema", kObject, kChatOnly, kHonoured, "as response_format, by llama-server's name"},
    {"response_format", kObject, kCompletionsOnly, kRefused, "use chat completions or grammar"},
    {"json_schema", kObject, kCompletionsOnly, kRefused, "use chat completions or grammar"},
    {"tools", kArray, kChatOnly, kHonoured, "functions"},
    {"tool_choice", kString | kObject, kChatOnly, kHonoured,
     "a named function is offered alone and required"},
    {"parallel_tool_calls", kBoolean, kChatOnly, kHonoured, ""},
    {"functions", kArray, kChatOnly, kRefused, "use tools"},
    {"function_call", kString | kObject, kChatOnly, kRefused, "use tool_choice"},
    {"reasoning_effort", kString, kChatOnly, kHonoured,
     "none: no thinking; others reach the template"},
    {"chat_template_kwargs", kObject, kChatOnly, kHonoured, "reach the template"},
    {"add_generation_prompt", kBoolean, kChatOnly, kHonoured, ""},
    {"cache_prompt", kBoolean, kBothEndpoints, kHonoured, "false: compute the whole prompt"},
    {"cache_salt", kString, kBothEndpoints, kHonoured,
     "requests share cached state only with equal salts; at most 256 bytes"},
    {"prompt_cache_retention", kString, kBothEndpoints, kHonoured,
     "in_memory (or in-memory) keeps the prompt off the disk"},
    {"audio", kObject, kChatOnly, kRefused, "the server answers in text"},
    {"modalities", kArray, kChatOnly, kRefused, "the server answers in text"},
    {"prompt_cache_key", kString, kBothEndpoints, kNoEffect,
     "prefixes are shared whatever the key; cache_salt isolates"},
    {"user", kString, kBothEndpoints, kNoEffect, ""},
    {"safety_identifier", kString, kBothEndpoints, kNoEffect, ""},
    {"metadata", kObject, kBothEndpoints, kNoEffect, ""},
    {"store", kBoolean, kBothEndpoints, kNoEffect, ""},
    {"service_tier", kString, kBothEndpoints, kNoEffect, ""},
    {"verbosity", kString, kChatOnly, kNoEffect, ""},
    {"prediction", kObject, kChatOnly, kNoEffect, ""},
    {"stream_options.include_obfuscation", kBoolean, kBothEndpoints, kNoEffect, ""},
};

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
  if (field.name == "response_format") {
    const Json* type = FindMember(value, "type");
    return type != nullptr && *type == "text";
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

std::span<const FieldSpec> FieldTable() { return kFields; }

ApiStatus ValidateFields(const Json& body, Endpoint endpoint) {
  return ValidateFields(body, endpoint, kFields);
}

ApiStatus ValidateFields(const Json& body, Endpoint endpoint, std::span<const FieldSpec> table) {
  for (const FieldSpec& field : table) {
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
