#include "cache/budget.h"

#include <algorithm>
#include <bit>
#include <string>

#include "skippy/options.h"

namespace skippy {
namespace {

constexpr std::uint64_t kDefaultPackBytes = 256 * kMiB;
constexpr std::uint64_t kSmallestPackBytes = 4 * kMiB;
constexpr std::uint64_t kWantedPackCount = 8;
// A row of 256 tokens takes about 2 KiB; a segment of the smallest models about 128 KiB.
constexpr std::uint64_t kCatalogShare = 64;
constexpr std::uint64_t kSmallestCatalogBytes = 4 * kMiB;
constexpr std::uint64_t kLargestCatalogBytes = kGiB;
// Lock file, directories, and what the file system adds to a preallocated file.
constexpr std::uint64_t kRootOverheadBytes = 64 * kKiB;

std::uint64_t DefaultPackBytes(std::uint64_t room_bytes) {
  const std::uint64_t wanted = std::min(kDefaultPackBytes, room_bytes / kWantedPackCount);
  return std::max(kSmallestPackBytes, std::bit_floor(wanted));
}

}  // namespace

Result<BudgetPlan> PlanBudget(const BudgetRequest& request) {
  BudgetPlan plan;
  plan.budget_bytes = request.budget_bytes;
  const std::uint64_t share =
      std::clamp(request.budget_bytes / kCatalogShare, kSmallestCatalogBytes, kLargestCatalogBytes);
  plan.catalog_allowance_bytes = std::max(share, request.catalog_bytes);
  plan.wal_limit_bytes = share / 8;
  const std::uint64_t fixed = plan.catalog_allowance_bytes + kRootOverheadBytes;
  const std::uint64_t room = request.budget_bytes > fixed ? request.budget_bytes - fixed : 0;
  plan.pack_bytes = request.pack_bytes != 0 ? request.pack_bytes : DefaultPackBytes(room);
  plan.pack_capacity_bytes = room / plan.pack_bytes * plan.pack_bytes;
  if (plan.pack_capacity_bytes == 0) {
    return MakeError(ErrorCode::kResourceExhausted,
                     "budget_below_entry_floor: " + std::to_string(request.budget_bytes) +
                         " bytes, at least " + std::to_string(fixed + plan.pack_bytes) +
                         " are needed");
  }
  return plan;
}

std::uint64_t AutoBudgetBytes(std::uint64_t available_bytes, std::uint64_t managed_bytes,
                              std::uint64_t minimum_free_bytes) {
  const std::uint64_t fifth = (available_bytes + managed_bytes) / 5;
  const std::uint64_t spare =
      available_bytes > minimum_free_bytes ? available_bytes - minimum_free_bytes : 0;
  return std::min({fifth, spare + managed_bytes, kAutoBudgetCeilingBytes});
}

}  // namespace skippy
