// One step's batch: what goes into it, how it finds its cells, what follows from it.
#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/log.h"
#include "engine/scheduler.h"

namespace skippy {

TokenCount Scheduler::Pending(const Job& job) const {
  return static_cast<TokenCount>(table_.at(job.lane).tokens.size()) -
         context_->lanes().Length(job.lane);
}

// False also for a request that computes its reply's rows again after a preemption.
bool Scheduler::IsDecoding(const Job& job) const {
  return job.phase == Job::Phase::kComputing && job.prompt_done && Pending(job) == 1;
}

void Scheduler::AddShare(Job* job, TokenCount token_count) {
  const std::vector<Token>& tokens = table_.at(job->lane).tokens;
  const auto first = static_cast<std::size_t>(context_->lanes().Length(job->lane));
  const bool completes = first + static_cast<std::size_t>(token_count) == tokens.size();
  const bool want_logits = completes && job->request.max_tokens != 0;
  for (TokenCount i = 0; i < token_count; ++i) {
    const bool last = i + 1 == token_count;
    batch_.push_back({job->lane, tokens[first + static_cast<std::size_t>(i)], want_logits && last});
  }
  shares_.push_back({job, token_count, want_logits ? static_cast<int>(batch_.size()) - 1 : -1});
}

// In turns of a whole step: who has computed fewest steps' worth of the prompt comes first, then
// who came first. So a short prompt does not wait for long ones, long ones advance alike, and the
// cells of a prompt lie side by side, which attention is faster with than with parts of every
// prompt in every step. What the first does not need goes to the next.
std::vector<std::pair<Job*, TokenCount>> Scheduler::SplitPrefill(TokenCount budget) const {
  std::vector<Job*> order;
  for (const JobPtr& job : running_) {
    if (job->phase == Job::Phase::kComputing && !IsDecoding(*job)) {
      order.push_back(job.get());
    }
  }
  const TokenCount turn = context_->ubatch_tokens();
  std::stable_sort(order.begin(), order.end(), [turn](const Job* a, const Job* b) {
    return a->timings.computed_tokens / turn < b->timings.computed_tokens / turn;
  });
  std::vector<std::pair<Job*, TokenCount>> parts;
  for (Job* job : order) {
    if (budget == 0) {
      break;
    }
    // A step ends where a checkpoint is wanted.
    const TokenCount have = context_->lanes().Length(job->lane);
    const std::optional<TokenCount> rung = table_.at(job->lane).ladder.Next(have);
    const TokenCount wanted = std::min(Pending(*job), rung ? *rung - have : Pending(*job));
    parts.emplace_back(job, std::min(wanted, budget));
    budget -= parts.back().second;
  }
  return parts;
}

void Scheduler::BuildBatch() {
  batch_.clear();
  shares_.clear();
  for (const JobPtr& job : running_) {
    if (IsDecoding(*job)) {
      AddShare(job.get(), 1);
    }
  }
  const TokenCount budget =
      std::max<TokenCount>(0, context_->ubatch_tokens() - static_cast<TokenCount>(batch_.size()));
  for (const auto& [job, token_count] : SplitPrefill(budget)) {
    AddShare(job, token_count);
  }
}

bool Scheduler::PreemptYoungest() {
  if (running_.size() < 2) {
    return false;
  }
  JobPtr job = std::move(running_.back());
  running_.pop_back();
  LogInfo("request {}: back to the queue, no cells for {} requests", job->request.id,
          running_.size() + 1);
  {
    const CpuCharge charge(job.get());
    if (job->phase == Job::Phase::kRestoring) {
      EndRestore(job.get(), Restorer::Outcome::kDone);
    }
    RecordProgress(job.get(), false);
    job->recorder.reset();
    job->tokens = std::move(table_.at(job->lane).tokens);
    context_->Clear(job->lane);
    table_.Release(job->lane);
    job->lane = LaneId::kEmpty;
    job->phase = Job::Phase::kQueued;
  }
  queue_.push_front(std::move(job));
  return true;
}

bool Scheduler::DecodeBatch() {
  while (!batch_.empty()) {
    const bool room = MakeRoom(batch_.size());
    DecodeOutcome outcome = DecodeOutcome::kNoCells;
    const double cpu_before = ThreadCpuMs();
    if (room) {
      outcome = context_->Decode(batch_);
    }
    ChargeDecode(ThreadCpuMs() - cpu_before);
    if (outcome == DecodeOutcome::kDone) {
      return true;
    }
    if (outcome == DecodeOutcome::kFailed) {
      FailBatch();
      return false;
    }
    if (EvictResident(std::nullopt)) {
      continue;
    }
    if (!PreemptYoungest()) {
      FailBatch();
      return false;
    }
    BuildBatch();
  }
  return false;
}

void Scheduler::FailBatch() {
  const Error error = MakeError(ErrorCode::kInternal, "llama.cpp could not compute the batch");
  LogError("{} ({} tokens)", error.text, batch_.size());
  for (const Share& share : std::exchange(shares_, {})) {
    Finish(share.job, {FinishReason::kError, "", error});
  }
}

void Scheduler::ChargeDecode(double cpu_ms) {
  const double per_token = cpu_ms / static_cast<double>(std::max<std::size_t>(batch_.size(), 1));
  for (const Share& share : shares_) {
    share.job->timings.engine_cpu_ms += per_token * share.token_count;
  }
}

// Replies first, so that nobody's token waits for another one's export.
void Scheduler::AfterDecode() {
  for (const Share& share : shares_) {
    const CpuCharge charge(share.job);
    Job* job = share.job;
    if (!job->prompt_done) {
      job->timings.computed_tokens += share.token_count;
      status_.computed_tokens_total += static_cast<std::uint64_t>(share.token_count);
    }
    if (Pending(*job) > 0) {
      continue;
    }
    const bool first_token = !job->prompt_done;
    if (first_token) {
      EndPrompt(job);
    }
    if (share.logits_index >= 0) {
      Sample(job, share.logits_index);
      if (first_token) {  // only now a device has computed the last step
        costs_.AddPrefill(job->timings.computed_tokens,
                          job->timings.prefill_ms + MillisecondsSince(job->phase_start));
      }
    } else {
      job->end = Job::End{FinishReason::kLength, "", std::nullopt};
    }
  }
  for (const Share& share : std::exchange(shares_, {})) {
    {
      const CpuCharge charge(share.job);
      RecordProgress(share.job, false);
    }
    if (share.job->end) {
      Finish(share.job, std::move(*share.job->end));
    }
  }
}

void Scheduler::EndPrompt(Job* job) {
  job->prompt_done = true;
  job->timings.prefill_ms = MillisecondsSince(job->phase_start);
  job->phase_start = EngineClock::now();
  GenerateEvent event;
  event.kind = GenerateEvent::Kind::kPromptDone;
  event.timings = job->timings;
  job->events->Push(std::move(event));
}

void Scheduler::Sample(Job* job, int logits_index) {
  const Result<Token> sampled = job->sampler->Sample(context_->raw(), logits_index);
  if (!sampled) {
    job->end = Job::End{FinishReason::kError, "", sampled.error()};
    return;
  }
  std::vector<Token>& tokens = table_.at(job->lane).tokens;
  tokens.push_back(*sampled);
  ++job->timings.generated_tokens;
  ++status_.generated_tokens_total;
  if (job->reply.IsEnd(*sampled)) {
    job->reply.Finish(job->events.get());
    job->end = Job::End{FinishReason::kStop, "", std::nullopt};
    return;
  }
  std::optional<GeneratedToken> logprobs;
  if (job->request.top_logprobs >= 0) {
    logprobs = job->sampler->LastLogprobs();
  }
  if (auto stop = job->reply.Append(*sampled, std::move(logprobs), job->events.get())) {
    job->end = Job::End{FinishReason::kStop, std::move(*stop), std::nullopt};
    return;
  }
  const bool all_wanted =
      job->request.max_tokens >= 0 && job->timings.generated_tokens >= job->request.max_tokens;
  if (all_wanted || static_cast<TokenCount>(tokens.size()) >= options_.context_tokens) {
    job->reply.Finish(job->events.get());
    job->end = Job::End{FinishReason::kLength, "", std::nullopt};
  }
}

void Scheduler::RecordProgress(Job* job, bool ends) {
  const Sequence& sequence = table_.at(job->lane);
  KeepCheckpoint(job->lane, ends);
  if (!job->recorder) {
    job->recorder = MakeRecorder(sequence);
  }
  if (!job->recorder) {
    return;
  }
  Recorder& recorder = *job->recorder;
  const TokenCount rows = context_->lanes().Length(job->lane);
  const std::uint64_t bytes_before = recorder.exported_bytes();
  // The prompt is a prefix of its own: most prompts that follow branch there.
  if (keeps_checkpoints_) {
    recorder.Advance(job->lane, sequence.tokens, false);
    recorder.AddCheckpoints(job->lane, sequence.tokens, sequence.checkpoints);
  } else if (ends || rows == job->timings.prompt_tokens) {
    recorder.Publish(job->lane, sequence.tokens);
  } else {
    recorder.Advance(job->lane, sequence.tokens, false);
  }
  status_.export_bytes_total += recorder.exported_bytes() - bytes_before;
  job->timings.recorded_tokens = recorder.recorded_tokens();
}

}  // namespace skippy
