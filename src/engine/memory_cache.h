// A Cache in plain memory for tests of the engine: keeps every segment, restores on command, fails
// where told. Any thread.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "skippy/cache.h"

namespace skippy {

// Test double. Nothing is ever evicted.
class MemoryCache final : public Cache {
 public:
  struct Segment {
    DomainId domain = DomainId::kNone;
    std::vector<Token> path;  // up to and with its last token
    TokenCount first_token = 0;
    std::vector<std::byte> bytes;
    TokenCount row_count() const { return static_cast<TokenCount>(path.size()) - first_token; }
  };

  // Restores hand out nothing from now on, until released.
  void HoldRestores();
  void ReleaseRestores();
  // Waits until a restore was started; false after ten seconds.
  bool WaitForRestore();
  // Every restore fails after that many segments; -1: none.
  void FailRestoresAfter(int segments);
  // Buffers are refused from now on.
  void RefuseBuffers();

  std::size_t segment_count() const;
  int live_restores() const;
  int live_recordings() const;
  std::vector<TokenCount> published() const;

  Result<DomainId> OpenDomain(const DomainSpec& spec) override;
  PrefixMatch Lookup(DomainId domain, std::span<const Token> tokens, TokenCount limit,
                     ResumeRule rule) override;
  TokenCount Peek(DomainId domain, std::span<const Token> tokens, TokenCount limit,
                  ResumeRule rule) override;
  std::unique_ptr<Restore> StartRestore(PrefixMatch match, std::span<const Token> path,
                                        std::function<void()> wake) override;
  std::unique_ptr<Recording> StartRecording(DomainId domain, ResumeRule rule) override;
  std::unique_ptr<Buffer> AcquireBuffer(std::uint64_t byte_count) override;
  Status Flush() override { return {}; }
  Result<std::uint64_t> Prune(std::uint64_t, std::optional<ModelIdentity>) override { return 0; }
  Result<std::uint64_t> Clear(std::optional<ModelIdentity>) override { return 0; }
  Status SetRamLimit(std::uint64_t) override { return {}; }
  void DropRam(const ModelIdentity&) override {}
  Status SetDiskLimits(std::uint64_t, std::uint64_t) override { return {}; }
  CacheStatus GetStatus() override;
  Status Close() override { return {}; }

 private:
  class MemoryRestore;
  class MemoryRecording;

  // Requires mu_. The segments that lead along `tokens`.
  PrefixMatch Find(DomainId domain, std::span<const Token> tokens, TokenCount limit) const;

  mutable std::mutex mu_;
  std::condition_variable restore_started_;
  std::vector<std::unique_ptr<Segment>> segments_;  // id = index + 1
  std::map<std::string, DomainId> domains_;
  std::vector<std::function<void()>> wakes_;
  std::vector<TokenCount> published_;
  bool held_ = false;
  bool refuse_buffers_ = false;
  int fail_after_ = -1;
  int restores_started_ = 0;
  int live_restores_ = 0;
  int live_recordings_ = 0;
};

}  // namespace skippy
