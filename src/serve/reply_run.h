// Runs the choices of one request to their ends: submits, collects, notices clients that left.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "serve/api_error.h"
#include "serve/openai_request.h"

namespace skippy {

// One choice while it is made.
struct Choice {
  int index = 0;
  std::size_t prompt_index = 0;
  std::unique_ptr<Generation> generation;
  std::string text;                    // generated so far
  std::vector<GeneratedToken> tokens;  // generated so far, with logprobs
  FinishReason finish = FinishReason::kStop;
  std::string stop_string;  // done by this one; empty: none
  RequestTimings timings;
  bool done = false;
};

// What an answer reports as used. With several choices per prompt, a prompt counts once: as the
// first of its choices found it.
struct Usage {
  RequestTimings total;
  TokenCount completion_tokens() const { return total.generated_tokens; }
};

// For one thread. Destruction cancels what still runs.
class ReplyRun {
 public:
  // Called with every event of a choice after the choice took it in; false ends the run.
  using Observer = std::function<bool(const Choice& choice, const GenerateEvent& event)>;
  enum class End { kDone, kClientGone, kFailed };

  // All choices of `request`, or none. `id` is the name in logs.
  static ApiResult<std::unique_ptr<ReplyRun>> Submit(Engine& engine, const OpenAiRequest& request,
                                                     const std::string& id);

  // Until all choices are done, one failed (error() says why), the observer had enough or
  // `client_gone`, which is asked at least every 100 ms, says so. Then nothing runs any more.
  End Run(const std::function<bool()>& client_gone, const Observer& observer);

  const std::vector<Choice>& choices() const { return choices_; }
  const ApiError& error() const { return error_; }
  Usage usage() const;

 private:
  // False when the choice failed or the observer had enough.
  bool Take(Choice& choice, const GenerateEvent& event, const Observer& observer);
  void CancelAll();

  std::vector<Choice> choices_;
  int choices_per_prompt_ = 1;
  bool failed_ = false;
  ApiError error_;
};

}  // namespace skippy
