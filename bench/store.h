// A cache over a real directory, filled with payload that costs nothing to make: for the benches of
// the disk tier.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "skippy/cache.h"

namespace skippy::bench {

struct StoreOptions {
  std::string directory;
  std::uint64_t budget_bytes = 0;
  std::uint64_t bytes_per_token = 0;
  std::uint64_t write_queue_bytes = 1 * kGiB;
  std::uint64_t ram_budget_bytes = 0;
  Env* env = Env::Posix();
};

class BenchStore {
 public:
  static Result<std::unique_ptr<BenchStore>> Open(const StoreOptions& options);

  // Records the path up to its end and publishes it. A full queue is waited for.
  Status Record(std::span<const Token> path);
  // Restores all that is found; returns the tokens. `take` sees each segment and its bytes.
  using Take = std::function<void(const MatchedSegment&, std::span<const std::byte>)>;
  Result<TokenCount> RestoreAll(std::span<const Token> path, const Take& take = {});
  Cache& cache() { return *cache_; }
  DomainId domain() const { return domain_; }

 private:
  BenchStore(const StoreOptions& options, std::unique_ptr<Cache> cache, DomainId domain)
      : options_(options), cache_(std::move(cache)), domain_(domain) {}

  const StoreOptions options_;
  const std::unique_ptr<Cache> cache_;
  const DomainId domain_;
};

// The one domain of a BenchStore.
DomainSpec BenchDomain();
// The state that Record writes for the segment that begins at `first_token`; of one path, no two
// are the same.
void FillState(TokenCount first_token, std::span<std::byte> bytes);
// Tokens that are a function of the seed.
std::vector<Token> SyntheticPath(std::uint64_t seed, TokenCount token_count);

}  // namespace skippy::bench
