#include "engine/memory_cache.h"

#include <algorithm>
#include <chrono>

namespace skippy {
namespace {

class PlainBuffer final : public Buffer {
 public:
  explicit PlainBuffer(std::size_t byte_count) : bytes_(byte_count) {}
  std::span<std::byte> bytes() override { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace

class MemoryCache::MemoryRestore final : public Restore {
 public:
  MemoryRestore(MemoryCache* cache, PrefixMatch match) : cache_(cache), match_(std::move(match)) {}
  ~MemoryRestore() override {
    const std::lock_guard lock(cache_->mu_);
    --cache_->live_restores_;
  }
  State Poll() override {
    const std::lock_guard lock(cache_->mu_);
    if (cache_->fail_after_ >= 0 && next_ >= static_cast<std::size_t>(cache_->fail_after_)) {
      return State::kFailed;
    }
    if (next_ == match_.segments.size()) {
      return State::kDone;
    }
    return cache_->held_ ? State::kPending : State::kReady;
  }
  const MatchedSegment& segment() const override { return match_.segments.at(next_); }
  std::span<const std::byte> bytes() const override {
    const std::lock_guard lock(cache_->mu_);
    return cache_->segments_.at(static_cast<std::size_t>(segment().id) - 1)->bytes;
  }
  void Pop() override { ++next_; }
  std::uint64_t bytes_read() const override { return 0; }

 private:
  MemoryCache* const cache_;
  const PrefixMatch match_;
  std::size_t next_ = 0;
};

class MemoryCache::MemoryRecording final : public Recording {
 public:
  MemoryRecording(MemoryCache* cache, DomainId domain) : cache_(cache), domain_(domain) {}
  ~MemoryRecording() override {
    const std::lock_guard lock(cache_->mu_);
    --cache_->live_recordings_;
  }
  std::optional<Run> NextRun(std::span<const Token> path, TokenCount computed,
                             bool flush) override {
    const std::lock_guard lock(cache_->mu_);
    const TokenCount first = cache_->Find(domain_, path, computed).tokens;
    const TokenCount count = std::min(computed - first, kMaxSegmentTokens);
    if (count == 0 || (count < kMaxSegmentTokens && !flush)) {
      return std::nullopt;
    }
    return Run{first, count};
  }
  RefusalReason Append(std::span<const Token> path, const Run& run,
                       std::unique_ptr<Buffer> bytes) override {
    auto segment = std::make_unique<Segment>();
    segment->domain = domain_;
    segment->first_token = run.first_token;
    segment->path.assign(path.begin(), path.begin() + run.first_token + run.token_count);
    segment->bytes.assign(bytes->bytes().begin(), bytes->bytes().end());
    const std::lock_guard lock(cache_->mu_);
    cache_->segments_.push_back(std::move(segment));
    return RefusalReason::kNone;
  }
  bool WantsCheckpoint(std::span<const Token>, TokenCount) override { return false; }
  RefusalReason AppendCheckpoint(std::span<const Token>, TokenCount,
                                 std::unique_ptr<Buffer>) override {
    return RefusalReason::kDisabled;
  }
  void Publish(std::span<const Token>, TokenCount token_count) override {
    const std::lock_guard lock(cache_->mu_);
    cache_->published_.push_back(token_count);
  }

 private:
  MemoryCache* const cache_;
  const DomainId domain_;
};

PrefixMatch MemoryCache::Find(DomainId domain, std::span<const Token> tokens,
                              TokenCount limit) const {
  PrefixMatch match;
  while (match.tokens < limit) {
    MatchedSegment best;
    for (std::size_t i = 0; i < segments_.size(); ++i) {
      const Segment& segment = *segments_[i];
      if (segment.domain != domain || segment.first_token != match.tokens) {
        continue;
      }
      const auto end = tokens.begin() + limit;
      const auto common = static_cast<TokenCount>(
          std::mismatch(tokens.begin(), end, segment.path.begin(), segment.path.end()).first -
          tokens.begin());
      const TokenCount used = common - segment.first_token;
      if (used > best.rows_used) {
        best = {static_cast<SegmentId>(i + 1), SegmentKind::kRows,   segment.first_token, used,
                segment.row_count(),           segment.bytes.size(), Tier::kDisk};
      }
    }
    if (best.rows_used == 0) {
      break;
    }
    match.tokens += best.rows_used;
    match.byte_count += best.byte_count;
    match.segments.push_back(best);
  }
  return match;
}

void MemoryCache::HoldRestores() {
  const std::lock_guard lock(mu_);
  held_ = true;
}

void MemoryCache::ReleaseRestores() {
  std::vector<std::function<void()>> wakes;
  {
    const std::lock_guard lock(mu_);
    held_ = false;
    wakes = wakes_;
  }
  for (const auto& wake : wakes) {
    wake();
  }
}

bool MemoryCache::WaitForRestore() {
  std::unique_lock lock(mu_);
  return restore_started_.wait_for(lock, std::chrono::seconds(10),
                                   [this] { return restores_started_ > 0; });
}

void MemoryCache::FailRestoresAfter(int segments) {
  const std::lock_guard lock(mu_);
  fail_after_ = segments;
}

void MemoryCache::RefuseBuffers() {
  const std::lock_guard lock(mu_);
  refuse_buffers_ = true;
}

std::size_t MemoryCache::segment_count() const {
  const std::lock_guard lock(mu_);
  return segments_.size();
}

int MemoryCache::live_restores() const {
  const std::lock_guard lock(mu_);
  return live_restores_;
}

int MemoryCache::live_recordings() const {
  const std::lock_guard lock(mu_);
  return live_recordings_;
}

std::vector<TokenCount> MemoryCache::published() const {
  const std::lock_guard lock(mu_);
  return published_;
}

Result<DomainId> MemoryCache::OpenDomain(const DomainSpec& spec) {
  const std::lock_guard lock(mu_);
  const auto next = static_cast<DomainId>(domains_.size() + 1);
  return domains_.try_emplace(spec.state.ToHex() + spec.name_space, next).first->second;
}

PrefixMatch MemoryCache::Lookup(DomainId domain, std::span<const Token> tokens, TokenCount limit,
                                ResumeRule) {
  const std::lock_guard lock(mu_);
  return Find(domain, tokens, limit);
}

TokenCount MemoryCache::Peek(DomainId domain, std::span<const Token> tokens, TokenCount limit,
                             ResumeRule) {
  const std::lock_guard lock(mu_);
  return Find(domain, tokens, limit).tokens;
}

std::unique_ptr<Restore> MemoryCache::StartRestore(PrefixMatch match, std::span<const Token>,
                                                   std::function<void()> wake) {
  {
    const std::lock_guard lock(mu_);
    wakes_.push_back(std::move(wake));
    ++restores_started_;
    ++live_restores_;
  }
  restore_started_.notify_all();
  return std::make_unique<MemoryRestore>(this, std::move(match));
}

std::unique_ptr<Recording> MemoryCache::StartRecording(DomainId domain, ResumeRule) {
  const std::lock_guard lock(mu_);
  ++live_recordings_;
  return std::make_unique<MemoryRecording>(this, domain);
}

std::unique_ptr<Buffer> MemoryCache::AcquireBuffer(std::uint64_t byte_count) {
  const std::lock_guard lock(mu_);
  return refuse_buffers_ ? nullptr : std::make_unique<PlainBuffer>(byte_count);
}

CacheStatus MemoryCache::GetStatus() {
  CacheStatus status;
  status.disk_state = TierState::kActive;
  return status;
}

}  // namespace skippy
