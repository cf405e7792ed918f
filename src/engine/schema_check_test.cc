// Goal: a JSON schema is either enforced in full or refused by name (public case L6). Method: one
// small schema for each keyword.
#include "engine/schema_check.h"

#include <gtest/gtest.h>

namespace skippy {
namespace {

std::string Refusal(const std::string& schema) {
  const auto grammar = GrammarFromSchema(schema);
  if (grammar) return "";
  EXPECT_EQ(grammar.error().code, ErrorCode::kInvalidArgument);
  return grammar.error().text;
}

// Proves case L6.
TEST(SchemaCheckTest, AcceptsWhatTheGrammarEnforces) {
  for (const char* schema : {
           R"({})",
           R"({"type": "object"})",
           R"({"type": "string", "enum": ["red", "green"], "description": "a colour"})",
           R"({"type": "object", "properties": {"a": {"type": "integer", "minimum": 0}},
               "required": ["a"], "additionalProperties": false, "title": "T"})",
           R"({"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 3})",
           R"({"type": "string", "pattern": "^[a-z]{2,4}$"})",
           R"({"type": ["string", "null"], "maxLength": 5})",
           R"({"anyOf": [{"type": "string"}, {"type": "null"}]})",
           R"({"$ref": "#/$defs/x", "$defs": {"x": {"const": 1}}})",
           R"({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]})",
           R"({"type": "array", "items": {"type": "string"}, "uniqueItems": false})",
       }) {
    EXPECT_EQ(Refusal(schema), "") << schema;
  }
}

// Proves case L6.
TEST(SchemaCheckTest, RefusesWhatTheGrammarWouldLeaveOut) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type": "foo"})", "foo"},
      {R"({"type": "string", "pattern": "^(?=a).*$"})", "pattern"},
      {R"({"type": "string", "pattern": "a+"})", "pattern"},
      {R"({"type": "string", "pattern": "^(a$"})", "pattern"},
      {R"({"type": "number", "minimum": 0})", "minimum"},
      {R"({"type": "integer", "multipleOf": 3})", "multipleOf"},
      {R"({"type": "integer", "minimum": 0.5})", "minimum"},
      {R"({"minLength": 3})", "minLength"},
      {R"({"type": "array", "maxItems": 3})", "maxItems"},
      {R"({"type": "array", "items": {}, "uniqueItems": true})", "uniqueItems"},
      {R"({"type": "object", "required": ["a"]})", "required"},
      {R"({"type": "object", "properties": {"a": {"not": {"type": "string"}}}})", "#/a: not"},
      {R"({"anyOf": [{"type": "string"}], "enum": ["a"]})", "anyOf together with enum"},
      {R"({"$ref": "https://example.com/schema.json"})", "$ref"},
      {R"({"$ref": "#/$defs/missing"})", "missing"},
      {R"([])", "object"},
      {R"({"type": )", "json_schema"},
      {R"(true)", "object"},
  };
  for (const auto& [schema, names] : cases) {
    EXPECT_NE(Refusal(schema).find(names), std::string::npos) << schema << ": " << Refusal(schema);
  }
}

TEST(SchemaCheckTest, RefusesBottomlessNesting) {
  std::string schema = R"({"type": "string"})";
  for (int i = 0; i < 200; ++i) schema = R"({"type": "array", "items": )" + schema + "}";
  EXPECT_NE(Refusal(schema).find("nesting"), std::string::npos);
}

}  // namespace
}  // namespace skippy
