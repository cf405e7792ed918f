// The facade: puts the parts together, holds no state of its own.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cache/restore.h"
#include "cache/shared_state.h"
#include "cache/writer.h"
#include "skippy/cache.h"

namespace skippy {

class CacheImpl final : public Cache {
 public:
  CacheImpl(const CacheOptions& options, Env* env);
  ~CacheImpl() override;

  // Opens the tiers; one that cannot be opened is off, and status says why.
  void Start();

  Result<DomainId> OpenDomain(const DomainSpec& spec) override;
  void WarmPath(DomainId domain, std::span<const Token> tokens, ResumeRule rule) override;
  PrefixMatch Lookup(DomainId domain, std::span<const Token> tokens, TokenCount limit,
                     ResumeRule rule) override;
  TokenCount Peek(DomainId domain, std::span<const Token> tokens, TokenCount limit,
                  ResumeRule rule) override;
  std::optional<RemovedPrefix> FindRemoved(DomainId domain, std::span<const Token> tokens) override;
  std::unique_ptr<Restore> StartRestore(PrefixMatch match, std::span<const Token> path,
                                        std::function<void()> wake) override;
  std::unique_ptr<Recording> StartRecording(DomainId domain, ResumeRule rule) override;
  std::unique_ptr<Buffer> AcquireBuffer(std::uint64_t byte_count) override;
  Status Flush() override;
  Result<std::uint64_t> Prune(std::uint64_t target_bytes,
                              std::optional<ModelIdentity> model) override;
  Result<std::uint64_t> Clear(std::optional<ModelIdentity> model) override;
  Status SetRamLimit(std::uint64_t budget_bytes) override;
  void DropRam(const ModelIdentity& model) override;
  Status SetDiskLimits(std::uint64_t budget_bytes, std::uint64_t minimum_free_bytes) override;
  std::optional<DiskProbe> ProbeDisk() override;
  CacheStatus GetStatus() override;
  Status Close() override;

 private:
  PrefixMatch MatchOf(const PathMatch& found) const REQUIRES(shared_->mu);
  // Runs `job` while nothing is written.
  Result<std::uint64_t> Maintain(const std::function<Result<std::uint64_t>()>& job);
  // Every prefix, in slices: the inventory, and the footprint of those whose end is in RAM.
  void CollectInventory(CacheStatus* status) EXCLUDES(shared_->mu);
  void CollectRam(RamUsage* ram) EXCLUDES(shared_->mu);
  std::uint64_t EvictFromRam(std::uint64_t target_bytes, const std::optional<ModelIdentity>& model,
                             RemovalCause cause) EXCLUDES(shared_->mu);

  const std::shared_ptr<SharedState> shared_;
  const std::shared_ptr<ReadThreads> read_threads_;
  std::unique_ptr<Writer> writer_;  // null without a tier
  Mutex close_mu_;
  bool closed_ GUARDED_BY(close_mu_) = false;
};

}  // namespace skippy
