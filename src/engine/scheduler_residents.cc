// Sequences that stay after their request: when they leave, and that what they hold is not lost.
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

// Before the step is computed, so that a long prefill does not run beside cells that it would have
// paid for.
void Scheduler::ChargeRent() {
  if (!rent_.is_known() || options_.cache == nullptr) {
    return;
  }
  const bool prefills = batch_.size() > shares_.size();
  rent_.AddStep(static_cast<TokenCount>(batch_.size()), prefills);
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
