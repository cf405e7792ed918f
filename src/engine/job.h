// One request inside the engine. Engine thread only, except for the event queue it points to.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/event_queue.h"
#include "engine/lanes.h"
#include "engine/recorder.h"
#include "engine/reply_writer.h"
#include "engine/restorer.h"
#include "engine/sampler.h"

namespace skippy {

using EngineClock = std::chrono::steady_clock;

inline double MillisecondsSince(EngineClock::time_point start) {
  return std::chrono::duration<double, std::milli>(EngineClock::now() - start).count();
}

// CPU time of the calling thread.
double ThreadCpuMs();

struct Job {
  enum class Phase {
    kQueued,
    kRestoring,  // cached rows are on their way into its lane
    kComputing,  // its lane lacks rows for some of its tokens: the prompt's, then one at a time
  };

  // How a reply ended, decided by the step that sampled; the job is finished later in that step.
  struct End {
    FinishReason reason = FinishReason::kStop;
    std::string stop_string;
    std::optional<Error> error;
  };

  GenerateRequest request;
  std::shared_ptr<EventQueue> events;
  std::shared_ptr<void> place;  // its place in the engine's bound, given back with the job
  std::unique_ptr<Sampler> sampler;
  ReplyWriter reply;

  Phase phase = Phase::kQueued;
  std::vector<Token> tokens;  // while queued: prompt and, after a preemption, the reply so far
  LaneId lane = LaneId::kEmpty;
  bool started = false;      // had a lane before
  bool prompt_done = false;  // the rows of the whole prompt existed once
  std::optional<End> end;
  std::unique_ptr<Restorer> restorer;
  std::unique_ptr<Recorder> recorder;

  TokenCount rent_paid_tokens = 0;  // tokens to come for which idle sequences were charged already

  RequestTimings timings;
  EngineClock::time_point submitted = EngineClock::now();
  EngineClock::time_point phase_start = submitted;  // of restore, prefill or decode

  Job(GenerateRequest wanted, std::shared_ptr<EventQueue> queue, ReplyWriter writer)
      : request(std::move(wanted)),
        events(std::move(queue)),
        reply(std::move(writer)),
        tokens(request.prompt) {
    timings.prompt_tokens = static_cast<TokenCount>(request.prompt.size());
  }
};

// Adds the thread's CPU time between construction and destruction to a job.
class CpuCharge {
 public:
  explicit CpuCharge(Job* job) : job_(job), start_ms_(ThreadCpuMs()) {}
  ~CpuCharge() { job_->timings.engine_cpu_ms += ThreadCpuMs() - start_ms_; }
  CpuCharge(const CpuCharge&) = delete;
  CpuCharge& operator=(const CpuCharge&) = delete;

 private:
  Job* const job_;
  const double start_ms_;
};

}  // namespace skippy
