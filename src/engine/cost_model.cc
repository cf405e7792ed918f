#include "engine/cost_model.h"

#include <algorithm>

namespace skippy {
namespace {

constexpr std::size_t kObservations = 8;
// Before anything is declined so many restores must have been slow.
constexpr std::size_t kRestoresNeeded = 2;
// Shorter prefills say little: a step costs something whatever its size.
constexpr TokenCount kTokensOfAPrefill = 64;
// Computing must be so much faster: what is computed again also slows others.
constexpr double kFactor = 1.5;
constexpr double kMarginMs = 100;

void Remember(std::deque<double>* values, double value) {
  values->push_back(value);
  if (values->size() > kObservations) {
    values->pop_front();
  }
}

}  // namespace

void CostModel::AddPrefill(TokenCount token_count, double ms) {
  if (token_count >= kTokensOfAPrefill) {
    Remember(&prefill_ms_per_token_, ms / token_count);
  }
}

void CostModel::AddRestore(std::uint64_t byte_count, double ms) {
  if (byte_count > 0) {
    Remember(&restore_ms_per_byte_, ms / static_cast<double>(byte_count));
  }
}

std::optional<double> CostModel::PrefillMsPerToken() const {
  if (!prefill_ms_per_token_.empty()) {
    return *std::max_element(prefill_ms_per_token_.begin(), prefill_ms_per_token_.end());
  }
  return start_prefill_ms_per_token_ > 0 ? std::optional(start_prefill_ms_per_token_)
                                         : std::nullopt;
}

std::optional<double> CostModel::RestoreMs(std::uint64_t byte_count,
                                           std::uint64_t disk_bytes) const {
  if (restore_ms_per_byte_.size() >= kRestoresNeeded) {
    return *std::min_element(restore_ms_per_byte_.begin(), restore_ms_per_byte_.end()) *
           static_cast<double>(byte_count);
  }
  // One restore may have had a hiccup, and RAM needs no measurement.
  return restore_ms_per_byte_.empty() && start_disk_ms_per_byte_ > 0
             ? std::optional(start_disk_ms_per_byte_ * static_cast<double>(disk_bytes))
             : std::nullopt;
}

bool CostModel::ShouldRestore(TokenCount token_count, std::uint64_t byte_count,
                              std::uint64_t disk_bytes) {
  const std::optional<double> prefill_ms = PrefillMsPerToken();
  const std::optional<double> restore_ms = RestoreMs(byte_count, disk_bytes);
  if (!prefill_ms || !restore_ms ||
      *restore_ms <= *prefill_ms * token_count * kFactor + kMarginMs) {
    return true;
  }
  return ++refusals_ % kTryEvery == 0;
}

}  // namespace skippy
