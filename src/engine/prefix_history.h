// Why a prompt's prefix was not found: what the cache removed, and what it keeps under another
// identity. For explanations.
#pragma once

#include <span>
#include <string>

#include "engine/engine.h"
#include "index/identity.h"
#include "skippy/cache.h"
#include "skippy/env.h"

namespace skippy {

// Writes the fields behind `state` into a file of `directory`, so that later runs can say what
// changed. Empty: nowhere. A failure costs later explanations only and is logged.
void RememberStateFields(Env* env, const std::string& directory, const StateIdentity& state,
                         const StateFields& fields);

// What differs between the fields remembered for `before` and `now`. Where these say nothing, one
// field that names the identities.
std::vector<ChangedField> ChangedStateFields(Env* env, const std::string& directory,
                                             const StateIdentity& before,
                                             const StateIdentity& after, const StateFields& now);

struct PrefixHistoryInput {
  Cache* cache = nullptr;
  Env* env = nullptr;
  std::string directory;  // of RememberStateFields
  DomainSpec own;         // what the prompt was looked up in
  ResumeRule rule = ResumeRule::kAnyToken;
  const StateFields& fields;
};

// Looks without marking anything as used. Any thread but the engine's.
PrefixHistory FindPrefixHistory(const PrefixHistoryInput& input, std::span<const Token> prompt);

}  // namespace skippy
