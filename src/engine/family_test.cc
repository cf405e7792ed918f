// Goal: every architecture that the library can run is in the table, with the kind of state that
// the library builds for it. Method: facts as a loaded model gives them, one by one.
#include "engine/family.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "engine/test_model.h"

namespace skippy {
namespace {

FamilyFacts Facts(const std::string& architecture) {
  FamilyFacts facts;
  facts.architecture = architecture;
  return facts;
}

TEST(FamilyTest, NamesAreDistinct) {
  const auto names = KnownArchitectures();
  EXPECT_EQ(std::set<std::string_view>(names.begin(), names.end()).size(), names.size());
  EXPECT_EQ(names.size(), 148U);
}

TEST(FamilyTest, EveryArchitectureIsCachedOrSaysWhyNot) {
  for (const std::string_view name : KnownArchitectures()) {
    for (const bool recurrent : {false, true}) {
      for (const bool hybrid : {false, true}) {
        FamilyFacts facts = Facts(std::string(name));
        facts.is_recurrent = recurrent;
        facts.is_hybrid = hybrid;
        const FamilyInfo info = ClassifyFamily(facts);
        EXPECT_EQ(info.cacheable_now, info.reason.empty()) << name;
        EXPECT_EQ(info.cacheable_now, info.family != Family::kNone) << name;
        EXPECT_EQ(AccessOf(info) == RowAccess::kAppendOnly, !info.cacheable_now) << name;
      }
    }
  }
}

TEST(FamilyTest, DenseAndMixtureModelsResumeAnywhere) {
  for (const char* name : {"llama", "qwen3moe", "deepseek2", "glm-dsa", "minimax-m3"}) {
    const FamilyInfo info = ClassifyFamily(Facts(name));
    EXPECT_EQ(info.family, Family::kFullAttention) << name;
    EXPECT_EQ(info.resume_rule, ResumeRule::kAnyToken) << name;
    EXPECT_TRUE(info.cacheable_now) << name;
  }
}

TEST(FamilyTest, AWindowMakesTheDifference) {
  FamilyFacts facts = Facts("gemma3");
  EXPECT_EQ(ClassifyFamily(facts).family, Family::kFullAttention);
  facts.window_tokens = 1024;
  EXPECT_EQ(ClassifyFamily(facts).family, Family::kSlidingWindow);
  EXPECT_EQ(ClassifyFamily(facts).resume_rule, ResumeRule::kCheckpoint);
}

TEST(FamilyTest, CompressedStateIsTakenAsAWhole) {
  FamilyFacts facts = Facts("deepseek4");
  facts.is_hybrid = true;
  facts.window_tokens = 128;
  EXPECT_EQ(ClassifyFamily(facts).family, Family::kWholeState);
  EXPECT_EQ(ClassifyFamily(facts).resume_rule, ResumeRule::kCheckpoint);
}

TEST(FamilyTest, WindowBesideAnIndexerSaysWhyItIsNotCached) {
  FamilyFacts facts = Facts("dots3note");
  facts.window_tokens = 512;
  EXPECT_EQ(ClassifyFamily(facts).reason,
            "architecture dots3note is a sliding-window model: caching of its state is not enabled "
            "in this version");
}

TEST(FamilyTest, RecurrentStateDecidesWhatARowIs) {
  FamilyFacts facts = Facts("granitehybrid");
  facts.is_hybrid = true;
  EXPECT_EQ(AccessOf(ClassifyFamily(facts)), RowAccess::kCheckpoints);
  facts = Facts("mamba2");
  facts.is_recurrent = true;
  EXPECT_EQ(AccessOf(ClassifyFamily(facts)), RowAccess::kStateOnly);
}

TEST(FamilyTest, UnknownOrContradictedIsNotCached) {
  EXPECT_EQ(ClassifyFamily(Facts("llama9000")).family, Family::kNone);
  EXPECT_EQ(ClassifyFamily(Facts("(unknown)")).family, Family::kNone);
  FamilyFacts facts = Facts("llama");
  facts.is_hybrid = true;
  EXPECT_EQ(ClassifyFamily(facts).family, Family::kNone);
  EXPECT_EQ(ClassifyFamily(Facts("mamba")).family, Family::kNone);
  facts = Facts("llama");
  facts.causal = false;
  EXPECT_EQ(ClassifyFamily(facts).family, Family::kNone);
}

TEST(FamilyTest, ReadsTheFactsOfAModel) {
  const ModelPtr model = LoadTestModel(DemoModelPath());
  ASSERT_NE(model, nullptr);
  const FamilyFacts facts = ReadFamilyFacts(model.get());
  EXPECT_EQ(facts.architecture, "llama");
  EXPECT_EQ(ClassifyFamily(facts).family, Family::kFullAttention);
}

}  // namespace
}  // namespace skippy
