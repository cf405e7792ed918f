// Test support: a cache over a chosen Env, and payloads whose every byte is a function of the path
// up to its row, so that a wrong byte, row or path shows.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/wake_signal.h"
#include "env/fault_env.h"
#include "skippy/cache.h"

namespace skippy {

inline constexpr std::size_t kTestRowBytes = 512;

inline std::vector<Token> MakePath(std::uint32_t seed, TokenCount count) {
  std::vector<Token> path;
  std::uint32_t state = seed * 2654435761U + 1;
  for (TokenCount i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    path.push_back(static_cast<Token>(state >> 12));
  }
  return path;
}

inline std::vector<Token> Join(std::vector<Token> head, const std::vector<Token>& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

// The rows [first, end) of a path, as an engine would export them.
inline std::vector<std::byte> RowsOf(std::span<const Token> path, TokenCount first,
                                     TokenCount end) {
  std::vector<std::byte> out;
  std::uint64_t hash = 1469598103934665603ULL;
  for (TokenCount i = 0; i < end; ++i) {
    hash =
        (hash ^ static_cast<std::uint32_t>(path[static_cast<std::size_t>(i)])) * 1099511628211ULL;
    if (i < first) continue;
    std::uint64_t word = hash;
    for (std::size_t byte = 0; byte < kTestRowBytes; byte += sizeof(word)) {
      word = word * 6364136223846793005ULL + 1442695040888963407ULL;
      const auto* raw = reinterpret_cast<const std::byte*>(&word);
      out.insert(out.end(), raw, raw + sizeof(word));
    }
  }
  return out;
}

inline DomainSpec SpecOf(std::uint8_t model, std::uint8_t state, const std::string& name_space) {
  DomainSpec spec;
  spec.model.bytes[0] = model;
  spec.state.bytes[0] = state;
  spec.name_space = name_space;
  spec.model_name = "model-" + std::to_string(model);
  return spec;
}

struct Restored {
  TokenCount tokens = 0;  // rows handed out and found right
  bool failed = false;    // ended early
  bool wrong_byte = false;
  std::uint64_t bytes_read = 0;
};

// Imports a match as an engine would and compares every row with RowsOf.
inline Restored RestoreAndCheck(Cache& cache, PrefixMatch match, std::span<const Token> path) {
  Restored out;
  WakeSignal wake;
  auto restore = cache.StartRestore(std::move(match), path, wake.callback());
  for (;;) {
    const int seen = wake.count();
    const Restore::State state = restore->Poll();
    if (state == Restore::State::kPending) {
      wake.WaitAfter(seen);
      continue;
    }
    if (state != Restore::State::kReady) {
      out.failed = state == Restore::State::kFailed;
      break;
    }
    const MatchedSegment& segment = restore->segment();
    const TokenCount end = segment.first_token + segment.rows_used;
    const auto expected = RowsOf(path, segment.first_token, end);
    const auto bytes = restore->bytes();
    const bool right = segment.first_token == out.tokens && bytes.size() >= expected.size() &&
                       std::memcmp(bytes.data(), expected.data(), expected.size()) == 0;
    if (!right) {
      out.wrong_byte = true;
      break;
    }
    out.tokens = end;
    restore->Pop();
  }
  out.bytes_read = restore->bytes_read();
  return out;
}

// What an engine does with the rows [0, path.size()); stops at the first refusal.
inline RefusalReason RecordInto(Cache& cache, Recording& recording, std::span<const Token> path) {
  const auto tokens = static_cast<TokenCount>(path.size());
  while (const auto run = recording.NextRun(path, tokens, /*flush=*/true)) {
    const TokenCount end = run->first_token + run->token_count;
    const auto rows = RowsOf(path, run->first_token, end);
    auto buffer = cache.AcquireBuffer(rows.size());
    if (buffer == nullptr) return RefusalReason::kQueueFull;
    std::memcpy(buffer->bytes().data(), rows.data(), rows.size());
    const RefusalReason refusal = recording.Append(path, *run, std::move(buffer));
    if (refusal != RefusalReason::kNone) return refusal;
  }
  return RefusalReason::kNone;
}

inline RefusalReason Record(Cache& cache, DomainId domain, std::span<const Token> path) {
  auto recording = cache.StartRecording(domain, ResumeRule::kAnyToken);
  const RefusalReason refusal = RecordInto(cache, *recording, path);
  recording->Publish(path, static_cast<TokenCount>(path.size()));
  return refusal;
}

// A cache with a disk tier in an Env of the test's choice.
class CacheFixture : public testing::Test {
 protected:
  CacheFixture() {
    MakeFileSystem();
    options_.disk = {.mode = DiskMode::kFixed,
                     .directory = "/cache/root",
                     .budget_bytes = 64 * kMiB,
                     .minimum_free_bytes = 0,
                     .pack_bytes = kMiB};
  }

  void MakeFileSystem() {
    fault_env_ = std::make_unique<FaultEnv>();
    fault_env_->CreateDirectories("/cache");
    ASSERT_TRUE(fault_env_->SyncDirectory("/"));
    env_ = fault_env_.get();
  }
  void Open() {
    cache_.reset();
    auto opened = Cache::Open(options_, env_);
    ASSERT_TRUE(opened) << opened.error().text;
    cache_ = std::move(*opened);
    if (auto domain = cache_->OpenDomain(SpecOf(1, 1, ""))) domain_ = *domain;
  }
  void Reopen() { Open(); }
  void RecordDurably(std::span<const Token> path) {
    ASSERT_EQ(Record(*cache_, domain_, path), RefusalReason::kNone);
    ASSERT_TRUE(cache_->Flush());
  }
  // The writer may refuse the first part before the second is handed over.
  void RecordInVain(std::span<const Token> path) {
    Record(*cache_, domain_, path);
    ASSERT_TRUE(cache_->Flush());
  }
  PrefixMatch Lookup(std::span<const Token> path) {
    cache_->WarmPath(domain_, path, ResumeRule::kAnyToken);
    return cache_->Lookup(domain_, path, static_cast<TokenCount>(path.size()),
                          ResumeRule::kAnyToken);
  }
  TokenCount Found(std::span<const Token> path) {
    cache_->WarmPath(domain_, path, ResumeRule::kAnyToken);
    return cache_->Peek(domain_, path, static_cast<TokenCount>(path.size()), ResumeRule::kAnyToken);
  }
  Restored Restore(std::span<const Token> path) {
    return RestoreAndCheck(*cache_, Lookup(path), path);
  }
  // Every byte right, and all of them there.
  void ExpectRestores(std::span<const Token> path, TokenCount tokens) {
    const Restored restored = Restore(path);
    EXPECT_FALSE(restored.wrong_byte);
    EXPECT_FALSE(restored.failed);
    EXPECT_EQ(restored.tokens, tokens);
  }
  // What the next start finds after the power went now.
  void CrashAndOpen(CrashPolicy policy, std::uint64_t seed) {
    auto after = fault_env_->AfterCrash(policy, seed);
    cache_.reset();
    fault_env_ = std::move(after);
    env_ = fault_env_.get();
    Open();
  }
  // Physical bytes of all files under the root.
  std::uint64_t PhysicalBytes() {
    std::uint64_t total = 0;
    for (const std::string& directory :
         {options_.disk.directory, options_.disk.directory + "/packs"}) {
      const auto names = env_->ListDirectory(directory);
      if (!names) continue;
      for (const std::string& name : *names) {
        const auto info = env_->Stat(directory + "/" + name);
        if (info && info->kind == FileKind::kRegular) total += info->allocated_bytes;
      }
    }
    return total;
  }

  std::unique_ptr<FaultEnv> fault_env_;
  Env* env_ = nullptr;
  CacheOptions options_;
  std::unique_ptr<Cache> cache_;
  DomainId domain_ = DomainId::kNone;
};

}  // namespace skippy
