// What an operator asks for: prune, clear, new limits.
#include <limits>
#include <utility>

#include "base/log.h"
#include "cache/cache_impl.h"

namespace skippy {

Result<std::uint64_t> CacheImpl::Maintain(const std::function<Result<std::uint64_t>()>& job) {
  if (writer_ == nullptr) return 0;
  // What was recorded before the call is subject to it.
  SKIPPY_RETURN_IF_ERROR(Flush());
  Result<std::uint64_t> result = 0;
  if (!writer_->RunBetweenGroups([&] { result = job(); })) {
    return MakeError(ErrorCode::kUnavailable, "the cache is closing");
  }
  return result;
}

Result<std::uint64_t> CacheImpl::Prune(std::uint64_t target_bytes,
                                       std::optional<ModelIdentity> model) {
  return Maintain([&]() -> Result<std::uint64_t> {
    return shared_->has_disk() ? writer_->ShrinkTo(target_bytes, model, RemovalCause::kPrune)
                               : EvictFromRam(target_bytes, model, RemovalCause::kPrune);
  });
}

Result<std::uint64_t> CacheImpl::Clear(std::optional<ModelIdentity> model) {
  return Maintain([&]() -> Result<std::uint64_t> {
    if (!shared_->has_disk()) return EvictFromRam(0, model, RemovalCause::kClear);
    writer_->Evict({.free_bytes = std::numeric_limits<std::uint64_t>::max(),
                    .model = model,
                    .cause = RemovalCause::kClear});
    // What only RAM holds, and copies of what is in use.
    EvictFromRam(0, model, RemovalCause::kClear);
    return writer_->GiveBackSpace(0);
  });
}

std::uint64_t CacheImpl::EvictFromRam(std::uint64_t target_bytes,
                                      const std::optional<ModelIdentity>& model,
                                      RemovalCause cause) {
  MutexLock lock(shared_->mu);
  return shared_->EvictFromRam(target_bytes, model, cause);
}

void CacheImpl::DropRam(const ModelIdentity& model) {
  const Result<std::uint64_t> dropped = Maintain(
      [&]() -> Result<std::uint64_t> { return EvictFromRam(0, model, RemovalCause::kEviction); });
  if (!dropped) LogDebug("cache: RAM goes with the cache: {}", dropped.error().text);
}

Status CacheImpl::SetRamLimit(std::uint64_t budget_bytes) {
  if (writer_ == nullptr) {
    return MakeError(ErrorCode::kUnavailable, "no cache tier was on at start");
  }
  MutexLock lock(shared_->mu);
  shared_->SetRamBudget(budget_bytes);
  return {};
}

Status CacheImpl::SetDiskLimits(std::uint64_t budget_bytes, std::uint64_t minimum_free_bytes) {
  if (!shared_->has_disk()) {
    return MakeError(ErrorCode::kUnavailable, "the disk tier is not active");
  }
  Status status;
  const auto apply = [&] {
    std::uint64_t leftover_bytes = 0;
    std::uint64_t catalog_bytes = 0;
    {
      MutexLock lock(shared_->mu);
      leftover_bytes = shared_->tables.leftover_bytes;
      catalog_bytes = shared_->tables.catalog_bytes;
    }
    auto plan = PlanBudget(
        {.budget_bytes = budget_bytes > leftover_bytes ? budget_bytes - leftover_bytes : 0,
         .pack_bytes = shared_->options.disk.pack_bytes,
         .catalog_bytes = catalog_bytes});
    if (!plan) {
      status = MakeError(ErrorCode::kInvalidArgument, plan.error().text);
      return;
    }
    plan->budget_bytes = budget_bytes;
    shared_->disk.packs->SetLimits(plan->pack_capacity_bytes, minimum_free_bytes);
    {
      MutexLock lock(shared_->mu);
      shared_->tables.plan = *plan;
      shared_->tables.minimum_free_bytes = minimum_free_bytes;
    }
    writer_->EnforceBudget();
  };
  if (!writer_->RunBetweenGroups(apply)) {
    return MakeError(ErrorCode::kUnavailable, "the cache is closing");
  }
  return status;
}

}  // namespace skippy
