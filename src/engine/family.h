// What kind of state a model keeps, and so how a prefix of it may be stored and resumed. Decided
// from a table, never by trying: some memory types end the process when asked for what they lack.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/lanes.h"
#include "skippy/cache.h"

struct llama_model;

namespace skippy {

enum class Family {
  kFullAttention,  // every row of every token stays: dense, MoE, MLA
  kSlidingWindow,  // some layers keep a window only: its rows are the state beside the others
  kHybrid,         // attention rows and a recurrent state
  kRecurrent,      // a recurrent state only
  kWholeState,     // state that can only be taken as a whole
  kNone,           // no state between calls, or an architecture that is not known
};

// "full-attention", "sliding-window", ...
std::string_view ToString(Family family);

struct FamilyInfo {
  Family family = Family::kNone;
  ResumeRule resume_rule = ResumeRule::kCheckpoint;
  bool cacheable_now = false;  // this version stores and restores it
  std::string reason;          // for people, why not; empty when cacheable_now
};

// The few facts of a loaded model that decide; filled by ReadFamilyFacts.
struct FamilyFacts {
  std::string architecture;   // general.architecture
  int window_tokens = 0;      // > 0: attention windows or chunks are in use
  bool is_recurrent = false;  // as the library says; must agree with the table
  bool is_hybrid = false;
  bool has_encoder = false;
  bool causal = true;
};

FamilyFacts ReadFamilyFacts(const llama_model* model);

// Never fails: what is not known is kNone with a reason.
FamilyInfo ClassifyFamily(const FamilyFacts& facts);

// What may be done with the rows of such a model; nothing where it is not cached.
RowAccess AccessOf(const FamilyInfo& info);

// Every architecture of the table, in the order of the library's list.
std::span<const std::string_view> KnownArchitectures();

}  // namespace skippy
