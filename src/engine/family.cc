#include "engine/family.h"

#include <llama.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "base/check.h"

namespace skippy {
namespace {

// What memory llama.cpp v0.4.0 builds for an architecture in its main context (create_memory).
enum class Memory {
  kRows,       // rows of every token; of a window too when the metadata has one
  kHybrid,     // rows and a recurrent state
  kRecurrent,  // a recurrent state
  kWhole,      // compressed rows whose positions cannot be told apart from outside
  kNoMemory,   // none: every call sees the whole input
  kEncoder,    // rows that also depend on what an encoder read
  kDraftOnly,  // works only beside the context of another model
  kNoModel,    // a name that the library does not run
};

struct Architecture {
  std::string_view name;
  Memory memory;
};

// The library's own list, in its order.
constexpr Architecture kArchitectures[] = {
    {"clip", Memory::kNoModel},
    {"llama", Memory::kRows},
    {"llama4", Memory::kRows},
    {"deci", Memory::kRows},
    {"falcon", Memory::kRows},
    {"grok", Memory::kRows},
    {"gpt2", Memory::kRows},
    {"gptj", Memory::kNoModel},
    {"gptneox", Memory::kRows},
    {"mpt", Memory::kRows},
    {"baichuan", Memory::kRows},
    {"starcoder", Memory::kRows},
    {"refact", Memory::kRows},
    {"bert", Memory::kNoMemory},
    {"modern-bert", Memory::kNoMemory},
    {"nomic-bert", Memory::kNoMemory},
    {"nomic-bert-moe", Memory::kNoMemory},
    {"neo-bert", Memory::kNoMemory},
    {"jina-bert-v2", Memory::kNoMemory},
    {"jina-bert-v3", Memory::kNoMemory},
    {"eurobert", Memory::kNoMemory},
    {"bloom", Memory::kRows},
    {"stablelm", Memory::kRows},
    {"qwen", Memory::kRows},
    {"qwen2", Memory::kRows},
    {"qwen2moe", Memory::kRows},
    {"qwen2vl", Memory::kRows},
    {"qwen3", Memory::kRows},
    {"qwen3moe", Memory::kRows},
    {"qwen3next", Memory::kHybrid},
    {"qwen3vl", Memory::kRows},
    {"qwen3vlmoe", Memory::kRows},
    {"qwen35", Memory::kHybrid},
    {"qwen35moe", Memory::kHybrid},
    {"qwen4exp", Memory::kHybrid},
    {"phi2", Memory::kRows},
    {"phi3", Memory::kRows},
    {"phimoe", Memory::kRows},
    {"plamo", Memory::kRows},
    {"plamo2", Memory::kHybrid},
    {"plamo3", Memory::kRows},
    {"codeshell", Memory::kRows},
    {"orion", Memory::kRows},
    {"internlm2", Memory::kRows},
    {"minicpm", Memory::kRows},
    {"minicpm3", Memory::kRows},
    {"gemma", Memory::kRows},
    {"gemma2", Memory::kRows},
    {"gemma3", Memory::kRows},
    {"gemma3n", Memory::kRows},
    {"gemma4", Memory::kRows},
    {"gemma4-assistant", Memory::kDraftOnly},
    {"gemma-embedding", Memory::kNoMemory},
    {"starcoder2", Memory::kRows},
    {"mamba", Memory::kRecurrent},
    {"mamba2", Memory::kRecurrent},
    {"jamba", Memory::kHybrid},
    {"falcon-h1", Memory::kHybrid},
    {"xverse", Memory::kRows},
    {"command-r", Memory::kRows},
    {"cohere2", Memory::kRows},
    {"cohere2moe", Memory::kRows},
    {"dbrx", Memory::kRows},
    {"olmo", Memory::kRows},
    {"olmo2", Memory::kRows},
    {"olmoe", Memory::kRows},
    {"muse-glimmer", Memory::kRows},
    {"openelm", Memory::kRows},
    {"arctic", Memory::kRows},
    {"deepseek", Memory::kRows},
    {"deepseek2", Memory::kRows},
    {"deepseek2-ocr", Memory::kRows},
    {"deepseek32", Memory::kRows},
    {"deepseek4", Memory::kWhole},
    {"chatglm", Memory::kRows},
    {"glm4", Memory::kRows},
    {"glm4moe", Memory::kRows},
    {"glm-dsa", Memory::kRows},
    {"bitnet", Memory::kRows},
    {"t5", Memory::kEncoder},
    {"t5encoder", Memory::kEncoder},
    {"jais", Memory::kRows},
    {"jais2", Memory::kRows},
    {"nemotron", Memory::kRows},
    {"nemotron_h", Memory::kHybrid},
    {"nemotron_h_moe", Memory::kHybrid},
    {"exaone", Memory::kRows},
    {"exaone4", Memory::kRows},
    {"exaone-moe", Memory::kRows},
    {"rwkv6", Memory::kRecurrent},
    {"rwkv6qwen2", Memory::kRecurrent},
    {"rwkv7", Memory::kRecurrent},
    {"arwkv7", Memory::kRecurrent},
    {"granite", Memory::kRows},
    {"granitemoe", Memory::kRows},
    {"granitehybrid", Memory::kHybrid},
    {"graniteswitch", Memory::kRows},
    {"granite_swa", Memory::kRows},
    {"chameleon", Memory::kRows},
    {"wavtokenizer-dec", Memory::kNoMemory},
    {"plm", Memory::kRows},
    {"bailingmoe", Memory::kRows},
    {"bailingmoe2", Memory::kRows},
    {"bailingmoe3", Memory::kHybrid},
    {"dots1", Memory::kRows},
    {"dots3note", Memory::kRows},
    {"arcee", Memory::kRows},
    {"afmoe", Memory::kRows},
    {"laguna", Memory::kRows},
    {"ernie4_5", Memory::kRows},
    {"ernie4_5-moe", Memory::kRows},
    {"hunyuan-moe", Memory::kRows},
    {"hunyuan-dense", Memory::kRows},
    {"hunyuan_vl", Memory::kRows},
    {"hy_v3", Memory::kRows},
    {"smollm3", Memory::kRows},
    {"gpt-oss", Memory::kRows},
    {"lfm2", Memory::kHybrid},
    {"lfm2moe", Memory::kHybrid},
    {"dream", Memory::kNoMemory},
    {"smallthinker", Memory::kRows},
    {"llada", Memory::kNoMemory},
    {"llada-moe", Memory::kNoMemory},
    {"seed_oss", Memory::kRows},
    {"grovemoe", Memory::kRows},
    {"apertus", Memory::kRows},
    {"minimax-01", Memory::kHybrid},
    {"minimax-m2", Memory::kRows},
    {"minimax-m3", Memory::kRows},
    {"cogvlm", Memory::kRows},
    {"rnd1", Memory::kNoMemory},
    {"pangu-embedded", Memory::kRows},
    {"mistral3", Memory::kRows},
    {"eagle3", Memory::kDraftOnly},
    {"dflash", Memory::kDraftOnly},
    {"mistral4", Memory::kRows},
    {"paddleocr", Memory::kRows},
    {"mimo2", Memory::kRows},
    {"step35", Memory::kRows},
    {"llama-embed", Memory::kRows},
    {"maincoder", Memory::kRows},
    {"kimi-linear", Memory::kHybrid},
    {"kimi-k3", Memory::kHybrid},
    {"talkie", Memory::kRows},
    {"mellum", Memory::kRows},
    {"nanbeige", Memory::kRows},
    {"qwen3tts", Memory::kRows},
    {"pockettts", Memory::kRows},
};

constexpr auto kNames = [] {
  std::array<std::string_view, std::size(kArchitectures)> names{};
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kArchitectures[i].name;
  return names;
}();

const Architecture* Find(std::string_view name) {
  const auto* found = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                   [&](const Architecture& entry) { return entry.name == name; });
  return found == std::end(kArchitectures) ? nullptr : found;
}

FamilyInfo None(const std::string& why) {
  return {Family::kNone, ResumeRule::kCheckpoint, false, why};
}

// A family that is understood but not stored by this version.
FamilyInfo Later(Family family, ResumeRule rule, const FamilyFacts& facts) {
  return {family, rule, false,
          "architecture " + facts.architecture + " is a " + std::string(ToString(family)) +
              " model: caching of its state is not enabled in this version"};
}

FamilyInfo Cached(Family family, ResumeRule rule) { return {family, rule, true, ""}; }

FamilyInfo ClassifyRows(const FamilyFacts& facts) {
  // A window beside an indexer's rows: no generated model shows that it can be taken apart.
  const bool unproven = facts.architecture == "minimax-m3" || facts.architecture == "dots3note";
  if (facts.window_tokens > 0 && unproven) {
    return Later(Family::kSlidingWindow, ResumeRule::kCheckpoint, facts);
  }
  if (facts.window_tokens > 0) {
    return Cached(Family::kSlidingWindow, ResumeRule::kCheckpoint);
  }
  return Cached(Family::kFullAttention, ResumeRule::kAnyToken);
}

FamilyInfo ClassifyKnown(Memory memory, const FamilyFacts& facts) {
  const std::string subject = "architecture " + facts.architecture;
  switch (memory) {
    case Memory::kRows:
      return ClassifyRows(facts);
    case Memory::kHybrid:
      return Cached(Family::kHybrid, ResumeRule::kCheckpoint);
    case Memory::kRecurrent:
      return Cached(Family::kRecurrent, ResumeRule::kCheckpoint);
    case Memory::kWhole:
      return Cached(Family::kWholeState, ResumeRule::kCheckpoint);
    case Memory::kNoMemory:
      return None(subject + " keeps no state between calls");
    case Memory::kEncoder:
      return None(subject + " has an encoder: its state is not cached");
    case Memory::kDraftOnly:
      return None(subject + " is a draft model");
    case Memory::kNoModel:
      return None(subject + " is not a language model of this engine");
  }
  CheckFailed(__FILE__, __LINE__, "Memory", "not an enumerator");
}

// The table and the library must agree about recurrent state: a wrong guess decodes garbage.
bool AgreesWithLibrary(Memory memory, const FamilyFacts& facts) {
  const bool has_rows_and_state = memory == Memory::kHybrid || memory == Memory::kWhole;
  return facts.is_recurrent == (memory == Memory::kRecurrent) &&
         facts.is_hybrid == has_rows_and_state;
}

std::string Metadata(const llama_model* model, const std::string& key) {
  std::string value(256, '\0');
  const int length = llama_model_meta_val_str(model, key.c_str(), value.data(), value.size());
  value.resize(static_cast<std::size_t>(std::clamp(length, 0, 255)));
  return value;
}

}  // namespace

std::string_view ToString(Family family) {
  switch (family) {
    case Family::kFullAttention:
      return "full-attention";
    case Family::kSlidingWindow:
      return "sliding-window";
    case Family::kHybrid:
      return "hybrid";
    case Family::kRecurrent:
      return "recurrent";
    case Family::kWholeState:
      return "whole-state";
    case Family::kNone:
      return "none";
  }
  CheckFailed(__FILE__, __LINE__, "Family", "not an enumerator");
}

FamilyFacts ReadFamilyFacts(const llama_model* model) {
  FamilyFacts facts;
  facts.architecture = Metadata(model, "general.architecture");
  facts.window_tokens = llama_model_n_swa(model);
  facts.is_recurrent = llama_model_is_recurrent(model);
  facts.is_hybrid = llama_model_is_hybrid(model);
  facts.has_encoder = llama_model_has_encoder(model);
  facts.causal = Metadata(model, facts.architecture + ".attention.causal") != "false";
  return facts;
}

FamilyInfo ClassifyFamily(const FamilyFacts& facts) {
  const Architecture* entry = Find(facts.architecture);
  if (entry == nullptr) {
    return None("architecture '" + facts.architecture + "' is not known to this version");
  }
  if (!AgreesWithLibrary(entry->memory, facts)) {
    return None("architecture " + facts.architecture +
                " does not keep the kind of state that this version expects");
  }
  if (entry->memory == Memory::kRows && facts.has_encoder) {
    return ClassifyKnown(Memory::kEncoder, facts);
  }
  if (entry->memory != Memory::kNoMemory && !facts.causal) {
    return None("architecture " + facts.architecture + ": attention is not causal");
  }
  return ClassifyKnown(entry->memory, facts);
}

RowAccess AccessOf(const FamilyInfo& info) {
  if (!info.cacheable_now) {
    return RowAccess::kAppendOnly;
  }
  switch (info.family) {
    case Family::kFullAttention:
      return RowAccess::kAnyRange;
    case Family::kSlidingWindow:
    case Family::kHybrid:
      return RowAccess::kCheckpoints;
    case Family::kRecurrent:
      return RowAccess::kStateOnly;
    case Family::kWholeState:
      return RowAccess::kWholeState;
    case Family::kNone:
      return RowAccess::kAppendOnly;
  }
  CheckFailed(__FILE__, __LINE__, "Family", "not an enumerator");
}

std::span<const std::string_view> KnownArchitectures() { return kNames; }

}  // namespace skippy
