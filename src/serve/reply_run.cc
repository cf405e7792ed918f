#include "serve/reply_run.h"

#include <algorithm>
#include <chrono>

namespace skippy {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kGoneCheckInterval{100};
constexpr milliseconds kSharedWait{10};  // for one of several choices that have nothing to say

void AddPrompt(const RequestTimings& from, RequestTimings& total) {
  total.prompt_tokens += from.prompt_tokens;
  total.cached_l1_tokens += from.cached_l1_tokens;
  total.cached_l2_tokens += from.cached_l2_tokens;
  total.cached_l3_tokens += from.cached_l3_tokens;
  total.computed_tokens += from.computed_tokens;
  total.declined_tokens += from.declined_tokens;
  total.queue_ms += from.queue_ms;
  total.lookup_ms += from.lookup_ms;
  total.restore_ms += from.restore_ms;
  total.import_ms += from.import_ms;
  total.prefill_ms += from.prefill_ms;
}

void AddReply(const RequestTimings& from, RequestTimings& total) {
  total.generated_tokens += from.generated_tokens;
  total.recorded_tokens += from.recorded_tokens;
  total.decode_ms += from.decode_ms;
  total.engine_cpu_ms += from.engine_cpu_ms;
}

ApiError FailureOf(const GenerateEvent& event) {
  if (event.error) {
    return FromError(*event.error);
  }
  return FromError(MakeError(ErrorCode::kCancelled, "the server ended the request"));
}

}  // namespace

ApiResult<std::unique_ptr<ReplyRun>> ReplyRun::Submit(Engine& engine, const OpenAiRequest& request,
                                                      const std::string& id) {
  auto run = std::make_unique<ReplyRun>();
  run->choices_per_prompt_ = request.choices_per_prompt;
  for (std::size_t p = 0; p < request.prompts.size(); ++p) {
    for (int i = 0; i < request.choices_per_prompt; ++i) {
      GenerateRequest generate = request.base;
      const auto index = static_cast<int>(run->choices_.size());
      generate.id = index == 0 ? id : id + "." + std::to_string(index);
      generate.prompt = request.prompts[p].tokens;
      generate.last_user_position = request.prompts[p].last_user_position;
      if (generate.sampling.seed) {
        *generate.sampling.seed += static_cast<std::uint32_t>(i);
      }
      Result<std::unique_ptr<Generation>> generation = engine.Submit(std::move(generate));
      if (!generation) {
        return FromError(generation.error());
      }
      Choice choice;
      choice.index = index;
      choice.prompt_index = p;
      choice.generation = std::move(*generation);
      run->choices_.push_back(std::move(choice));
    }
  }
  return run;
}

bool ReplyRun::Take(Choice& choice, const GenerateEvent& event, const Observer& observer) {
  choice.text += event.text;
  choice.tokens.insert(choice.tokens.end(), event.tokens.begin(), event.tokens.end());
  if (event.kind != GenerateEvent::Kind::kText) {
    choice.timings = event.timings;
  }
  if (event.kind == GenerateEvent::Kind::kDone) {
    choice.done = true;
    choice.finish = event.finish;
    choice.stop_string = event.stop_string;
    choice.generation.reset();
    if (event.finish == FinishReason::kError || event.finish == FinishReason::kCancelled) {
      failed_ = true;
      error_ = FailureOf(event);
      return false;
    }
  }
  return observer(choice, event);
}

ReplyRun::End ReplyRun::Run(const std::function<bool()>& client_gone, const Observer& observer) {
  Clock::time_point next_check = Clock::now();
  bool idle = false;  // the last round brought nothing
  for (;;) {
    if (Clock::now() >= next_check) {
      if (client_gone()) {
        CancelAll();
        return End::kClientGone;
      }
      next_check = Clock::now() + kGoneCheckInterval;
    }
    const auto live = std::count_if(choices_.begin(), choices_.end(),
                                    [](const Choice& choice) { return !choice.done; });
    if (live == 0) {
      return End::kDone;
    }
    // One choice: wait for it. Several: take what each has, and wait for the first only when none
    // had anything.
    milliseconds wait = live == 1 ? kGoneCheckInterval : (idle ? kSharedWait : milliseconds(0));
    idle = true;
    for (Choice& choice : choices_) {
      if (choice.done) {
        continue;
      }
      const std::optional<GenerateEvent> event = choice.generation->Next(wait);
      if (live > 1) {
        wait = milliseconds(0);
      }
      if (event) {
        idle = false;
        if (!Take(choice, *event, observer)) {
          CancelAll();
          return failed_ ? End::kFailed : End::kClientGone;
        }
      }
    }
  }
}

void ReplyRun::CancelAll() {
  for (Choice& choice : choices_) {
    choice.generation.reset();
  }
}

Usage ReplyRun::usage() const {
  Usage usage;
  for (const Choice& choice : choices_) {
    if (choice.index % choices_per_prompt_ == 0) {
      AddPrompt(choice.timings, usage.total);
    }
    AddReply(choice.timings, usage.total);
  }
  return usage;
}

}  // namespace skippy
