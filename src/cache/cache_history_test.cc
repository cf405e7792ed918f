// Goal: every hit is legal: the bytes of each row are those that were handed over last for it,
// never older ones that were removed since, whatever else goes on. Method: the same paths are
// recorded again and again with another version of the bytes, by eight threads at random, each the
// only recorder of its domain and a reader of the others', over a store that is much too small and
// whose limits change. A history of all versions that were handed over says what a reader may see.
// Seeds are printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "cache/cache_test_util.h"

namespace skippy {
namespace {

constexpr std::uint32_t kSeed = 20260412;
constexpr std::size_t kThreads = 8;
constexpr int kOperations = 220;

// The rows of a path in one version: the hash of the path, mixed with the version.
std::vector<std::byte> VersionedRows(std::span<const Token> path, TokenCount first, TokenCount end,
                                     std::uint8_t version) {
  auto rows = RowsOf(path, first, end);
  for (std::byte& byte : rows) byte ^= static_cast<std::byte>(version);
  return rows;
}

// Which versions of a row were handed over, in order. A row is known by the hash of the path up to
// it, which is what RowsOf puts first into it.
class ValueHistory {
 public:
  using RowKey = std::uint64_t;

  static std::vector<RowKey> KeysOf(std::span<const Token> path) {
    std::vector<RowKey> keys;
    std::uint64_t hash = 1469598103934665603ULL;
    for (const Token token : path) {
      hash = (hash ^ static_cast<std::uint32_t>(token)) * 1099511628211ULL;
      keys.push_back(hash);
    }
    return keys;
  }
  // Before the rows are handed over.
  void Begin(std::span<const RowKey> keys, std::uint8_t version) {
    MutexLock lock(mu_);
    for (const RowKey key : keys) versions_[key].push_back(version);
  }
  // How much history each row has.
  std::vector<std::size_t> Lengths(std::span<const RowKey> keys) {
    MutexLock lock(mu_);
    std::vector<std::size_t> out;
    for (const RowKey key : keys) out.push_back(versions_[key].size());
    return out;
  }
  // A row is recorded only when the cache lacks it: when a version was begun, those before it were
  // gone. So what a lookup finds is the last one begun before it, or one begun since.
  bool IsLegal(RowKey key, std::size_t length_before, std::uint8_t version) {
    MutexLock lock(mu_);
    const std::vector<std::uint8_t>& all = versions_[key];
    const std::size_t first = length_before == 0 ? 0 : length_before - 1;
    return std::find(all.begin() + static_cast<std::ptrdiff_t>(first), all.end(), version) !=
           all.end();
  }

 private:
  Mutex mu_;
  std::map<RowKey, std::vector<std::uint8_t>> versions_ GUARDED_BY(mu_);
};

struct Tenant {
  DomainSpec spec;
  DomainId domain = DomainId::kNone;
  ValueHistory history;
  std::vector<std::vector<Token>> paths;
};

class CacheHistoryTest : public CacheFixture {
 protected:
  CacheHistoryTest() {
    options_.disk.budget_bytes = 10 * kMiB;
    options_.disk.pack_bytes = 512 * kKiB;
    options_.ram.budget_bytes = 2 * kMiB;
    options_.write_queue_bytes = 4 * kMiB;
    Open();
    for (std::size_t t = 0; t < kThreads; ++t) MakeTenant(t);
  }
  void MakeTenant(std::size_t number) {
    Tenant& tenant = tenants_[number];
    const auto id = static_cast<std::uint8_t>(10 + number);
    tenant.spec = SpecOf(id, id, "");
    tenant.domain = cache_->OpenDomain(tenant.spec).value();
    const auto seed = static_cast<std::uint32_t>(1000 * number);
    const auto head = MakePath(seed, 120);
    for (std::uint32_t i = 1; i <= 6; ++i) {
      const auto tail = MakePath(seed + i, static_cast<TokenCount>(60 + 70 * i));
      tenant.paths.push_back(i % 3 == 0 ? tail : Join(head, tail));
    }
  }

  void RecordVersion(Tenant& tenant, const std::vector<Token>& path, std::uint8_t version) {
    const auto keys = ValueHistory::KeysOf(path);
    const auto tokens = static_cast<TokenCount>(path.size());
    auto recording = cache_->StartRecording(tenant.domain, ResumeRule::kAnyToken);
    while (const auto run = recording->NextRun(path, tokens, /*flush=*/true)) {
      const auto rows =
          VersionedRows(path, run->first_token, run->first_token + run->token_count, version);
      auto buffer = cache_->AcquireBuffer(rows.size());
      if (buffer == nullptr) return;
      std::memcpy(buffer->bytes().data(), rows.data(), rows.size());
      tenant.history.Begin(std::span(keys).subspan(static_cast<std::size_t>(run->first_token),
                                                   static_cast<std::size_t>(run->token_count)),
                           version);
      if (recording->Append(path, *run, std::move(buffer)) != RefusalReason::kNone) return;
    }
    recording->Publish(path, tokens);
  }

  // Returns the tokens found; every row of every segment must be of one legal version.
  TokenCount ReadAndCheck(Tenant& tenant, const std::vector<Token>& path) {
    const auto keys = ValueHistory::KeysOf(path);
    const auto before = tenant.history.Lengths(keys);
    cache_->WarmPath(tenant.domain, path, ResumeRule::kAnyToken);
    PrefixMatch match = cache_->Lookup(tenant.domain, path, static_cast<TokenCount>(path.size()),
                                       ResumeRule::kAnyToken);
    const TokenCount found = match.tokens;
    WakeSignal wake;
    const auto restore = cache_->StartRestore(std::move(match), path, wake.callback());
    for (;;) {
      const int seen = wake.count();
      const skippy::Restore::State state = restore->Poll();
      if (state == skippy::Restore::State::kPending) {
        wake.WaitAfter(seen);
        continue;
      }
      EXPECT_NE(state, skippy::Restore::State::kFailed) << "a leased chain was not served whole";
      if (state != skippy::Restore::State::kReady) return found;
      CheckSegment(tenant, path, before, *restore);
      restore->Pop();
    }
  }
  void CheckSegment(Tenant& tenant, const std::vector<Token>& path,
                    const std::vector<std::size_t>& before, skippy::Restore& restore) {
    const MatchedSegment& segment = restore.segment();
    const TokenCount end = segment.first_token + segment.rows_used;
    const auto plain = RowsOf(path, segment.first_token, end);
    const auto bytes = restore.bytes().first(plain.size());
    const auto version = static_cast<std::uint8_t>(bytes[0] ^ plain[0]);
    const auto expected = VersionedRows(path, segment.first_token, end, version);
    EXPECT_TRUE(std::ranges::equal(bytes, expected)) << "bytes of no version";
    const auto keys = ValueHistory::KeysOf(path);
    for (auto row = static_cast<std::size_t>(segment.first_token);
         row < static_cast<std::size_t>(end); ++row) {
      ASSERT_TRUE(tenant.history.IsLegal(keys[row], before[row], version))
          << "row " << row << " has version " << int{version};
    }
  }

  void Work(std::size_t self, std::uint32_t seed) {
    std::mt19937 random(seed);
    Tenant& own = tenants_[self];
    std::uint8_t version = 0;
    for (int i = 0; i < kOperations && !HasFailure(); ++i) {
      const std::uint32_t dice = random() % 100;
      const std::size_t which = random() % own.paths.size();
      if (dice < 45) {
        RecordVersion(own, own.paths[which], ++version);
      } else if (dice < 65) {
        ReadAndCheck(own, own.paths[which]);
      } else if (dice < 92) {
        Tenant& other = tenants_[random() % kThreads];
        ReadAndCheck(other, other.paths[which]);
      } else if (dice < 96) {
        EXPECT_TRUE(cache_->Clear(own.spec.model));
      } else if (dice < 98) {
        EXPECT_TRUE(cache_->Prune((7 + random() % 3) * kMiB, std::nullopt));
      } else {
        EXPECT_TRUE(cache_->SetDiskLimits((8 + random() % 4) * kMiB, 0));
        EXPECT_TRUE(cache_->SetRamLimit(random() % 3 * kMiB));
      }
    }
  }

  std::array<Tenant, kThreads> tenants_;
};

// Proves E15.
TEST_F(CacheHistoryTest, EveryHitIsOneOfTheLastValuesWritten) {
  std::printf("seed %u\n", kSeed);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] { Work(t, kSeed + static_cast<std::uint32_t>(t)); });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(cache_->Flush());
  const CacheStatus status = cache_->GetStatus();
  EXPECT_EQ(status.disk.quarantined_objects, 0U);
  EXPECT_EQ(status.activity.corrupt_entries, 0U);
  EXPECT_GT(status.activity.hits, 100U);
  EXPECT_GT(status.disk.evicted_manifests, 10U);
  options_.ram.budget_bytes = 0;
  Reopen();
  TokenCount found = 0;
  for (Tenant& tenant : tenants_) {
    tenant.domain = cache_->OpenDomain(tenant.spec).value();
    for (const auto& path : tenant.paths) found += ReadAndCheck(tenant, path);
  }
  EXPECT_GT(found, 0);
  // With one user left, what was cleared is gone.
  for (Tenant& tenant : tenants_) {
    ASSERT_TRUE(cache_->Clear(tenant.spec.model));
    for (const auto& path : tenant.paths) EXPECT_EQ(ReadAndCheck(tenant, path), 0);
  }
  EXPECT_EQ(cache_->GetStatus().disk.unique_segments, 0U) << "something still holds a segment";
}

}  // namespace
}  // namespace skippy
