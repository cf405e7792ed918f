// Continuous batching on the engine thread: which requests run, what each step computes, where
// their prefixes come from and what is kept of them.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/cache_domains.h"
#include "engine/cost_model.h"
#include "engine/engine.h"
#include "engine/idle_cost.h"
#include "engine/job.h"
#include "engine/l1_table.h"
#include "engine/llama_context.h"

namespace skippy {

inline constexpr std::uint64_t kDefaultCheckpointBytesMax = 512ULL << 20;

struct SchedulerOptions {
  int lanes = 1;                  // requests computed at the same time
  int residents_max = 0;          // sequences kept after their request
  TokenCount context_tokens = 0;  // prompt and reply of one request
  ResumeRule resume_rule = ResumeRule::kAnyToken;
  Cache* cache = nullptr;                 // null: no restore, no recording; not owned
  const CacheDomains* domains = nullptr;  // not owned, never null
  std::function<void()> wake;             // makes the engine thread call Step soon; any thread
  std::uint64_t checkpoint_bytes_max = kDefaultCheckpointBytesMax;  // of all sequences, in memory
};

// Engine thread only. Owns every job from Enqueue to its kDone event.
class Scheduler {
 public:
  // `context` outlives the scheduler.
  Scheduler(LlamaContext* context, SchedulerOptions options);

  // From now on idle sequences pay for their cells; see IdleRent. Without it they stay until their
  // cells are needed.
  void SetIdleRent(const IdleRent& rent) { rent_ = rent; }
  // What was measured at start; see CostModel.
  void SetPrefillSpeed(double ms_per_token) { costs_.SetPrefill(ms_per_token); }
  void SetDiskSpeed(double ms_per_byte) { costs_.SetDisk(ms_per_byte); }
  void Enqueue(std::unique_ptr<Job> job);
  // One round: cancellations, admissions, imports, one decode, recording. False: nothing can be
  // done before the next wake-up.
  bool Step();
  // Drops the idle sequences, unrecorded ones too.
  void ForgetResidents();
  // Ends every job as cancelled, records what is worth it and clears all lanes.
  void Stop();

  const EngineStatus& status() const { return status_; }
  // The kDone events of the jobs that ended; to be delivered after the status was published, so
  // that a client that saw its end sees it in the status too.
  void DeliverEnds();

 private:
  // A job's part of the batch.
  struct Share {
    Job* job = nullptr;
    TokenCount token_count = 0;
    int logits_index = -1;  // in the batch; -1: none wanted
  };
  using JobPtr = std::unique_ptr<Job>;

  // scheduler.cc: life of a job.
  void DropCancelled();
  void Admit();
  bool Fits(const Job& job, const std::optional<PrefixSource>& source) const;
  bool ShouldWait(const Job& job, TokenCount have);
  std::optional<PrefixSource> FindSource(const Job& job) const;
  void Start(JobPtr job, const std::optional<PrefixSource>& source);
  LaneId TakeLane(std::optional<PrefixSource>* source);
  TokenCount TakePrefix(LaneId lane, const std::optional<PrefixSource>& source,
                        CheckpointList* checkpoints);
  void BeginPrompt(Job* job, TokenCount held);
  void StartRestore(Job* job);
  bool RunRestores();
  void EndRestore(Job* job, Restorer::Outcome outcome);
  void Finish(Job* job, Job::End end);
  void CloseLane(Job* job);
  void PushDone(Job* job, Job::End end);
  std::optional<DomainId> WriteDomain(const Sequence& sequence) const;
  std::unique_ptr<Recorder> MakeRecorder(const Sequence& sequence) const;
  void UpdateStatus();

  // scheduler_residents.cc: what idle sequences cost, and their way into the tiers below.
  void ChargeRentAhead(Job* job);
  void ChargeRent();
  void CollectRent();
  bool CanComeBack(LaneId lane);
  bool RecordResident();
  // Hands a resident that was not recorded yet to the cache; false when it cannot be.
  bool Demote(LaneId lane);
  bool EvictResident(std::optional<LaneId> keep);
  void DropResident(LaneId lane);
  bool MakeRoom(std::size_t cells);

  // scheduler_checkpoints.cc: states that hold at one position.
  bool LoadCheckpoint(LaneId lane, const CheckpointPtr& checkpoint);
  void KeepCheckpoint(LaneId lane, bool ends);
  void TrimCheckpoints(LaneId keep);
  void FallBack(Job* job);

  // scheduler_batch.cc: one step's batch.
  void BuildBatch();
  void AddShare(Job* job, TokenCount token_count);
  std::vector<std::pair<Job*, TokenCount>> SplitPrefill(TokenCount budget) const;
  bool DecodeBatch();
  void FailBatch();
  void ChargeDecode(double cpu_ms);
  void AfterDecode();
  void EndPrompt(Job* job);
  void Sample(Job* job, int logits_index);
  void RecordProgress(Job* job, bool ends);
  bool PreemptYoungest();
  TokenCount Pending(const Job& job) const;  // rows that its lane lacks
  bool IsDecoding(const Job& job) const;

  // Constant after construction.
  LlamaContext* const context_;
  const SchedulerOptions options_;

  const bool keeps_checkpoints_;

  L1Table table_;
  CostModel costs_;
  IdleRent rent_;
  std::deque<JobPtr> queue_;     // first come, first served
  std::vector<JobPtr> running_;  // in order of admission
  std::vector<BatchToken> batch_;
  std::vector<Share> shares_;
  EngineStatus status_;
  std::vector<std::pair<std::shared_ptr<EventQueue>, GenerateEvent>> ends_;
};

}  // namespace skippy
