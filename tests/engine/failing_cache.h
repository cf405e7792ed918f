// A cache whose restores end early, like those of a disk that loses bytes, or begin late, like
// those of a slow one.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "skippy/cache.h"

namespace skippy {

// Passes everything on. Not owned: outlives it.
class FailingCache final : public Cache {
 public:
  explicit FailingCache(Cache* inner) : inner_(inner) {}

  // Restores that start from now on fail after that many pieces; negative: they do not.
  void FailAfter(int pieces) { fail_after_ = pieces; }
  // Restores that start from now on hand out the first half of each piece: bytes that pass every
  // check and are not what the engine wrote.
  void Truncate(bool truncates) { truncates_ = truncates; }
  // Restores that start from now on hand nothing out before that time.
  void Delay(std::chrono::milliseconds delay) { delay_ = delay; }

  Result<DomainId> OpenDomain(const DomainSpec& spec) override { return inner_->OpenDomain(spec); }
  void WarmPath(DomainId domain, std::span<const Token> tokens, ResumeRule rule) override {
    inner_->WarmPath(domain, tokens, rule);
  }
  PrefixMatch Lookup(DomainId domain, std::span<const Token> tokens, TokenCount limit,
                     ResumeRule rule) override {
    return inner_->Lookup(domain, tokens, limit, rule);
  }
  TokenCount Peek(DomainId domain, std::span<const Token> tokens, TokenCount limit,
                  ResumeRule rule) override {
    return inner_->Peek(domain, tokens, limit, rule);
  }
  std::optional<RemovedPrefix> FindRemoved(DomainId domain,
                                           std::span<const Token> tokens) override {
    return inner_->FindRemoved(domain, tokens);
  }
  std::unique_ptr<Restore> StartRestore(PrefixMatch match, std::span<const Token> path,
                                        std::function<void()> wake) override {
    auto restore = inner_->StartRestore(std::move(match), path, wake);
    return std::make_unique<EndingRestore>(std::move(restore), fail_after_, delay_, std::move(wake),
                                           truncates_);
  }
  std::unique_ptr<Recording> StartRecording(DomainId domain, ResumeRule rule) override {
    return inner_->StartRecording(domain, rule);
  }
  std::unique_ptr<Buffer> AcquireBuffer(std::uint64_t byte_count) override {
    return inner_->AcquireBuffer(byte_count);
  }
  Status Flush() override { return inner_->Flush(); }
  Result<std::uint64_t> Prune(std::uint64_t target_bytes,
                              std::optional<ModelIdentity> model) override {
    return inner_->Prune(target_bytes, model);
  }
  Result<std::uint64_t> Clear(std::optional<ModelIdentity> model) override {
    return inner_->Clear(model);
  }
  Status SetRamLimit(std::uint64_t budget_bytes) override {
    return inner_->SetRamLimit(budget_bytes);
  }
  void DropRam(const ModelIdentity& model) override { inner_->DropRam(model); }
  Status SetDiskLimits(std::uint64_t budget_bytes, std::uint64_t minimum_free_bytes) override {
    return inner_->SetDiskLimits(budget_bytes, minimum_free_bytes);
  }
  std::optional<DiskProbe> ProbeDisk() override { return inner_->ProbeDisk(); }
  CacheStatus GetStatus() override { return inner_->GetStatus(); }
  Status Close() override { return inner_->Close(); }

 private:
  class EndingRestore final : public Restore {
   public:
    EndingRestore(std::unique_ptr<Restore> inner, int fail_after, std::chrono::milliseconds delay,
                  std::function<void()> wake, bool truncates)
        : inner_(std::move(inner)), left_(fail_after), truncates_(truncates) {
      if (delay.count() > 0) {
        begun_ = false;
        timer_ = std::thread([this, delay, wake = std::move(wake)] {
          WaitFor(delay);
          begun_ = true;
          wake();
        });
      }
    }
    ~EndingRestore() override {
      {
        MutexLock lock(mu_);
        ends_ = true;
      }
      changed_.NotifyAll();
      if (timer_.joinable()) {
        timer_.join();
      }
    }
    State Poll() override {
      if (!begun_) {
        return State::kPending;
      }
      return left_ == 0 ? State::kFailed : inner_->Poll();
    }
    const MatchedSegment& segment() const override { return inner_->segment(); }
    std::span<const std::byte> bytes() const override {
      const std::span<const std::byte> bytes = inner_->bytes();
      return truncates_ ? bytes.first(bytes.size() / 2) : bytes;
    }
    void Reject() override { inner_->Reject(); }
    void Pop() override {
      --left_;
      inner_->Pop();
    }
    std::uint64_t bytes_read() const override { return inner_->bytes_read(); }

   private:
    void WaitFor(std::chrono::milliseconds delay) {
      const auto end = std::chrono::steady_clock::now() + delay;
      MutexLock lock(mu_);
      while (!ends_ && std::chrono::steady_clock::now() < end) {
        changed_.WaitFor(mu_, end - std::chrono::steady_clock::now());
      }
    }

    const std::unique_ptr<Restore> inner_;
    int left_;
    const bool truncates_;
    std::atomic<bool> begun_ = true;
    Mutex mu_;
    CondVar changed_;
    bool ends_ GUARDED_BY(mu_) = false;
    std::thread timer_;
  };

  Cache* const inner_;
  int fail_after_ = -1;
  bool truncates_ = false;
  std::chrono::milliseconds delay_{0};
};

}  // namespace skippy
