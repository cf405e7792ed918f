#include "ram/ram_pool.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/mutex.h"

namespace skippy {
namespace {

using DigestSet = std::unordered_set<SegmentDigest, LeadingBytesHash>;

// Bytes of removed entries that readers still hold. Outlives the pool through the layouts.
using DetachedBytes = std::shared_ptr<std::atomic<std::uint64_t>>;

// A layout as readers hold it. `detached` is set, under the pool's lock, when its entry is removed
// while a reader holds it.
struct HeldLayout {
  explicit HeldLayout(DetachedBytes counter) : detached_total(std::move(counter)) {}
  ~HeldLayout() {
    layout.segments.clear();  // the memory goes before the account says so
    detached_total->fetch_sub(detached.load());
  }
  HeldLayout(const HeldLayout&) = delete;
  HeldLayout& operator=(const HeldLayout&) = delete;

  RamLayout layout;
  std::atomic<std::uint64_t> detached{0};
  DetachedBytes detached_total;
};

struct PooledSegment {
  RamHandle handle;
  std::set<RamKey> referrers;  // ordered: the lowest key owns the charge
};

struct Entry {
  std::shared_ptr<HeldLayout> held;
  std::vector<SegmentDigest> distinct;  // each digest of the layout once
  std::uint64_t charge_bytes = 0;
  std::list<RamKey>::iterator recency;
};

RamRefusal CheckGeometry(const RamLayout& layout) {
  if (layout.segments.empty() || layout.total_bytes == 0) {
    return RamRefusal::kEmptyPayload;
  }
  switch (layout.kind) {
    case RamPayloadKind::kRows:
    case RamPayloadKind::kCheckpoint:
    case RamPayloadKind::kRowsAndCheckpoint:
      break;
    default:
      return RamRefusal::kUnknownPayloadKind;
  }
  if (layout.rows_bytes > layout.total_bytes ||
      layout.checkpoint_bytes != layout.total_bytes - layout.rows_bytes) {
    return RamRefusal::kMalformedLayout;
  }
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < layout.segments.size(); ++i) {
    const RamLayoutSegment& segment = layout.segments[i];
    const std::uint64_t byte_count = segment.handle.bytes.size();
    if (segment.index != i || segment.offset != offset || byte_count == 0 ||
        segment.handle.bytes.data() == nullptr || byte_count > layout.total_bytes - offset) {
      return RamRefusal::kMalformedLayout;
    }
    offset += byte_count;
  }
  return offset == layout.total_bytes ? RamRefusal::kNone : RamRefusal::kMalformedLayout;
}

bool SameBytes(const RamHandle& a, const RamHandle& b) {
  if (a.bytes.size() != b.bytes.size()) {
    return false;
  }
  return a.bytes.data() == b.bytes.data() ||
         std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0;
}

}  // namespace

LayoutDigest ComputeLayoutDigest(std::span<const RamLayoutSegment> segments) {
  Hasher hasher("skippy layout digest v1");
  for (const RamLayoutSegment& segment : segments) {
    hasher.Update(segment.digest.bytes.data(), segment.digest.bytes.size());
    hasher.UpdateInt<std::uint64_t>(segment.handle.bytes.size());
  }
  return hasher.Finish<LayoutDigest>();
}

std::string_view ToString(RamRefusal refusal) {
  switch (refusal) {
    case RamRefusal::kNone:
      return "none";
    case RamRefusal::kEmptyPayload:
      return "empty_payload";
    case RamRefusal::kOverBudget:
      return "over_budget";
    case RamRefusal::kProtectedOvercommit:
      return "protected_overcommit";
    case RamRefusal::kDigestMismatch:
      return "digest_mismatch";
    case RamRefusal::kSegmentDigestMismatch:
      return "segment_digest_mismatch";
    case RamRefusal::kConflictingSegment:
      return "conflicting_segment";
    case RamRefusal::kMalformedLayout:
      return "malformed_layout";
    case RamRefusal::kUnknownPayloadKind:
      return "unknown_payload_kind";
    case RamRefusal::kDisabled:
      return "disabled";
  }
  CheckFailed(__FILE__, __LINE__, "RamRefusal", "not an enumerator");
}

struct RamPool::Impl {
  explicit Impl(std::uint64_t budget)
      : detached(std::make_shared<std::atomic<std::uint64_t>>(0)),
        reserved(std::make_shared<std::atomic<std::uint64_t>>(0)),
        budget_bytes(budget) {}

  const DetachedBytes detached;
  const std::shared_ptr<std::atomic<std::uint64_t>> reserved;  // grows under the lock only

  mutable Mutex mu;
  std::uint64_t budget_bytes GUARDED_BY(mu);
  std::map<RamKey, Entry> entries GUARDED_BY(mu);
  std::unordered_map<SegmentDigest, PooledSegment, LeadingBytesHash> pool GUARDED_BY(mu);
  std::list<RamKey> recency GUARDED_BY(mu);  // least recently used first
  RamStats stats GUARDED_BY(mu);

  // Segments whose bytes are known to hash to their digest because the pool holds the same memory,
  // or because they were hashed here. Outside the lock but for the look-ups.
  RamRefusal VerifySegments(const RamLayout& layout) EXCLUDES(mu);
  RamRefusal CheckAgainstPool(const RamLayout& layout) EXCLUDES(mu);

  struct Plan {
    bool fits = false;
    std::vector<RamKey> victims;
  };
  // What the pool is to hold afterwards.
  struct Wanted {
    std::uint64_t new_bytes = 0;
    std::uint64_t limit_bytes = 0;
    const DigestSet* keep = nullptr;   // segments that must stay
    const RamKey* replaced = nullptr;  // goes in any case
    const RamEvictionFilter* filter = nullptr;
  };
  // The victims that make room, in their order.
  Plan PlanEviction(const Wanted& wanted) const REQUIRES(mu);
  std::vector<RamEvicted> EvictDownTo(std::uint64_t target, const RamEvictionFilter& filter)
      REQUIRES(mu);
  std::uint64_t SimulateRemoval(
      const Entry& entry, const DigestSet& keep,
      std::unordered_map<SegmentDigest, std::size_t, LeadingBytesHash>* gone) const REQUIRES(mu);
  // The memory of what nobody refers to any more goes at once, or to `freed`.
  RamRemoval RemoveEntry(const RamKey& key, const DigestSet* keep,
                         std::vector<RamHandle>* freed = nullptr) REQUIRES(mu);
  std::vector<RamEvicted> Evict(const std::vector<RamKey>& victims) REQUIRES(mu);
  void Insert(const RamKey& key, RamLayout layout) REQUIRES(mu);
  void Recharge(const SegmentDigest& digest, std::uint64_t byte_count, const RamKey* before)
      REQUIRES(mu);
  // The room of `reservation`, which may be null, is the layout's.
  RamRefusal Commit(const RamKey& key, RamLayout* layout, RamReservation* reservation) EXCLUDES(mu);
  RamRefusal Count(RamRefusal refusal) EXCLUDES(mu);
  bool IsHeld(const Entry& entry) const REQUIRES(mu) { return entry.held.use_count() > 1; }
};

HashedBytes::HashedBytes(RamHandle handle)
    : handle_(std::move(handle)), digest_(HashBytes<SegmentDigest>(handle_.bytes)) {}

RamReservation& RamReservation::operator=(RamReservation&& other) noexcept {
  if (this != &other) {
    Release();
    total_ = std::move(other.total_);
    byte_count_ = std::exchange(other.byte_count_, 0);
  }
  return *this;
}

void RamReservation::Release() {
  if (total_ != nullptr) {
    total_->fetch_sub(std::exchange(byte_count_, 0));
    total_.reset();
  }
}

RamPool::RamPool(std::uint64_t budget_bytes) : impl_(std::make_unique<Impl>(budget_bytes)) {}
RamPool::~RamPool() = default;

RamRefusal RamPool::Impl::VerifySegments(const RamLayout& layout) {
  for (const RamLayoutSegment& segment : layout.segments) {
    bool known = false;
    {
      MutexLock lock(mu);
      const auto it = pool.find(segment.digest);
      known = it != pool.end() && it->second.handle.bytes.data() == segment.handle.bytes.data() &&
              it->second.handle.bytes.size() == segment.handle.bytes.size();
    }
    if (known) {
      continue;
    }
    if (HashBytes<SegmentDigest>(segment.handle.bytes) != segment.digest) {
      return RamRefusal::kSegmentDigestMismatch;
    }
  }
  return RamRefusal::kNone;
}

RamRefusal RamPool::Impl::CheckAgainstPool(const RamLayout& layout) {
  for (const RamLayoutSegment& segment : layout.segments) {
    std::optional<RamHandle> pooled;
    {
      MutexLock lock(mu);
      if (const auto it = pool.find(segment.digest); it != pool.end()) {
        pooled = it->second.handle;
      }
    }
    if (pooled && !SameBytes(*pooled, segment.handle)) {
      return RamRefusal::kConflictingSegment;
    }
  }
  return RamRefusal::kNone;
}

std::uint64_t RamPool::Impl::SimulateRemoval(
    const Entry& entry, const DigestSet& keep,
    std::unordered_map<SegmentDigest, std::size_t, LeadingBytesHash>* gone) const {
  std::uint64_t freed = 0;
  for (const SegmentDigest& digest : entry.distinct) {
    const PooledSegment& segment = pool.at(digest);
    if (++(*gone)[digest] == segment.referrers.size() && !keep.contains(digest)) {
      freed += segment.handle.charge_bytes();
    }
  }
  return freed;
}

RamPool::Impl::Plan RamPool::Impl::PlanEviction(const Wanted& wanted) const {
  static const DigestSet kNothing;
  const DigestSet& keep = wanted.keep == nullptr ? kNothing : *wanted.keep;
  Plan plan;
  std::uint64_t total =
      stats.resident_bytes + detached->load() + reserved->load() + wanted.new_bytes;
  std::unordered_map<SegmentDigest, std::size_t, LeadingBytesHash> gone;
  std::set<RamKey> chosen;
  if (wanted.replaced != nullptr) {
    const Entry& entry = entries.at(*wanted.replaced);
    const std::uint64_t freed = SimulateRemoval(entry, keep, &gone);
    total -= IsHeld(entry) ? 0 : freed;
    chosen.insert(*wanted.replaced);
  }
  // Again as long as the filter lets more go because of what went.
  for (std::size_t before = SIZE_MAX;
       before != plan.victims.size() && total > wanted.limit_bytes;) {
    before = plan.victims.size();
    for (auto it = recency.begin(); it != recency.end() && total > wanted.limit_bytes; ++it) {
      const Entry& entry = entries.at(*it);
      if (IsHeld(entry) || chosen.contains(*it)) {
        continue;
      }
      if (wanted.filter != nullptr && *wanted.filter && !(*wanted.filter)(*it)) {
        continue;
      }
      total -= SimulateRemoval(entry, keep, &gone);
      plan.victims.push_back(*it);
      chosen.insert(*it);
    }
    if (wanted.filter == nullptr || !*wanted.filter) {
      break;
    }
  }
  plan.fits = total <= wanted.limit_bytes;
  return plan;
}

// The charge of a segment follows its lowest referrer; `before` is who was charged so far.
void RamPool::Impl::Recharge(const SegmentDigest& digest, std::uint64_t byte_count,
                             const RamKey* before) {
  const PooledSegment& segment = pool.at(digest);
  const RamKey& owner = *segment.referrers.begin();
  if (before != nullptr) {
    if (*before == owner) {
      return;
    }
    if (const auto it = entries.find(*before); it != entries.end()) {
      it->second.charge_bytes -= byte_count;
    }
  }
  entries.at(owner).charge_bytes += byte_count;
}

RamRemoval RamPool::Impl::RemoveEntry(const RamKey& key, const DigestSet* keep,
                                      std::vector<RamHandle>* freed) {
  const auto it = entries.find(key);
  if (it == entries.end()) {
    return {};
  }
  Entry& entry = it->second;
  RamRemoval removal{.found = true, .freed_bytes = 0, .retained_bytes = 0};
  std::uint64_t last_reference_bytes = 0;
  for (const SegmentDigest& digest : entry.distinct) {
    PooledSegment& segment = pool.at(digest);
    const std::uint64_t byte_count = segment.handle.charge_bytes();
    const RamKey owner = *segment.referrers.begin();
    segment.referrers.erase(key);
    if (!segment.referrers.empty()) {
      Recharge(digest, byte_count, &owner);
      removal.retained_bytes += byte_count;
    } else if (keep != nullptr && keep->contains(digest)) {
      removal.retained_bytes += byte_count;  // the admission in progress takes it over
      entry.charge_bytes -= byte_count;
    } else {
      if (freed != nullptr) freed->push_back(std::move(segment.handle));
      pool.erase(digest);
      stats.resident_bytes -= byte_count;
      last_reference_bytes += byte_count;
    }
  }
  stats.logical_bytes -= entry.held->layout.total_bytes;
  recency.erase(entry.recency);
  if (IsHeld(entry)) {
    entry.held->detached.store(last_reference_bytes);
    detached->fetch_add(last_reference_bytes);
    removal.retained_bytes += last_reference_bytes;
  } else {
    removal.freed_bytes = last_reference_bytes;
  }
  entries.erase(it);
  return removal;
}

std::vector<RamEvicted> RamPool::Impl::Evict(const std::vector<RamKey>& victims) {
  std::vector<RamEvicted> evicted;
  evicted.reserve(victims.size());
  for (const RamKey& victim : victims) {
    evicted.push_back({.key = victim, .freed = {}});
    RemoveEntry(victim, nullptr, &evicted.back().freed);
    ++stats.evictions;
  }
  return evicted;
}

void RamPool::Impl::Insert(const RamKey& key, RamLayout layout) {
  Entry entry;
  entry.held = std::make_shared<HeldLayout>(detached);
  entry.recency = recency.insert(recency.end(), key);
  stats.logical_bytes += layout.total_bytes;
  auto& stored = entries.emplace(key, std::move(entry)).first->second;
  for (RamLayoutSegment& segment : layout.segments) {
    auto [it, fresh] = pool.try_emplace(segment.digest);
    PooledSegment& pooled = it->second;
    if (fresh) {
      pooled.handle = segment.handle;
      stats.resident_bytes += segment.handle.charge_bytes();
    }
    segment.handle = pooled.handle;
    const bool had_owner = !pooled.referrers.empty();
    const RamKey before = had_owner ? *pooled.referrers.begin() : RamKey{};
    if (pooled.referrers.insert(key).second) {
      stored.distinct.push_back(segment.digest);
      Recharge(segment.digest, pooled.handle.charge_bytes(), had_owner ? &before : nullptr);
    }
  }
  stored.held->layout = std::move(layout);
  ++stats.inserts;
}

RamRefusal RamPool::Impl::Commit(const RamKey& key, RamLayout* layout,
                                 RamReservation* reservation) {
  MutexLock lock(mu);
  if (budget_bytes == 0) {
    return RamRefusal::kDisabled;
  }
  DigestSet incoming;
  std::uint64_t new_bytes = 0;
  for (const RamLayoutSegment& segment : layout->segments) {
    if (!incoming.insert(segment.digest).second) {
      continue;
    }
    const auto it = pool.find(segment.digest);
    if (it == pool.end()) {
      new_bytes += segment.handle.charge_bytes();
    } else if (it->second.handle.bytes.size() != segment.handle.bytes.size()) {
      return RamRefusal::kConflictingSegment;
    }
  }
  const bool replaces = entries.contains(key);
  if (reservation != nullptr) {
    SKIPPY_CHECK(new_bytes <= reservation->byte_count(), "more bytes than were reserved");
  } else {
    if (new_bytes > budget_bytes) {
      return RamRefusal::kOverBudget;
    }
    const Plan plan = PlanEviction({.new_bytes = new_bytes,
                                    .limit_bytes = budget_bytes,
                                    .keep = &incoming,
                                    .replaced = replaces ? &key : nullptr});
    if (!plan.fits) {
      return RamRefusal::kProtectedOvercommit;
    }
    for (const RamKey& victim : plan.victims) {
      RemoveEntry(victim, &incoming);
      ++stats.evictions;
    }
  }
  if (replaces) {
    RemoveEntry(key, &incoming);
  }
  Insert(key, std::move(*layout));
  if (reservation != nullptr) {
    reservation->Release();
  }
  return RamRefusal::kNone;
}

RamRefusal RamPool::Impl::Count(RamRefusal refusal) {
  if (refusal != RamRefusal::kNone) {
    MutexLock lock(mu);
    ++stats.refusals;
  }
  return refusal;
}

RamRefusal RamPool::Admit(const RamKey& key, RamLayout layout) {
  RamRefusal refusal = CheckGeometry(layout);
  if (refusal == RamRefusal::kNone && ComputeLayoutDigest(layout.segments) != layout.digest) {
    refusal = RamRefusal::kDigestMismatch;
  }
  if (refusal == RamRefusal::kNone) {
    refusal = impl_->VerifySegments(layout);
  }
  if (refusal == RamRefusal::kNone) {
    refusal = impl_->CheckAgainstPool(layout);
  }
  if (refusal == RamRefusal::kNone) {
    refusal = impl_->Commit(key, &layout, nullptr);
  }
  return impl_->Count(refusal);
}

std::optional<RamReservation> RamPool::Reserve(std::uint64_t byte_count,
                                               const RamEvictionFilter& filter,
                                               std::vector<RamEvicted>* evicted) {
  MutexLock lock(impl_->mu);
  if (byte_count > impl_->budget_bytes) {
    return std::nullopt;
  }
  const Impl::Plan plan = impl_->PlanEviction(
      {.new_bytes = byte_count, .limit_bytes = impl_->budget_bytes, .filter = &filter});
  if (!plan.fits) {
    return std::nullopt;
  }
  *evicted = impl_->Evict(plan.victims);
  impl_->reserved->fetch_add(byte_count);
  return RamReservation(impl_->reserved, byte_count);
}

RamRefusal RamPool::AdmitSegment(const RamKey& key, const RamSegmentInfo& info, HashedBytes bytes,
                                 RamReservation reservation) {
  RamLayout layout{.kind = info.kind, .origin = info.origin, .token_count = info.token_count};
  layout.total_bytes = bytes.handle().bytes.size();
  (info.kind == RamPayloadKind::kCheckpoint ? layout.checkpoint_bytes : layout.rows_bytes) =
      layout.total_bytes;
  // The only reference from here on: where the pool has the bytes already, these are gone before
  // their reservation is.
  layout.segments.push_back({.digest = bytes.digest(), .handle = bytes.TakeHandle()});
  layout.digest = ComputeLayoutDigest(layout.segments);
  RamRefusal refusal = CheckGeometry(layout);
  if (refusal == RamRefusal::kNone) {
    refusal = impl_->CheckAgainstPool(layout);
  }
  if (refusal == RamRefusal::kNone) {
    refusal = impl_->Commit(key, &layout, &reservation);
  }
  return impl_->Count(refusal);
}

std::shared_ptr<const RamLayout> RamPool::Get(const RamKey& key) {
  MutexLock lock(impl_->mu);
  const auto it = impl_->entries.find(key);
  if (it == impl_->entries.end()) {
    ++impl_->stats.misses;
    return nullptr;
  }
  ++impl_->stats.hits;
  impl_->recency.splice(impl_->recency.end(), impl_->recency, it->second.recency);
  return {it->second.held, &it->second.held->layout};
}

std::shared_ptr<const RamLayout> RamPool::Peek(const RamKey& key) const {
  MutexLock lock(impl_->mu);
  const auto it = impl_->entries.find(key);
  if (it == impl_->entries.end()) {
    return nullptr;
  }
  return {it->second.held, &it->second.held->layout};
}

void RamPool::Touch(const RamKey& key) {
  MutexLock lock(impl_->mu);
  const auto it = impl_->entries.find(key);
  if (it != impl_->entries.end()) {
    impl_->recency.splice(impl_->recency.end(), impl_->recency, it->second.recency);
  }
}

RamRemoval RamPool::Remove(const RamKey& key) {
  MutexLock lock(impl_->mu);
  return impl_->RemoveEntry(key, nullptr);
}

RamRemoval RamPool::RemoveSegment(const SegmentDigest& digest) {
  MutexLock lock(impl_->mu);
  RamRemoval total;
  const auto it = impl_->pool.find(digest);
  if (it == impl_->pool.end()) {
    return total;
  }
  const std::vector<RamKey> keys(it->second.referrers.begin(), it->second.referrers.end());
  const std::uint64_t before = impl_->stats.resident_bytes;
  for (const RamKey& key : keys) {
    const RamRemoval removal = impl_->RemoveEntry(key, nullptr);
    total.freed_bytes += removal.freed_bytes;
  }
  total.found = true;
  total.retained_bytes = before - impl_->stats.resident_bytes - total.freed_bytes;
  return total;
}

RamRemoval RamPool::Clear() {
  MutexLock lock(impl_->mu);
  RamRemoval total{.found = !impl_->entries.empty(), .freed_bytes = 0, .retained_bytes = 0};
  const std::uint64_t before = impl_->stats.resident_bytes;
  while (!impl_->entries.empty()) {
    const RamKey key = impl_->entries.begin()->first;
    total.freed_bytes += impl_->RemoveEntry(key, nullptr).freed_bytes;
  }
  total.retained_bytes = before - total.freed_bytes;
  return total;
}

std::vector<RamEvicted> RamPool::Impl::EvictDownTo(std::uint64_t target,
                                                   const RamEvictionFilter& filter) {
  return Evict(PlanEviction({.limit_bytes = target, .filter = &filter}).victims);
}

std::vector<RamEvicted> RamPool::SetBudget(std::uint64_t budget_bytes,
                                           const RamEvictionFilter& filter) {
  MutexLock lock(impl_->mu);
  impl_->budget_bytes = budget_bytes;
  return impl_->EvictDownTo(budget_bytes, filter);
}

std::vector<RamEvicted> RamPool::EvictTo(std::uint64_t target_bytes,
                                         const RamEvictionFilter& filter) {
  MutexLock lock(impl_->mu);
  return impl_->EvictDownTo(target_bytes, filter);
}

RamStats RamPool::GetStats() const {
  MutexLock lock(impl_->mu);
  RamStats stats = impl_->stats;
  stats.budget_bytes = impl_->budget_bytes;
  stats.detached_bytes = impl_->detached->load();
  stats.reserved_bytes = impl_->reserved->load();
  stats.entries = impl_->entries.size();
  stats.segments = impl_->pool.size();
  return stats;
}

std::uint64_t RamPool::ChargeOf(const RamKey& key) const {
  MutexLock lock(impl_->mu);
  const auto it = impl_->entries.find(key);
  return it == impl_->entries.end() ? 0 : it->second.charge_bytes;
}

void RamPool::CheckInvariants() const {
  MutexLock lock(impl_->mu);
  std::uint64_t charges = 0;
  std::uint64_t logical = 0;
  for (const auto& [key, entry] : impl_->entries) {
    charges += entry.charge_bytes;
    logical += entry.held->layout.total_bytes;
    for (const SegmentDigest& digest : entry.distinct) {
      SKIPPY_CHECK(impl_->pool.at(digest).referrers.contains(key), "reverse index lost an entry");
    }
  }
  std::uint64_t pooled = 0;
  for (const auto& [digest, segment] : impl_->pool) {
    SKIPPY_CHECK(!segment.referrers.empty(), "a pooled segment without an entry");
    pooled += segment.handle.charge_bytes();
  }
  SKIPPY_CHECK(pooled == impl_->stats.resident_bytes, "resident bytes");
  SKIPPY_CHECK(charges == pooled, "charges do not add up to the pool");
  SKIPPY_CHECK(logical == impl_->stats.logical_bytes, "logical bytes");
  SKIPPY_CHECK(impl_->recency.size() == impl_->entries.size(), "recency list");
}

}  // namespace skippy
