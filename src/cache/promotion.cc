#include "cache/promotion.h"

namespace skippy {

void PromotionTable::Erase(SegmentId tip) {
  const auto found = observations_.find(tip);
  if (found == observations_.end()) return;
  by_age_.erase({found->second.time, tip});
  observations_.erase(found);
}

bool PromotionTable::Observe(const Fill& fill, std::chrono::nanoseconds now) {
  while (!by_age_.empty() && by_age_.begin()->first + kWindow < now) Erase(by_age_.begin()->second);
  const bool too_large = fill.byte_count > fill.limit_bytes;
  const auto found = observations_.find(fill.tip);
  if (found != observations_.end()) return !too_large && !found->second.refused;
  if (!too_large && fill.tokens >= kAtOnceTokens) return true;
  observations_.emplace(fill.tip, Observation{.time = now, .refused = too_large});
  by_age_.emplace(now, fill.tip);
  if (observations_.size() > kMaxObservations) Erase(by_age_.begin()->second);
  return false;
}

void PromotionTable::MarkAttempted(SegmentId tip) { Erase(tip); }

}  // namespace skippy
