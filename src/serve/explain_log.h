// Remembers why the last requests were served from the cache as far as they were. In memory only,
// bounded, gone with the process.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "engine/engine.h"
#include "serve/json.h"

namespace skippy {

// A prompt as it was asked.
struct SeenPrompt {
  std::string request_id;
  std::string name_space;
  std::vector<Token> tokens;
};

// How far a prompt is that of an earlier request.
struct PromptComparison {
  std::shared_ptr<const SeenPrompt> prompt;
  std::shared_ptr<const SeenPrompt> nearest;  // null: nothing begins like it
  TokenCount common_tokens = 0;
};

struct FinishedRequest {
  PromptComparison comparison;
  RequestTimings timings;  // of all prompts of the request
  std::size_t prompt_count = 1;
  bool cache_read = true;
};

// What is said about a finished request.
struct Explanation {
  Json body;
  std::weak_ptr<const SeenPrompt> prompt;  // while it is among the last prompts
  TokenCount cached_tokens = 0;
  std::chrono::nanoseconds finished_at{0};  // since the epoch
  bool may_be_lost = false;  // part of the prefix was not found, and that is not yet explained
};

// The same once it is known what became of the prefix: evicted, or kept under another identity.
Json WithHistory(const Explanation& explanation, const PrefixHistory& history);

// Thread-safe.
class ExplainLog {
 public:
  static constexpr std::size_t kRequestsMax = 256;
  static constexpr std::size_t kPromptsMax = 64;
  static constexpr std::size_t kPromptTokensMax = 4U << 20;

  // Without `keep_text` explanations have no text of prompts.
  explicit ExplainLog(bool keep_text) : keep_text_(keep_text) {}

  // Compares with the prompts before it in the same namespace, then remembers it.
  PromptComparison Compare(SeenPrompt prompt) EXCLUDES(mu_);
  void Remember(const FinishedRequest& request, const ChatFormat& chat) EXCLUDES(mu_);

  // nullopt: not one of the last requests.
  std::optional<Explanation> Find(const std::string& request_id) const EXCLUDES(mu_);

 private:
  // Milliseconds that computing one prompt token takes, 0 while unknown.
  double LearnCost(const RequestTimings& timings) REQUIRES(mu_);

  const bool keep_text_;
  mutable Mutex mu_;
  std::deque<std::shared_ptr<const SeenPrompt>> prompts_ GUARDED_BY(mu_);  // the oldest first
  std::size_t prompt_tokens_ GUARDED_BY(mu_) = 0;
  std::deque<std::pair<std::string, Explanation>> explanations_ GUARDED_BY(mu_);  // by request
  double ms_per_token_ GUARDED_BY(mu_) = 0;
};

}  // namespace skippy
