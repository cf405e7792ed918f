#include "engine/schema_check.h"

#include <json-schema-to-grammar.h>

#include <algorithm>
#include <exception>
#include <initializer_list>
#include <string_view>

namespace skippy {
namespace {

using Json = common_json;

constexpr int kNestingMax = 64;

// Keywords that restrict values and that no grammar is made from.
constexpr std::string_view kNeverEnforced[] = {
    "not",           "if",
    "then",          "else",
    "dependencies",  "dependentRequired",
    "contains",      "dependentSchemas",
    "minContains",   "maxContains",
    "minProperties", "maxProperties",
    "multipleOf",    "patternProperties",
    "propertyNames", "unevaluatedProperties",
    "uniqueItems",   "unevaluatedItems",
    "$dynamicRef",   "$recursiveRef",
};

// Keywords of which the library heeds only one group at a time.
constexpr std::string_view kStructural[] = {"$ref",     "anyOf",      "oneOf",  "allOf",
                                            "const",    "enum",       "items",  "prefixItems",
                                            "required", "properties", "pattern"};

bool IsIn(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Checks one schema object and those inside it. `place_` names where it stands.
class Checker {
 public:
  Status Check(const Json& schema, const std::string& place, int depth) {
    if (depth > kNestingMax) return Refuse(place, "nesting is too deep");
    if (schema.is_boolean()) return {};
    if (!schema.is_object()) return Refuse(place, "a schema must be an object");
    for (const std::string_view keyword : kNeverEnforced) {
      if (schema.contains(std::string(keyword)) && !IsFalse(schema, keyword)) {
        return Refuse(place, keyword);
      }
    }
    SKIPPY_RETURN_IF_ERROR(CheckCombination(schema, place));
    SKIPPY_RETURN_IF_ERROR(CheckStrings(schema, place));
    SKIPPY_RETURN_IF_ERROR(CheckNumbers(schema, place));
    SKIPPY_RETURN_IF_ERROR(CheckObject(schema, place));
    SKIPPY_RETURN_IF_ERROR(CheckArray(schema, place));
    return CheckInside(schema, place, depth);
  }

 private:
  static Status Refuse(const std::string& place, std::string_view what) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "json_schema: cannot enforce " + place + ": " + std::string(what));
  }

  static bool IsFalse(const Json& schema, std::string_view keyword) {
    const Json& value = schema.at(std::string(keyword));
    return value.is_boolean() && !value.get<bool>();
  }

  // True when `schema` allows values of `type` only through a "type" that names it.
  static bool HasType(const Json& schema, const std::string& type) {
    if (!schema.contains("type")) return false;
    const Json& types = schema.at("type");
    if (!types.is_array()) return types == type;
    for (const Json& one : types) {
      if (one == type) return true;
    }
    return false;
  }

  static Status CheckOnly(const Json& schema, const std::string& place,
                          std::initializer_list<std::string_view> allowed) {
    for (const std::string_view keyword : kStructural) {
      if (schema.contains(std::string(keyword)) && !IsIn(keyword, allowed)) {
        return Refuse(place,
                      std::string(*allowed.begin()) + " together with " + std::string(keyword));
      }
    }
    return {};
  }

  static Status CheckCombination(const Json& schema, const std::string& place) {
    if (schema.contains("$ref")) {
      const Json& ref = schema.at("$ref");
      if (!ref.is_string() || !ref.get<std::string>().starts_with('#')) {
        return Refuse(place, "a $ref to elsewhere");
      }
      return CheckOnly(schema, place, {"$ref"});
    }
    if (schema.contains("anyOf")) return CheckOnly(schema, place, {"anyOf"});
    if (schema.contains("oneOf")) return CheckOnly(schema, place, {"oneOf"});
    if (schema.contains("allOf")) return CheckAllOf(schema, place);
    if (schema.contains("const")) return CheckOnly(schema, place, {"const"});
    if (schema.contains("enum")) {
      if (!schema.at("enum").is_array()) return Refuse(place, "enum must be an array");
      return CheckOnly(schema, place, {"enum"});
    }
    return {};
  }

  static Status CheckAllOf(const Json& schema, const std::string& place) {
    SKIPPY_RETURN_IF_ERROR(CheckOnly(schema, place, {"allOf"}));
    if (!schema.at("allOf").is_array()) return Refuse(place, "allOf must be an array");
    for (const Json& part : schema.at("allOf")) {
      const bool used = part.is_object() && (part.contains("$ref") || part.contains("properties") ||
                                             part.contains("enum") || part.contains("anyOf"));
      if (!used) return Refuse(place, "allOf with a part that has no properties");
    }
    return {};
  }

  static Status CheckStrings(const Json& schema, const std::string& place) {
    const bool typed = HasType(schema, "string");
    if (schema.contains("pattern")) {
      if (schema.contains("type") && !typed) return Refuse(place, "pattern of what is no string");
      SKIPPY_RETURN_IF_ERROR(CheckPattern(schema.at("pattern"), place));
    }
    for (const char* keyword : {"minLength", "maxLength"}) {
      if (!schema.contains(keyword)) continue;
      if (!typed) return Refuse(place, std::string(keyword) + " without type string");
      if (schema.contains("pattern") || schema.contains("format")) {
        return Refuse(place, std::string(keyword) + " together with pattern or format");
      }
    }
    return {};
  }

  // The library takes any string for a pattern that it does not understand; its grammar tells.
  static Status CheckPattern(const Json& pattern, const std::string& place) {
    if (!pattern.is_string()) return Refuse(place, "pattern must be a string");
    const Json alone = Json::object({{"type", "string"}, {"pattern", pattern}});
    const std::string grammar = json_schema_to_grammar(alone) + "\n";
    if (grammar.find("root ::= string\n") != std::string::npos) {
      return Refuse(place, "pattern " + pattern.get<std::string>());
    }
    return {};
  }

  static Status CheckNumbers(const Json& schema, const std::string& place) {
    for (const char* keyword : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
      if (!schema.contains(keyword)) continue;
      if (!HasType(schema, "integer") || HasType(schema, "number")) {
        return Refuse(place, std::string(keyword) + " of what is no integer");
      }
      if (!schema.at(keyword).is_number_integer()) {
        return Refuse(place, std::string(keyword) + " that is no integer");
      }
    }
    if ((schema.contains("minimum") && schema.contains("exclusiveMinimum")) ||
        (schema.contains("maximum") && schema.contains("exclusiveMaximum"))) {
      return Refuse(place, "two bounds on one side");
    }
    return {};
  }

  static Status CheckObject(const Json& schema, const std::string& place) {
    if (!schema.contains("required")) return {};
    if (!schema.at("required").is_array()) return Refuse(place, "required must be an array");
    for (const Json& name : schema.at("required")) {
      const bool known = name.is_string() && schema.contains("properties") &&
                         schema.at("properties").contains(name.get<std::string>());
      if (!known) return Refuse(place, "required of what is not in properties: " + name.dump());
    }
    return {};
  }

  static Status CheckArray(const Json& schema, const std::string& place) {
    const bool one_schema = schema.contains("items") && !schema.at("items").is_array();
    for (const char* keyword : {"minItems", "maxItems"}) {
      if (schema.contains(keyword) && !one_schema) {
        return Refuse(place, std::string(keyword) + " without items");
      }
    }
    if (one_schema && schema.contains("prefixItems")) {
      return Refuse(place, "items together with prefixItems");
    }
    return {};
  }

  Status CheckInside(const Json& schema, const std::string& place, int depth) {
    for (const char* keyword : {"properties", "$defs", "definitions"}) {
      if (!schema.contains(keyword)) continue;
      const Json& schemas = schema.at(keyword);
      if (!schemas.is_object()) return Refuse(place, std::string(keyword) + " must be an object");
      for (const auto& [name, inner] : schemas.items()) {
        SKIPPY_RETURN_IF_ERROR(Check(inner, place + "/" + name, depth + 1));
      }
    }
    for (const char* keyword :
         {"items", "prefixItems", "additionalProperties", "anyOf", "oneOf", "allOf"}) {
      if (!schema.contains(keyword)) continue;
      const Json& inner = schema.at(keyword);
      if (!inner.is_array()) {
        SKIPPY_RETURN_IF_ERROR(Check(inner, place + "/" + keyword, depth + 1));
        continue;
      }
      for (const Json& one : inner) {
        SKIPPY_RETURN_IF_ERROR(Check(one, place + "/" + keyword, depth + 1));
      }
    }
    return {};
  }
};

}  // namespace

Result<std::string> GrammarFromSchema(const std::string& schema) {
  try {
    const Json parsed = Json::parse(schema);
    if (!parsed.is_object()) {
      return MakeError(ErrorCode::kInvalidArgument, "json_schema: must be an object");
    }
    SKIPPY_RETURN_IF_ERROR(Checker().Check(parsed, "#", 0));
    return json_schema_to_grammar(parsed);
  } catch (const std::exception& e) {
    return MakeError(ErrorCode::kInvalidArgument, std::string("json_schema: ") + e.what());
  }
}

}  // namespace skippy
