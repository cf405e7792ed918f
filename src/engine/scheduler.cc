#include "engine/scheduler.h"

#include <algorithm>
#include <ctime>
#include <string>

#include "base/check.h"
#include "base/log.h"

namespace skippy {
namespace {

// A prefix that another request is about to compute is worth waiting for from this length on.
constexpr TokenCount kWorthWaitingTokens = 32;
// Free cells that each running request should find for its reply before another one is admitted.
constexpr std::size_t kGrowthCells = 64;
// Imports between two decodes of other lanes, and when nothing else runs (cancellation is looked
// at in between).
constexpr std::chrono::milliseconds kImportTimeBesideOthers{2};
constexpr std::chrono::milliseconds kImportTimeAlone{20};

Leaving LeavingOf(RowAccess access) {
  if (access == RowAccess::kAppendOnly) {
    return Leaving::kAtEnd;
  }
  return UsesCheckpoints(access) ? Leaving::kAtCheckpoints : Leaving::kAnywhere;
}

}  // namespace

double ThreadCpuMs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

Scheduler::Scheduler(LlamaContext* context, SchedulerOptions options)
    : context_(context),
      options_(std::move(options)),
      keeps_checkpoints_(
          UsesCheckpoints(context->access()) &&
          (options_.cache != nullptr || options_.residents_max > 0 || options_.lanes > 1)),
      table_(&context->lanes(), LeavingOf(context->access())) {
  SKIPPY_CHECK(options_.lanes + options_.residents_max <= context->lanes().lane_count(),
               "every lane and resident needs a sequence");
  UpdateStatus();
}

void Scheduler::Enqueue(JobPtr job) {
  ++status_.requests_total;
  queue_.push_back(std::move(job));
}

bool Scheduler::Step() {
  DropCancelled();
  Admit();
  bool progress = RunRestores();
  BuildBatch();
  if (!batch_.empty()) {
    ChargeRent();
    if (DecodeBatch()) {
      AfterDecode();
    }
    progress = true;
  }
  if (!progress) {
    progress = RecordResident();
  }
  UpdateStatus();
  return progress;
}

void Scheduler::DropCancelled() {
  for (std::size_t i = queue_.size(); i-- > 0;) {
    if (queue_[i]->events->cancelled()) {
      const JobPtr job = std::move(queue_[i]);
      queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(i));
      PushDone(job.get(), {FinishReason::kCancelled, "", std::nullopt});
    }
  }
  for (std::size_t i = running_.size(); i-- > 0;) {
    if (running_[i]->events->cancelled()) {
      Finish(running_[i].get(), {FinishReason::kCancelled, "", std::nullopt});
    }
  }
}

std::optional<PrefixSource> Scheduler::FindSource(const Job& job) const {
  if (!job.request.cache_read) {
    return std::nullopt;
  }
  return table_.FindPrefix(job.request.name_space, job.tokens,
                           static_cast<TokenCount>(job.tokens.size()) - 1,
                           job.request.affinity_key);
}

bool Scheduler::ShouldWait(const Job& job, TokenCount have) {
  if (!job.request.cache_read) {
    return false;
  }
  const std::optional<PrefixSource> promised = table_.FindPromised(
      job.request.name_space, job.tokens, static_cast<TokenCount>(job.tokens.size()) - 1);
  if (!promised || promised->tokens < have + kWorthWaitingTokens) {
    return false;
  }
  if (keeps_checkpoints_) {
    table_.at(promised->lane).ladder.Want(promised->tokens);
  }
  return true;
}

bool Scheduler::Fits(const Job& job, const std::optional<PrefixSource>& source) const {
  if (running_.empty()) {
    return true;
  }
  const LaneTable& lanes = context_->lanes();
  std::size_t cells =
      lanes.CellsHeldBy(table_.InState(SequenceState::kRunning)) + job.tokens.size() + kGrowthCells;
  for (const JobPtr& other : running_) {
    cells += static_cast<std::size_t>(Pending(*other)) + kGrowthCells;
  }
  if (source && table_.at(source->lane).state == SequenceState::kRunning) {
    cells -= static_cast<std::size_t>(source->tokens);
  }
  return cells <= lanes.cell_count();
}

void Scheduler::Admit() {
  std::size_t i = 0;
  while (i < queue_.size() && static_cast<int>(running_.size()) < options_.lanes) {
    const std::optional<PrefixSource> source = FindSource(*queue_[i]);
    if (ShouldWait(*queue_[i], source ? source->tokens : 0)) {
      ++i;
      continue;
    }
    if (!Fits(*queue_[i], source)) {
      return;  // nobody overtakes a request that waits for room
    }
    JobPtr job = std::move(queue_[i]);
    queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(i));
    Start(std::move(job), source);
  }
}

LaneId Scheduler::TakeLane(std::optional<PrefixSource>* source) {
  if (*source && (*source)->take_over) {
    return (*source)->lane;
  }
  std::optional<LaneId> lane = table_.FindFree();
  if (!lane) {
    const std::optional<LaneId> keep = *source ? std::optional((*source)->lane) : std::nullopt;
    if (!EvictResident(keep)) {
      // Only the source is left: its session gives way to the live request.
      SKIPPY_CHECK(*source && table_.at((*source)->lane).state == SequenceState::kResident,
                   "fewer requests run than there are lanes, so one is free or resident");
      (*source)->take_over = true;
      return (*source)->lane;
    }
    lane = table_.FindFree();
  }
  return *lane;
}

TokenCount Scheduler::TakePrefix(LaneId lane, const std::optional<PrefixSource>& source,
                                 CheckpointList* checkpoints) {
  if (!source) {
    return 0;
  }
  *checkpoints = table_.at(source->lane).checkpoints.UpTo(source->tokens);
  bool good = true;
  if (source->take_over) {
    good = context_->Truncate(lane, source->tokens);
  } else {
    context_->CopyPrefix(source->lane, lane, source->tokens);
    table_.Touch(source->lane);
  }
  if (good && !context_->HasState(lane)) {
    good = LoadCheckpoint(lane, checkpoints->Deepest(source->tokens));
  }
  if (!good) {
    context_->Clear(lane);
    *checkpoints = {};
  }
  return context_->lanes().Length(lane);
}

void Scheduler::Start(JobPtr job, const std::optional<PrefixSource>& found) {
  const CpuCharge charge(job.get());
  std::optional<PrefixSource> source = found;
  job->lane = TakeLane(&source);
  Sequence sequence;
  const TokenCount held = TakePrefix(job->lane, source, &sequence.checkpoints);
  sequence.name_space = job->request.name_space;
  sequence.affinity_key = job->request.affinity_key;
  sequence.retain_for = job->request.retain_for;
  sequence.shareable = job->request.cache_write;
  sequence.persistable = job->request.cache_write && job->request.cache_persist;
  sequence.prompt_tokens = job->timings.prompt_tokens;
  if (keeps_checkpoints_ && sequence.shareable) {
    sequence.ladder = CheckpointLadder(sequence.prompt_tokens, job->request.last_user_position,
                                       /*powers=*/context_->access() != RowAccess::kWholeState);
  }
  sequence.tokens = std::move(job->tokens);
  table_.Start(job->lane, std::move(sequence));
  job->phase = Job::Phase::kComputing;
  if (!job->prompt_done) {
    BeginPrompt(job.get(), held);
  }
  job->phase_start = EngineClock::now();
  StartRestore(job.get());
  ChargeRentAhead(job.get());
  LogDebug("request {}: lane {}, {} of {} tokens from L1", job->request.id,
           static_cast<int>(job->lane), held, table_.at(job->lane).tokens.size());
  running_.push_back(std::move(job));
}

// Again after a preemption in the middle of the prompt.
void Scheduler::BeginPrompt(Job* job, TokenCount held) {
  RequestTimings& timings = job->timings;
  if (!std::exchange(job->started, true)) {
    timings.queue_ms = MillisecondsSince(job->submitted);
    status_.prompt_tokens_total += static_cast<std::uint64_t>(timings.prompt_tokens);
  }
  timings.cached_l1_tokens = held;
  timings.cached_l2_tokens = 0;
  timings.cached_l3_tokens = 0;
  timings.computed_tokens = 0;
  status_.cached_l1_tokens_total += static_cast<std::uint64_t>(held);
}

void Scheduler::StartRestore(Job* job) {
  const Sequence& sequence = table_.at(job->lane);
  const auto limit = static_cast<TokenCount>(sequence.tokens.size()) - 1;
  const TokenCount held = context_->lanes().Length(job->lane);
  const std::optional<DomainId> domain = options_.domains->Find(sequence.name_space);
  if (options_.cache == nullptr || !domain || !job->request.cache_read || limit <= 0) {
    return;
  }
  // Also when L1 holds everything: what is used stays recent in the tiers below.
  PrefixMatch match = options_.cache->Lookup(*domain, sequence.tokens, limit, options_.resume_rule);
  job->timings.lookup_ms += MillisecondsSince(job->phase_start);
  if (match.tokens <= held) {
    return;
  }
  Restorer::DropHeldSegments(&match, held);
  std::uint64_t byte_count = 0;
  std::uint64_t disk_bytes = 0;
  for (const MatchedSegment& segment : match.segments) {
    byte_count += segment.byte_count;
    disk_bytes += segment.tier == Tier::kDisk ? segment.byte_count : 0;
  }
  if (!costs_.ShouldRestore(match.tokens - held, byte_count, disk_bytes)) {
    ++status_.declined_because_recompute_faster;
    job->timings.declined_tokens = match.tokens - held;
    LogInfo("request {}: {} tokens are computed, restoring {} bytes would take longer",
            job->request.id, match.tokens - held, byte_count);
    return;
  }
  KeepCheckpoint(job->lane, /*ends=*/true);  // what a failure falls back to
  ++status_.restores_total;
  job->restorer = std::make_unique<Restorer>(
      context_, job->lane,
      options_.cache->StartRestore(std::move(match), sequence.tokens, options_.wake));
  job->phase = Job::Phase::kRestoring;
  job->phase_start = EngineClock::now();
}

bool Scheduler::RunRestores() {
  const bool beside_others = std::any_of(running_.begin(), running_.end(), [](const JobPtr& job) {
    return job->phase == Job::Phase::kComputing;
  });
  bool progress = false;
  for (const JobPtr& job : running_) {
    if (job->phase != Job::Phase::kRestoring) {
      continue;
    }
    const CpuCharge charge(job.get());
    const std::uint64_t before = job->restorer->imported_bytes();
    const Restorer::Outcome outcome =
        job->restorer->Step(beside_others ? kImportTimeBesideOthers : kImportTimeAlone,
                            [this](std::size_t cells) { return MakeRoom(cells); });
    status_.import_bytes_total += job->restorer->imported_bytes() - before;
    progress = progress || outcome != Restorer::Outcome::kWaiting;
    if (outcome == Restorer::Outcome::kDone || outcome == Restorer::Outcome::kFailed) {
      EndRestore(job.get(), outcome);
    }
  }
  return progress;
}

void Scheduler::EndRestore(Job* job, Restorer::Outcome outcome) {
  if (outcome == Restorer::Outcome::kFailed) {
    ++status_.restores_failed_total;
    LogInfo("request {}: restore ended early at token {}", job->request.id,
            context_->lanes().Length(job->lane));
  }
  const double restore_ms = MillisecondsSince(job->phase_start);
  job->timings.restore_ms += restore_ms;
  job->timings.import_ms += job->restorer->import_ms();
  const bool completed = outcome == Restorer::Outcome::kDone && !job->events->cancelled();
  if (!context_->HasState(job->lane)) {
    FallBack(job);
  } else if (!job->prompt_done) {
    job->timings.cached_l2_tokens = job->restorer->ram_tokens();
    job->timings.cached_l3_tokens = job->restorer->disk_tokens();
    status_.cached_l2_tokens_total += static_cast<std::uint64_t>(job->restorer->ram_tokens());
    status_.cached_l3_tokens_total += static_cast<std::uint64_t>(job->restorer->disk_tokens());
  }
  if (completed) {
    costs_.AddRestore(job->restorer->imported_bytes(), restore_ms);
    rent_.AddRestore(job->restorer->imported_bytes(), restore_ms);
  }
  job->restorer.reset();
  if (outcome == Restorer::Outcome::kDone) {
    KeepCheckpoint(job->lane, /*ends=*/true);
  }
  job->phase = Job::Phase::kComputing;
  job->phase_start = EngineClock::now();
}

void Scheduler::PushDone(Job* job, Job::End end) {
  RequestTimings& timings = job->timings;
  if (job->prompt_done) {
    timings.decode_ms = MillisecondsSince(job->phase_start);
  }
  status_.cancelled_total += end.reason == FinishReason::kCancelled ? 1 : 0;
  LogInfo("request {}: prompt {} = L1 {} + L2 {} + L3 {} + computed {}, generated {}, recorded {}",
          job->request.id, timings.prompt_tokens, timings.cached_l1_tokens,
          timings.cached_l2_tokens, timings.cached_l3_tokens, timings.computed_tokens,
          timings.generated_tokens, timings.recorded_tokens);
  GenerateEvent event;
  event.kind = GenerateEvent::Kind::kDone;
  event.finish = end.reason;
  event.stop_string = std::move(end.stop_string);
  event.error = std::move(end.error);
  event.timings = timings;
  ends_.emplace_back(job->events, std::move(event));
}

void Scheduler::CloseLane(Job* job) {
  Sequence& sequence = table_.at(job->lane);
  sequence.recorded = job->recorder != nullptr;
  job->recorder.reset();
  const bool keep =
      options_.residents_max > 0 && sequence.shareable && context_->lanes().Length(job->lane) > 0;
  if (!keep) {
    context_->Clear(job->lane);
    table_.Release(job->lane);
    return;
  }
  table_.Keep(job->lane);
  for (const LaneId lane : table_.Redundant(job->lane)) {
    context_->Clear(lane);
    table_.Release(lane);
  }
  if (table_.Count(SequenceState::kResident) > options_.residents_max) {
    EvictResident(std::nullopt);
  }
}

void Scheduler::Finish(Job* job, Job::End end) {
  rent_.AddReply(job->timings.generated_tokens);
  {
    const CpuCharge charge(job);
    if (job->phase == Job::Phase::kRestoring) {
      EndRestore(job, Restorer::Outcome::kDone);
    }
    if (end.reason == FinishReason::kError) {
      context_->Clear(job->lane);
    } else {
      RecordProgress(job, true);
    }
    CloseLane(job);
  }
  PushDone(job, std::move(end));
  std::erase_if(running_, [job](const JobPtr& other) { return other.get() == job; });
}

std::optional<DomainId> Scheduler::WriteDomain(const Sequence& sequence) const {
  if (options_.cache == nullptr || !sequence.persistable) {
    return std::nullopt;
  }
  return options_.domains->Find(sequence.name_space);
}

std::unique_ptr<Recorder> Scheduler::MakeRecorder(const Sequence& sequence) const {
  const std::optional<DomainId> domain = WriteDomain(sequence);
  if (!domain) {
    return nullptr;
  }
  auto recording = options_.cache->StartRecording(*domain, options_.resume_rule);
  if (sequence.retain_for.count() > 0) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    recording->Retain(std::chrono::duration_cast<std::chrono::seconds>(now) + sequence.retain_for);
  }
  return std::make_unique<Recorder>(context_, options_.cache, std::move(recording));
}

void Scheduler::DeliverEnds() {
  for (auto& [events, event] : std::exchange(ends_, {})) {
    events->Push(std::move(event));
  }
}

void Scheduler::UpdateStatus() {
  status_.lanes = options_.lanes;
  status_.lanes_busy = static_cast<int>(running_.size());
  status_.queued = static_cast<int>(queue_.size());
  status_.resident_sequences = 0;
  status_.resident_tokens = 0;
  for (const LaneId lane : table_.InState(SequenceState::kResident)) {
    ++status_.resident_sequences;
    status_.resident_tokens += context_->lanes().Length(lane);
  }
  status_.cells = context_->lanes().cell_count();
  status_.cells_used = context_->lanes().cells_used();
}

void Scheduler::Stop() {
  for (const JobPtr& job : queue_) {
    PushDone(job.get(), {FinishReason::kCancelled, "", std::nullopt});
  }
  queue_.clear();
  while (!running_.empty()) {
    Finish(running_.back().get(), {FinishReason::kCancelled, "", std::nullopt});
  }
  while (RecordResident()) {
  }
  ForgetResidents();
}

}  // namespace skippy
