// Families whose state holds at one position: which states are kept, and going back to them.
#include <set>
#include <utility>

#include "base/log.h"
#include "engine/scheduler.h"

namespace skippy {

bool Scheduler::LoadCheckpoint(LaneId lane, const CheckpointPtr& checkpoint) {
  if (checkpoint == nullptr || checkpoint->position != context_->lanes().Length(lane)) {
    return false;
  }
  const Status loaded = context_->LoadState(lane, checkpoint->bytes);
  if (!loaded) {
    LogWarning("checkpoint: {}", loaded.error().text);
  }
  return loaded.has_value();
}

// Takes one when the lane ends on a rung, or anywhere when it `ends`.
void Scheduler::KeepCheckpoint(LaneId lane, bool ends) {
  Sequence& sequence = table_.at(lane);
  const TokenCount length = context_->lanes().Length(lane);
  if (!keeps_checkpoints_ || !sequence.shareable || length == 0 ||
      sequence.checkpoints.Has(length) || !(ends || sequence.ladder.IsRung(length))) {
    return;
  }
  Result<std::vector<std::byte>> state = context_->SaveState(lane);
  if (!state) {
    LogWarning("checkpoint: {}", state.error().text);
    return;
  }
  sequence.checkpoints.Add(
      std::make_shared<const Checkpoint>(Checkpoint{length, std::move(*state)}));
  TrimCheckpoints(lane);
}

// Gives up checkpoints until all together keep their bound: of idle sequences first, then of
// `keep` itself except for its last one; each time the shallowest.
void Scheduler::TrimCheckpoints(LaneId keep) {
  std::set<const Checkpoint*> seen;
  std::uint64_t byte_count = 0;
  for (int n = 0; n < context_->lanes().lane_count(); ++n) {
    for (const CheckpointPtr& checkpoint : table_.at(NthLane(n)).checkpoints.items()) {
      byte_count += seen.insert(checkpoint.get()).second ? checkpoint->bytes.size() : 0;
    }
  }
  while (byte_count > options_.checkpoint_bytes_max) {
    const std::optional<LaneId> lane = table_.LeastRecentWithCheckpoints(keep);
    CheckpointList& list = table_.at(lane.value_or(keep)).checkpoints;
    if (lane.value_or(keep) == keep && list.items().size() < 2) {
      return;
    }
    const CheckpointPtr dropped = list.items().front();
    list.DropFirst();
    byte_count -= dropped.use_count() == 1 ? dropped->bytes.size() : 0;
  }
}

// A restore that ended between rows and state leaves a lane that nobody can compute on: back to the
// deepest state that is still known.
void Scheduler::FallBack(Job* job) {
  const Sequence& sequence = table_.at(job->lane);
  const CheckpointPtr checkpoint =
      sequence.checkpoints.Deepest(context_->lanes().Length(job->lane));
  const bool good = checkpoint != nullptr && context_->Truncate(job->lane, checkpoint->position) &&
                    (context_->HasState(job->lane) || LoadCheckpoint(job->lane, checkpoint));
  if (!good) {
    context_->Clear(job->lane);
  }
  if (!job->prompt_done) {
    const TokenCount lost = job->timings.cached_l1_tokens - context_->lanes().Length(job->lane);
    job->timings.cached_l1_tokens -= lost;
    status_.cached_l1_tokens_total -= static_cast<std::uint64_t>(lost);
  }
}

}  // namespace skippy
