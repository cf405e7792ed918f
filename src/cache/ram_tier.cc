// The RAM tier under the cache's tables: who may leave it, and what an eviction does to the paths.
#include <cstring>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/coding.h"
#include "cache/shared_state.h"

namespace skippy {
namespace {

constexpr std::size_t kIdOffset = RamKey::kByteCount - sizeof(std::uint64_t);

// The memory of what was evicted goes here; the keys stay.
std::vector<RamKey> LetGo(std::vector<RamEvicted> evicted) {
  std::vector<RamKey> keys;
  keys.reserve(evicted.size());
  for (const RamEvicted& entry : evicted) keys.push_back(entry.key);
  return keys;
}

}  // namespace

RamKey RamKeyOf(SegmentId id, const PathHash& end_hash) {
  RamKey key;
  std::memcpy(key.bytes.data(), end_hash.bytes.data(), end_hash.bytes.size());
  const auto number = static_cast<std::uint64_t>(id);
  std::memcpy(key.bytes.data() + kIdOffset, &number, sizeof(number));
  return key;
}

SegmentId SegmentOf(const RamKey& key) {
  std::uint64_t number = 0;
  std::memcpy(&number, key.bytes.data() + kIdOffset, sizeof(number));
  return static_cast<SegmentId>(number);
}

RamEvictionFilter SharedState::RamVictims(const std::optional<ModelIdentity>& model,
                                          bool retained) const {
  const std::uint64_t spared_after_s =
      retained ? std::numeric_limits<std::uint64_t>::max() : NowSeconds();
  std::unordered_map<SegmentId, std::uint32_t> gone_children;
  return [known = &tables, model, spared_after_s,
          gone = std::move(gone_children)](const RamKey& key) mutable {
    const SegmentId id = SegmentOf(key);
    const LedgerSegment& segment = *known->ledger.FindSegment(id);
    if (segment.retained_until_s > spared_after_s) return false;
    if (model && known->domains.at(segment.domain).spec.model != *model) return false;
    if (known->places.at(id).disk != nullptr) return true;
    if (segment.pins > 0 || segment.children > gone[id]) return false;
    ++gone[segment.parent];
    return true;
  };
}

void SharedState::LeaveRam(const std::vector<RamKey>& keys, RemovalCause cause) {
  const auto place_of = [known = &tables](const RamKey& key) {
    const auto found = known->places.find(SegmentOf(key));
    return found == known->places.end() ? nullptr : &found->second;
  };
  for (const RamKey& key : keys) {
    if (Place* const place = place_of(key)) place->in_ram = false;
  }
  for (const RamKey& key : keys) {
    const Place* const place = place_of(key);
    if (place != nullptr && place->disk == nullptr) RemoveSubtree(SegmentOf(key), cause);
  }
}

std::optional<RamReservation> SharedState::ReserveInRam(std::uint64_t byte_count,
                                                        std::vector<RamEvicted>* evicted) {
  auto room = ram.Reserve(byte_count, RamVictims(std::nullopt, /*retained=*/false), evicted);
  if (room) return room;
  return ram.Reserve(byte_count, RamVictims(std::nullopt, /*retained=*/true), evicted);
}

std::unique_ptr<PooledBuffer> SharedState::AcquireInRam(std::uint64_t byte_count) {
  std::vector<RamEvicted> evicted;
  std::optional<RamReservation> room = ReserveInRam(BufferPool::RamBytesFor(byte_count), &evicted);
  if (!room) return nullptr;
  std::vector<RamKey> keys;
  for (const RamEvicted& entry : evicted) keys.push_back(entry.key);
  auto buffer = pool->AcquireInRamTier(byte_count, std::move(*room), std::move(evicted));
  LeaveRam(keys, RemovalCause::kEviction);
  return buffer;
}

bool SharedState::AdmitToRam(SegmentId id, RamOrigin origin, HashedBytes bytes,
                             RamReservation reservation) {
  const auto found = tables.places.find(id);
  if (found == tables.places.end()) return false;
  Place& place = found->second;
  const LedgerSegment& segment = *tables.ledger.FindSegment(id);
  const bool is_rows = segment.kind == SegmentKind::kRows;
  const RamKey key = RamKeyOf(id, place.end_hash);
  const RamRefusal refusal =
      ram.AdmitSegment(key,
                       {.kind = is_rows ? RamPayloadKind::kRows : RamPayloadKind::kCheckpoint,
                        .origin = origin,
                        .token_count = segment.token_count},
                       std::move(bytes), std::move(reservation));
  if (refusal != RamRefusal::kNone) return false;
  place.in_ram = true;
  if (place.pending != nullptr) {
    place.pending->held = ram.Peek(key);
    place.pending.reset();
  }
  return true;
}

std::shared_ptr<const RamLayout> SharedState::PromoteToRam(SegmentId id, HashedBytes bytes,
                                                           PooledBuffer& buffer) {
  const auto found = tables.places.find(id);
  if (found == tables.places.end() || found->second.in_ram || found->second.pending != nullptr) {
    return nullptr;
  }
  const RamKey key = RamKeyOf(id, found->second.end_hash);
  std::vector<RamEvicted> evicted;
  std::optional<RamReservation> room = ReserveInRam(buffer.capacity_bytes(), &evicted);
  if (!room) {
    ++tables.ram.promotions_refused;
    return nullptr;
  }
  LeaveRam(LetGo(std::move(evicted)), RemovalCause::kEviction);
  buffer.JoinRamTier(std::move(*room));
  if (!AdmitToRam(id, RamOrigin::kDiskFill, std::move(bytes), buffer.TakeReservation())) {
    return nullptr;
  }
  ++tables.ram.promotions;
  return ram.Peek(key);
}

void SharedState::TouchInRam(SegmentId tip) {
  for (SegmentId id = tip; id != SegmentId::kNone;) {
    const auto place = tables.places.find(id);
    if (place != tables.places.end() && place->second.in_ram) {
      ram.Touch(RamKeyOf(id, place->second.end_hash));
    }
    id = tables.ledger.FindSegment(id)->parent;
  }
}

std::uint64_t SharedState::EvictFromRam(std::uint64_t target_bytes,
                                        const std::optional<ModelIdentity>& model,
                                        RemovalCause cause) {
  const std::uint64_t before = ram.GetStats().resident_bytes;
  for (const bool retained : {false, true}) {
    LeaveRam(LetGo(ram.EvictTo(target_bytes, RamVictims(model, retained))), cause);
  }
  return before - ram.GetStats().resident_bytes;
}

void SharedState::SetRamBudget(std::uint64_t budget_bytes) {
  tables.ram.budget_bytes = budget_bytes;
  EvictFromRam(budget_bytes, std::nullopt, RemovalCause::kEviction);
  LeaveRam(LetGo(ram.SetBudget(budget_bytes, RamVictims(std::nullopt, true))),
           RemovalCause::kEviction);
}

}  // namespace skippy
