// How the one budget of a cache root is split between the catalog and the packs. Pure arithmetic.
#pragma once

#include <cstdint>

#include "skippy/result.h"

namespace skippy {

struct BudgetRequest {
  std::uint64_t budget_bytes = 0;   // physical, whole root
  std::uint64_t pack_bytes = 0;     // 0: chosen by the budget
  std::uint64_t catalog_bytes = 0;  // already taken by the catalog; its allowance is never less
};

struct BudgetPlan {
  std::uint64_t budget_bytes = 0;
  std::uint64_t catalog_allowance_bytes = 0;  // database + 2 x WAL limit
  std::uint64_t wal_limit_bytes = 0;
  std::uint64_t pack_bytes = 0;
  std::uint64_t pack_capacity_bytes = 0;  // a multiple of pack_bytes, at least one pack
};

// kResourceExhausted, with "budget_below_entry_floor" first in the text, when not even one pack
// fits beside the catalog.
Result<BudgetPlan> PlanBudget(const BudgetRequest& request);

// The budget of DiskMode::kAuto. `managed_bytes` are those that the root holds already.
std::uint64_t AutoBudgetBytes(std::uint64_t available_bytes, std::uint64_t managed_bytes,
                              std::uint64_t minimum_free_bytes);

}  // namespace skippy
