// Goal: K and V are kept in the types that the rules name, in the order of the rules. Method: a row
// of a table for each rule, with widths of heads as models have them.
#include "engine/kv_types.h"

#include <gtest/gtest.h>

#include "engine/state_fields.h"
#include "skippy/options.h"

namespace skippy {
namespace {

struct Rule {
  const char* name;
  KvTypeRequest request;
  KvTypeFacts facts;
  const char* k;  // "" both: refused, and `says` is in the text
  const char* v;
  const char* source;
  const char* says = "";
};

KvTypeFacts Facts(bool on_accelerator, std::uint64_t gibibytes, std::vector<int> key_widths = {128},
                  std::vector<int> value_widths = {128}) {
  KvTypeFacts facts;
  facts.on_accelerator = on_accelerator;
  facts.weight_bytes = gibibytes * kGiB;
  facts.key_widths = std::move(key_widths);
  facts.value_widths = std::move(value_widths);
  return facts;
}

KvTypeFacts WithoutFlash(KvTypeFacts facts) {
  facts.can_use_flash = false;
  return facts;
}

KvTypeFacts WithDefault(KvTypeFacts facts, KvType type) {
  facts.family_default = type;
  return facts;
}

KvTypeRequest Named(const char* k, const char* v, const char* flash = "auto") {
  return {k, v, flash, "cli"};
}

// Proves J20, O4, O5.
TEST(KvTypesTest, FollowTheRules) {
  const std::vector<Rule> rules = {
      {"small weights on a device", {}, Facts(true, 4), "q8_0", "q8_0", "default"},
      {"just below the limit", {}, Facts(true, 49), "q8_0", "q8_0", "default"},
      {"at the limit", {}, Facts(true, 50), "q4_0", "q4_0", "default"},
      {"on the CPU", {}, Facts(false, 4), "f16", "f16", "backend"},
      {"large, on the CPU", {}, Facts(false, 60), "f16", "f16", "backend"},
      {"a family's default", {}, WithDefault(Facts(true, 4), KvType::kF16), "f16", "f16", "family"},
      {"a named type beats the family's", Named("q8_0", "q8_0"),
       WithDefault(Facts(true, 4), KvType::kF16), "q8_0", "q8_0", "cli"},
      {"named on the CPU", Named("q8_0", "q8_0"), Facts(false, 4), "q8_0", "q8_0", "cli"},
      {"K and V may differ", Named("q8_0", "f16"), Facts(false, 4), "q8_0", "f16", "cli"},
      {"one named, one by rule", Named("f16", "auto"), Facts(true, 4), "f16", "q8_0", "cli"},
      {"heads of 80", {}, Facts(true, 4, {80}, {80}), "f16", "f16", "metadata", "K heads"},
      {"latent heads of 576 and 512", {}, Facts(true, 4, {576}, {512}), "q8_0", "q8_0", "default"},
      {"only V is odd", {}, Facts(true, 4, {192}, {72}), "f16", "f16", "metadata", "V heads"},
      {"only the windows are odd", {}, Facts(true, 4, {256, 100}), "f16", "f16", "metadata"},
      {"flash attention off",
       {"auto", "auto", "off", "default"},
       Facts(true, 4),
       "f16",
       "f16",
       "metadata",
       "flash attention"},
      {"no flash attention", {}, WithoutFlash(Facts(true, 4)), "f16", "f16", "metadata"},
      {"a quantised K alone needs no flash attention", Named("q8_0", "f16", "off"), Facts(true, 4),
       "q8_0", "f16", "cli"},
      {"a named V without flash attention", Named("f16", "q8_0", "off"), Facts(true, 4), "", "", "",
       "--cache-type-v q8_0 is not possible: a quantised V needs flash attention"},
      {"a named V of an architecture without it", Named("f16", "q4_0"),
       WithoutFlash(Facts(true, 4)), "", "", "", "this architecture cannot use"},
      {"a named K of odd heads", Named("q4_0", "f16"), Facts(false, 4, {80}, {80}), "", "", "",
       "--cache-type-k q4_0 is not possible: K heads of this model are 80 wide"},
      {"a type that is none", Named("q9", "f16"), Facts(false, 4), "", "", "", "\"q9\""},
      {"widths that nobody knows", {}, Facts(true, 4, {}, {}), "q8_0", "q8_0", "default"},
  };
  for (const Rule& rule : rules) {
    const Result<KvTypeChoice> choice = ResolveKvTypes(rule.request, rule.facts);
    if (rule.k[0] == '\0') {
      ASSERT_FALSE(choice) << rule.name;
      EXPECT_EQ(choice.error().code, ErrorCode::kInvalidArgument) << rule.name;
      EXPECT_NE(choice.error().text.find(rule.says), std::string::npos) << choice.error().text;
      continue;
    }
    ASSERT_TRUE(choice) << rule.name << ": " << choice.error().text;
    EXPECT_EQ(ToString(choice->k), rule.k) << rule.name;
    EXPECT_EQ(ToString(choice->v), rule.v) << rule.name;
    EXPECT_EQ(choice->source, rule.source) << rule.name;
    EXPECT_NE(choice->reason.find(rule.says), std::string::npos) << rule.name;
    EXPECT_EQ(choice->flash, choice->v == KvType::kQ8_0 || choice->v == KvType::kQ4_0) << rule.name;
  }
}

}  // namespace
}  // namespace skippy
