// Sequences that stay after their request: when they leave, and that what they hold is not lost.
#include <algorithm>

#include "base/log.h"
#include "engine/scheduler.h"

namespace skippy {

void Scheduler::DropResident(LaneId lane) {
  context_->Clear(lane);
  table_.Release(lane);
}

bool Scheduler::RecordResident() {
  for (const LaneId lane : table_.InState(SequenceState::kResident)) {
    if (!table_.at(lane).recorded && Demote(lane)) {
      return true;
    }
  }
  return false;
}

bool Scheduler::Demote(LaneId lane) {
  Sequence& sequence = table_.at(lane);
  const std::unique_ptr<Recorder> recorder = MakeRecorder(sequence);
  if (!recorder) {
    return false;
  }
  if (keeps_checkpoints_) {
    recorder->AddCheckpoints(lane, sequence.tokens, sequence.checkpoints);
  } else {
    recorder->Publish(lane, sequence.tokens);
  }
  status_.export_bytes_total += recorder->exported_bytes();
  sequence.recorded = true;
  return true;
}

bool Scheduler::EvictResident(std::optional<LaneId> keep) {
  const std::optional<LaneId> lane = table_.LeastRecentResident(keep);
  if (!lane) {
    return false;
  }
  LogDebug("resident sequence of {} tokens gives way", context_->lanes().Length(*lane));
  if (!table_.at(*lane).recorded) {
    Demote(*lane);
  }
  DropResident(*lane);
  return true;
}

bool Scheduler::MakeRoom(std::size_t cells) {
  while (context_->lanes().cells_free() < cells) {
    if (!EvictResident(std::nullopt)) {
      return false;
    }
  }
  return true;
}

// True when a tier below gives back all rows of the resident.
bool Scheduler::CanComeBack(LaneId lane) {
  const Sequence& sequence = table_.at(lane);
  const std::optional<DomainId> domain = WriteDomain(sequence);
  if (!domain || (!sequence.recorded && !Demote(lane))) {
    return false;
  }
  const TokenCount length = context_->lanes().Length(lane);
  return options_.cache->Peek(*domain, sequence.tokens, length, options_.resume_rule) == length;
}

// What the request is known and likely to compute, before it takes cells: beside sequences that it
// would drive out anyway it would get high ones, and every step would look at the gap below them.
void Scheduler::ChargeRentAhead(Job* job) {
  if (!rent_.is_known() || options_.cache == nullptr) {
    return;
  }
  // What a restore leaves to be computed is charged when it is.
  const TokenCount pending = job->phase == Job::Phase::kRestoring ? 0 : Pending(*job);
  const TokenCount reply = rent_.LikelyReply(job->request.max_tokens);
  job->rent_paid_tokens = pending + reply;
  rent_.AddPrefill(pending);
  rent_.AddDecode(reply);
  CollectRent();
}

// What a step computes beyond what was charged ahead.
void Scheduler::ChargeRent() {
  if (!rent_.is_known() || options_.cache == nullptr) {
    return;
  }
  for (const Share& share : shares_) {
    const TokenCount paid = std::min(share.token_count, share.job->rent_paid_tokens);
    share.job->rent_paid_tokens -= paid;
    if (share.job->prompt_done) {
      rent_.AddDecode(share.token_count - paid);
    } else {
      rent_.AddPrefill(share.token_count - paid);
    }
  }
  CollectRent();
}

void Scheduler::CollectRent() {
  const double due_ms = rent_.TakeDue();
  if (due_ms <= 0) {
    return;
  }
  for (const LaneId lane : table_.InState(SequenceState::kResident)) {
    Sequence& sequence = table_.at(lane);
    sequence.rent_ms += due_ms * context_->lanes().CellShare(lane);
    const TokenCount length = context_->lanes().Length(lane);
    if (sequence.rent_ms < rent_.RestoreMs(length)) {
      continue;
    }
    if (!CanComeBack(lane)) {
      sequence.rent_ms = 0;  // it is asked again later
      continue;
    }
    LogDebug("idle sequence of {} tokens leaves the engine after {:.1f} ms of rent", length,
             sequence.rent_ms);
    DropResident(lane);
    ++status_.idle_sequences_moved_total;
  }
}

void Scheduler::ForgetResidents() {
  for (const LaneId lane : table_.InState(SequenceState::kResident)) {
    DropResident(lane);
  }
  UpdateStatus();
}

}  // namespace skippy
