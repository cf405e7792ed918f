#include "bench/store.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "base/wake_signal.h"

namespace skippy::bench {

void FillState(TokenCount first_token, std::span<std::byte> bytes) {
  std::uint64_t word = static_cast<std::uint64_t>(first_token) + 1;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(word)) {
    word = word * 6364136223846793005ULL + 1442695040888963407ULL;
    std::memcpy(bytes.data() + at, &word, std::min(sizeof(word), bytes.size() - at));
  }
}

DomainSpec BenchDomain() {
  DomainSpec spec;
  spec.model.bytes[0] = 1;
  spec.state.bytes[0] = 1;
  spec.model_name = "bench";
  return spec;
}

Result<std::unique_ptr<BenchStore>> BenchStore::Open(const StoreOptions& options) {
  CacheOptions cache_options;
  cache_options.disk = {.mode = DiskMode::kFixed,
                        .directory = options.directory,
                        .budget_bytes = options.budget_bytes,
                        .minimum_free_bytes = kLowestMinimumFreeBytes};
  cache_options.write_queue_bytes = options.write_queue_bytes;
  cache_options.ram.budget_bytes = options.ram_budget_bytes;
  SKIPPY_ASSIGN_OR_RETURN(std::unique_ptr<Cache> cache, Cache::Open(cache_options, options.env));
  const CacheStatus status = cache->GetStatus();
  if (status.disk_state != TierState::kActive) {
    return MakeError(ErrorCode::kUnavailable, "disk tier: " + status.disk_reason);
  }
  SKIPPY_ASSIGN_OR_RETURN(const DomainId domain, cache->OpenDomain(BenchDomain()));
  return std::unique_ptr<BenchStore>(new BenchStore(options, std::move(cache), domain));
}

Status BenchStore::Record(std::span<const Token> path) {
  const auto token_count = static_cast<TokenCount>(path.size());
  const auto recording = cache_->StartRecording(domain_, ResumeRule::kAnyToken);
  while (const auto run = recording->NextRun(path, token_count, /*flush=*/true)) {
    const std::uint64_t byte_count =
        static_cast<std::uint64_t>(run->token_count) * options_.bytes_per_token;
    auto buffer = cache_->AcquireBuffer(byte_count);
    if (buffer == nullptr) {
      SKIPPY_RETURN_IF_ERROR(cache_->Flush());
      buffer = cache_->AcquireBuffer(byte_count);
    }
    if (buffer == nullptr) return MakeError(ErrorCode::kResourceExhausted, "no buffer");
    FillState(run->first_token, buffer->bytes());
    const RefusalReason refusal = recording->Append(path, *run, std::move(buffer));
    if (refusal != RefusalReason::kNone) {
      return MakeError(ErrorCode::kResourceExhausted, std::string(ToString(refusal)));
    }
  }
  recording->Publish(path, token_count);
  return {};
}

Result<TokenCount> BenchStore::RestoreAll(std::span<const Token> path, const Take& take) {
  cache_->WarmPath(domain_, path, ResumeRule::kAnyToken);
  PrefixMatch match =
      cache_->Lookup(domain_, path, static_cast<TokenCount>(path.size()), ResumeRule::kAnyToken);
  const auto wake = std::make_shared<WakeSignal>();
  const auto restore = cache_->StartRestore(std::move(match), path, [wake] { wake->Call(); });
  TokenCount tokens = 0;
  for (;;) {
    const int seen = wake->count();
    switch (restore->Poll()) {
      case Restore::State::kPending:
        wake->WaitAfter(seen);
        break;
      case Restore::State::kReady:
        tokens += restore->segment().rows_used;
        if (take) take(restore->segment(), restore->bytes());
        restore->Pop();
        break;
      case Restore::State::kDone:
        return tokens;
      case Restore::State::kFailed:
        return MakeError(ErrorCode::kIo, "a restore failed");
    }
  }
}

std::vector<Token> SyntheticPath(std::uint64_t seed, TokenCount token_count) {
  std::mt19937_64 random(seed);
  std::vector<Token> path(static_cast<std::size_t>(token_count));
  for (Token& token : path) token = static_cast<Token>(random() % 100000);
  return path;
}

}  // namespace skippy::bench
