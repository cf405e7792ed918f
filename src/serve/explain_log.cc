#include "serve/explain_log.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <string_view>

#include "serve/json.h"
#include "serve/openai_response.h"
#include "serve/volatile_word.h"

namespace skippy {
namespace {

constexpr std::size_t kExcerptTokens = 24;  // on each side of a divergence
constexpr TokenCount kCostTokensMin = 32;   // fewer computed tokens say little about the cost
constexpr double kCostWeight = 0.25;        // of a new measurement
constexpr TokenCount kSegmentTokens = 256;  // the cache keeps whole runs of these
constexpr TokenCount kUsedFromTokens = 32;  // a segment is not used for less

std::string Text(const ChatFormat& chat, const std::vector<Token>& tokens, std::size_t begin,
                 std::size_t end) {
  begin = std::min(begin, tokens.size());
  end = std::min(end, tokens.size());
  return chat.Detokenize(std::span(tokens).subspan(begin, end - begin));
}

// Where two prompts part, in words.
struct Divergence {
  std::string before;   // what both have
  std::string earlier;  // what the earlier one had next
  std::string now;
};

Divergence Excerpt(const PromptComparison& comparison, const ChatFormat& chat) {
  const auto at = static_cast<std::size_t>(comparison.common_tokens);
  const std::vector<Token>& tokens = comparison.prompt->tokens;
  const std::size_t begin = at - std::min(at, kExcerptTokens);
  return {Text(chat, tokens, begin, at),
          Text(chat, comparison.nearest->tokens, at, at + kExcerptTokens),
          Text(chat, tokens, at, at + kExcerptTokens)};
}

// What in the line where the prompts part is of the kind that changes each time; empty: nothing.
std::string VolatileHint(const Divergence& text) {
  const std::string now = text.before + text.now;
  const std::string earlier = text.before + text.earlier;
  const std::size_t at = text.before.size();
  const std::string_view kind = VolatileKind(WordAt(now, at));
  if (kind.empty() || VolatileKind(WordAt(earlier, at)) != kind) {
    return "";
  }
  return "a " + std::string(kind) +
         " differs from request to request; moved to the end of the prompt, or into the last "
         "message, it would leave what follows it cacheable";
}

std::string_view Reason(const FinishedRequest& request) {
  const PromptComparison& comparison = request.comparison;
  const TokenCount cached = request.timings.cached_tokens();
  const auto prompt = static_cast<TokenCount>(comparison.prompt->tokens.size());
  if (!request.cache_read) {
    return "not_asked";
  }
  if (cached >= prompt - 1) {
    return "complete";
  }
  if (request.timings.declined_tokens > 0) {
    return "recompute_faster";
  }
  if (comparison.nearest == nullptr) {
    return cached > 0 ? "new_text" : "never_seen";
  }
  if (cached + kSegmentTokens < comparison.common_tokens) {
    return "not_kept";
  }
  const TokenCount usable = std::min(comparison.common_tokens, prompt - 1);
  if (cached < usable && usable - cached < kUsedFromTokens) {
    return "below_minimum";
  }
  const auto earlier = static_cast<TokenCount>(comparison.nearest->tokens.size());
  return comparison.common_tokens < earlier ? "diverged" : "new_text";
}

std::string_view Sentence(std::string_view reason) {
  if (reason == "not_asked") {
    return "the request asked for the whole prompt to be computed";
  }
  if (reason == "complete") {
    return "the whole prompt was found; its last token is always computed";
  }
  if (reason == "never_seen") {
    return "no recent request of this server begins like this one";
  }
  if (reason == "removed") {
    return "more of it was kept and has been removed";
  }
  if (reason == "identity_changed") {
    return "more of it is kept, but for another model or other settings, whose state differs";
  }
  if (reason == "recompute_faster") {
    return "more of it was found, but computing it was estimated to be faster than restoring it";
  }
  if (reason == "below_minimum") {
    return "what a recent request has in common beyond this is shorter than the 32 tokens from "
           "which on state is used";
  }
  if (reason == "not_kept") {
    return "a recent request begins like this one for longer than what was found: the rest was not "
           "recorded, was evicted, or was not worth restoring";
  }
  if (reason == "diverged") {
    return "the nearest recent request goes on differently from here";
  }
  return "what follows was not asked before";
}

Json PrefixJson(const FinishedRequest& request, const ChatFormat& chat, bool keep_text) {
  const PromptComparison& comparison = request.comparison;
  const std::string_view reason = Reason(request);
  Json prefix{{"reason", reason},
              {"meaning", Sentence(reason)},
              {"ends_at_token", request.timings.cached_tokens()}};
  if (reason == "recompute_faster") {
    prefix["declined_tokens"] = request.timings.declined_tokens;
  }
  if (comparison.nearest == nullptr || reason == "complete" || reason == "not_asked") {
    return prefix;
  }
  prefix["nearest_request"] = comparison.nearest->request_id;
  prefix["common_tokens"] = comparison.common_tokens;
  if (reason != "diverged" || !keep_text) {
    return prefix;
  }
  const Divergence text = Excerpt(comparison, chat);
  prefix["text_before"] = text.before;
  prefix["text_earlier"] = text.earlier;
  prefix["text_now"] = text.now;
  const std::string hint = VolatileHint(text);
  prefix["hint"] = hint.empty() ? Json(nullptr) : Json(hint);
  return prefix;
}

std::int64_t SecondsOf(std::chrono::nanoseconds time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

}  // namespace

Json WithHistory(const Explanation& explanation, const PrefixHistory& history) {
  Json body = explanation.body;
  Json& prefix = body["prefix"];
  // What was removed only after the request does not explain it.
  const bool removed = history.removed_tokens > explanation.cached_tokens &&
                       history.removed_at <= explanation.finished_at;
  const char* reason = removed ? "removed" : "identity_changed";
  if (!removed && history.foreign_tokens <= explanation.cached_tokens) {
    return body;
  }
  prefix["reason"] = reason;
  prefix["meaning"] = Sentence(reason);
  if (removed) {
    prefix["removed"] = Json{{"tokens", history.removed_tokens},
                             {"by", history.removed_by},
                             {"at", SecondsOf(history.removed_at)}};
    return body;
  }
  Json changed = Json::array();
  for (const ChangedField& field : history.changed) {
    changed.push_back({{"field", field.name}, {"before", field.before}, {"now", field.now}});
  }
  prefix["identity_changed"] =
      Json{{"tokens", history.foreign_tokens}, {"changed", std::move(changed)}};
  return body;
}

PromptComparison ExplainLog::Compare(SeenPrompt prompt) {
  PromptComparison result;
  result.prompt = std::make_shared<const SeenPrompt>(std::move(prompt));
  const std::vector<Token>& tokens = result.prompt->tokens;
  std::deque<std::shared_ptr<const SeenPrompt>> earlier;
  {
    MutexLock lock(mu_);
    earlier = prompts_;
    prompts_.push_back(result.prompt);
    prompt_tokens_ += tokens.size();
    while (prompts_.size() > kPromptsMax || prompt_tokens_ > kPromptTokensMax) {
      prompt_tokens_ -= prompts_.front()->tokens.size();
      prompts_.pop_front();
    }
  }
  for (const auto& other : earlier) {
    if (other->name_space != result.prompt->name_space) {
      continue;
    }
    const auto [mine, theirs] =
        std::mismatch(tokens.begin(), tokens.end(), other->tokens.begin(), other->tokens.end());
    const auto common = static_cast<TokenCount>(mine - tokens.begin());
    if (common > 0 && common >= result.common_tokens) {
      result.common_tokens = common;
      result.nearest = other;
    }
  }
  return result;
}

double ExplainLog::LearnCost(const RequestTimings& timings) {
  if (timings.computed_tokens >= kCostTokensMin && timings.prefill_ms > 0) {
    const double measured = timings.prefill_ms / timings.computed_tokens;
    ms_per_token_ =
        ms_per_token_ == 0 ? measured : ms_per_token_ + kCostWeight * (measured - ms_per_token_);
  }
  return ms_per_token_;
}

void ExplainLog::Remember(const FinishedRequest& request, const ChatFormat& chat) {
  const RequestTimings& timings = request.timings;
  double ms_per_token = 0;
  {
    MutexLock lock(mu_);
    ms_per_token = LearnCost(timings);
  }
  const double saved = ms_per_token * timings.cached_tokens() - timings.restore_ms;
  const std::string& id = request.comparison.prompt->request_id;
  Explanation explanation;
  explanation.body = Json{{"request_id", id},
                          {"prompt_tokens", timings.prompt_tokens},
                          {"prompts", request.prompt_count},
                          {"prefix", PrefixJson(request, chat, keep_text_)},
                          {"timings", TimingsJson(timings, id)},
                          {"saved_ms_estimate", ms_per_token > 0 ? Json(saved) : Json(nullptr)}};
  explanation.prompt = request.comparison.prompt;
  explanation.cached_tokens = timings.cached_tokens();
  explanation.finished_at = std::chrono::system_clock::now().time_since_epoch();
  const std::string_view reason = Reason(request);
  explanation.may_be_lost =
      reason != "complete" && reason != "not_asked" && reason != "recompute_faster";
  MutexLock lock(mu_);
  explanations_.emplace_back(id, std::move(explanation));
  if (explanations_.size() > kRequestsMax) {
    explanations_.pop_front();
  }
}

std::optional<Explanation> ExplainLog::Find(const std::string& request_id) const {
  MutexLock lock(mu_);
  const auto found =
      std::find_if(explanations_.begin(), explanations_.end(),
                   [&request_id](const auto& entry) { return entry.first == request_id; });
  return found == explanations_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace skippy
