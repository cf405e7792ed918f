// Whether a prefix is restored or computed again, by what both took lately.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "skippy/ids.h"

namespace skippy {

// Leans towards restoring: it believes the fastest of the last restores and the slowest of the last
// prefills, and wants a clear gain. So one hiccup of a disk changes nothing, a slow disk does.
// Engine thread. Times are what a request waits, whatever else runs.
class CostModel {
 public:
  // A prompt of which so many tokens were computed, up to its first sampled token.
  void AddPrefill(TokenCount token_count, double ms);
  // A whole restore.
  void AddRestore(std::uint64_t byte_count, double ms);

  // What was measured at start: it counts until requests have shown something else.
  void SetPrefill(double ms_per_token) { start_prefill_ms_per_token_ = ms_per_token; }
  void SetDisk(double ms_per_byte) { start_disk_ms_per_byte_ = ms_per_byte; }

  // `disk_bytes` of `byte_count` lie on disk. True while one of the two is not known well enough.
  // One in kTryEvery refusals is none, so that a disk that became faster is noticed.
  bool ShouldRestore(TokenCount token_count, std::uint64_t byte_count, std::uint64_t disk_bytes);

  static constexpr int kTryEvery = 16;

 private:
  std::optional<double> PrefillMsPerToken() const;
  std::optional<double> RestoreMs(std::uint64_t byte_count, std::uint64_t disk_bytes) const;

  double start_prefill_ms_per_token_ = 0;  // 0: not measured
  double start_disk_ms_per_byte_ = 0;
  std::deque<double> prefill_ms_per_token_;
  std::deque<double> restore_ms_per_byte_;
  int refusals_ = 0;
};

}  // namespace skippy
