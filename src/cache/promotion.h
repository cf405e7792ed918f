// Which restores from disk are worth a place in RAM: what is read a second time within ten minutes,
// and at once what is long. Pure bookkeeping, bounded, without clock or lock.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "skippy/ids.h"

namespace skippy {

class PromotionTable {
 public:
  static constexpr std::chrono::nanoseconds kWindow = std::chrono::minutes(10);
  static constexpr TokenCount kAtOnceTokens = 4096;
  static constexpr std::size_t kMaxObservations = 4096;

  // One restore that has to read from the disk.
  struct Fill {
    SegmentId tip = SegmentId::kNone;  // the last segment that it reads
    TokenCount tokens = 0;             // of the whole prefix
    std::uint64_t byte_count = 0;      // that it reads
    std::uint64_t limit_bytes = 0;     // more than that is never promoted
  };

  // Whether to promote it. What was seen once stays known for the window, what should be promoted
  // until it was attempted, what is too large as refused; the oldest give way.
  bool Observe(const Fill& fill, std::chrono::nanoseconds now);
  void MarkAttempted(SegmentId tip);

  std::size_t size() const { return observations_.size(); }

 private:
  struct Observation {
    std::chrono::nanoseconds time{};
    bool refused = false;
  };
  void Erase(SegmentId tip);

  std::map<SegmentId, Observation> observations_;
  std::set<std::pair<std::chrono::nanoseconds, SegmentId>> by_age_;
};

}  // namespace skippy
