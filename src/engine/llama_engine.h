// The Engine on llama.cpp: owns the engine thread and the thread that computes the identity.
#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "engine/cache_domains.h"
#include "engine/engine.h"
#include "engine/job.h"
#include "engine/llama_loader.h"
#include "engine/scheduler.h"

namespace skippy {

// Wakes the engine thread; outlives the engine where a cache thread or a client still holds it.
class EngineWaker {
 public:
  void Wake();
  // Returns at once when Wake was called since the last Wait.
  void Wait();

 private:
  Mutex mu_;
  CondVar changed_;
  bool woken_ GUARDED_BY(mu_) = false;
};

class LlamaEngine final : public Engine {
 public:
  LlamaEngine(LoadedLlama loaded, std::unique_ptr<ChatFormat> chat, const EngineOptions& options,
              Cache* cache, Env* env);
  ~LlamaEngine() override;

  const ModelInfo Info() const override;
  const ChatFormat& chat() const override { return *chat_; }
  Result<std::unique_ptr<Generation>> Submit(GenerateRequest request) override;
  EngineStatus GetStatus() const override;
  PrefixHistory FindHistory(const std::string& name_space,
                            std::span<const Token> prompt) const override;
  void ForgetResidents() override;
  void Stop() override;
  // Blocks until the engine thread has computed its first token, which it does before it takes a
  // request; the error of that. To be called once.
  Status WaitUntilWarm();

 private:
  Status CheckRequest(const GenerateRequest& request) const;
  Result<std::shared_ptr<void>> TakePlace();
  void RunEngine();
  void MeasureIdleRent();
  bool TakeInbox();
  void PublishStatus();
  void ComputeIdentity();
  Status FindIdentity();

  // Constant after construction.
  const LoadedLlama loaded_;
  const std::unique_ptr<ChatFormat> chat_;
  const EngineOptions options_;
  Cache* const cache_;  // null: none
  Env* const env_;

  // Self-synchronised.
  CacheDomains domains_;
  const std::shared_ptr<EngineWaker> waker_ = std::make_shared<EngineWaker>();
  const std::shared_ptr<std::atomic<int>> places_ = std::make_shared<std::atomic<int>>(0);
  std::atomic<bool> cancel_digest_ = false;
  std::promise<Status> warmed_;

  Scheduler scheduler_;  // of the engine thread once it runs

  mutable Mutex mu_;
  bool stopping_ GUARDED_BY(mu_) = false;
  double disk_ms_per_byte_ GUARDED_BY(mu_) = 0;  // 0: not measured
  std::vector<std::unique_ptr<Job>> inbox_ GUARDED_BY(mu_);
  std::uint64_t forgets_wanted_ GUARDED_BY(mu_) = 0;
  std::uint64_t forgets_done_ GUARDED_BY(mu_) = 0;
  CondVar forgotten_;
  EngineStatus status_ GUARDED_BY(mu_);
  ModelInfo info_ GUARDED_BY(mu_);

  Mutex stop_mu_;  // serialises Stop
  std::thread engine_thread_ GUARDED_BY(stop_mu_);
  std::thread identity_thread_ GUARDED_BY(stop_mu_);
};

}  // namespace skippy
