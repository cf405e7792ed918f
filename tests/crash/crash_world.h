// What a crash test knows about a cache from outside: every path that was ever recorded, the bytes
// that belong to it, and how much of it must survive. Runs a script over a FaultEnv and, at every
// change and every sync of it, checks what a power cut at that moment would leave.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "env/fault_env.h"
#include "skippy/cache.h"

namespace skippy {

struct KnownPath {
  DomainSpec spec;
  ResumeRule rule = ResumeRule::kAnyToken;
  std::vector<Token> tokens;
  std::vector<std::byte> rows;  // of all tokens
  TokenCount kept = 0;          // durable, as far as Flush said so, and not given up since
  bool damaged = false;         // a byte of it was flipped: reading it may fail
};

// How much is checked at each moment.
struct CrashEffort {
  int random_draws = 8;
  bool every_policy = true;  // else one of the others by turns
};

struct CrashCounts {
  std::uint64_t points = 0;  // moments at which the power went
  std::uint64_t images = 0;  // what was found afterwards: points x draws
  std::uint64_t found_tokens = 0;
  std::uint64_t kept_tokens = 0;
  std::uint64_t repaired_images = 0;
};

class CrashWorld {
 public:
  CrashWorld(const CrashEffort& effort, std::uint64_t seed);
  ~CrashWorld();

  // Verbs of a script. Each ends with a Flush, after which what is there counts as kept.
  void Open();
  void CloseCleanly();
  // Records tokens[0, token_count) of a path, all of it new or the rest of it.
  void RecordPath(std::size_t path, TokenCount token_count);
  void RecordCheckpoint(std::size_t path, TokenCount position);
  void Touch(std::size_t path);
  void Prune(std::uint64_t target_bytes);
  // The catalog cannot be written while it runs: what is evicted is forgotten in memory, and its
  // rows and blocks stay until a later commit.
  void PruneWhileTheCatalogFails(std::uint64_t target_bytes);
  void ClearModel(std::uint8_t model);
  void Resize(std::uint64_t budget_bytes);
  // Flips a bit of the row at `position`, then reads the path, which quarantines the segment.
  void Damage(std::size_t path, TokenCount position);

  std::size_t AddPath(const DomainSpec& spec, ResumeRule rule, std::vector<Token> tokens);
  const KnownPath& path(std::size_t index) const { return paths_[index]; }
  TokenCount Found(std::size_t path);
  const CrashCounts& counts() const { return counts_; }

 private:
  struct Expected {
    TokenCount tokens = 0;
    bool may_fail = false;
  };

  void BeginStep(const std::string& name) EXCLUDES(mu_);
  void EndStep() EXCLUDES(mu_);
  void BeforeOperation(const FileOp& op);
  void CheckPoint(bool after_sync);
  std::vector<Expected> ExpectedNow() EXCLUDES(mu_);
  void CheckImage(CrashPolicy policy, std::uint64_t seed, const std::vector<Expected>& expected);
  void CheckPaths(Cache& cache, const std::vector<Expected>& expected);
  void CheckPath(Cache& cache, const KnownPath& path, const Expected& expected);
  void CheckNothingLeaks(Env* env, Cache& cache);
  void CheckStore(Env* env, bool may_be_damaged);
  CacheOptions OptionsFor(std::uint64_t budget_bytes) const;
  DomainId DomainOf(Cache& cache, const KnownPath& path);

  const CrashEffort effort_;
  const std::uint64_t seed_;
  std::unique_ptr<FaultEnv> env_;
  std::unique_ptr<Cache> cache_;
  std::atomic<Cache*> live_{nullptr};        // cache_ while it may be asked
  std::atomic<std::uint64_t> budget_bytes_;  // the largest that holds now
  std::atomic<std::uint64_t> operations_{0};
  std::atomic<bool> synced_since_{true};
  Mutex mu_;
  std::vector<KnownPath> paths_;  // changed between steps only; `kept` and `damaged` under mu_
  std::string step_ GUARDED_BY(mu_);
  Mutex check_mu_;  // one check at a time
  CrashCounts counts_;
};

}  // namespace skippy
