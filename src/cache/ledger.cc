#include "cache/ledger.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"

namespace skippy {

Ledger::VictimKey Ledger::KeyOf(const ManifestRow& row) {
  return {row.retained_until_s != 0, row.last_use, -row.token_count, row.id};
}

LedgerSegment& Ledger::At(SegmentId id) {
  const auto found = segments_.find(id);
  SKIPPY_CHECK(found != segments_.end(), std::to_string(static_cast<std::uint64_t>(id)));
  return found->second;
}

void Ledger::StartAbove(std::uint64_t manifest, std::uint64_t use_clock) {
  next_manifest_ = manifest + 1;
  clock_ = use_clock;
}

void Ledger::AddSegment(SegmentId id, LedgerSegment segment) {
  segment.chain_bytes = segment.byte_count;
  if (segment.parent != SegmentId::kNone) {
    LedgerSegment& parent = At(segment.parent);
    ++parent.children;
    segment.chain_bytes += parent.chain_bytes;
  }
  const bool is_new = segments_.emplace(id, std::move(segment)).second;
  SKIPPY_CHECK(is_new, std::to_string(static_cast<std::uint64_t>(id)));
}

const LedgerSegment* Ledger::FindSegment(SegmentId id) const {
  const auto found = segments_.find(id);
  return found == segments_.end() ? nullptr : &found->second;
}

void Ledger::Pin(SegmentId id) { ++At(id).pins; }

void Ledger::Unpin(SegmentId id, LedgerRemovals* removals) {
  const auto found = segments_.find(id);
  if (found == segments_.end()) return;
  SKIPPY_CHECK(found->second.pins > 0, "unbalanced unpin");
  --found->second.pins;
  RemoveIfUnneeded(id, removals);
}

ManifestId Ledger::InsertManifest(Manifest manifest, LedgerSegment& tip) {
  const ManifestId id = manifest.row.id;
  tip.manifests.push_back(id);
  if (manifest.durable) victims_.insert(KeyOf(manifest.row));
  manifests_.emplace(id, manifest);
  return id;
}

Ledger::Added Ledger::AddManifest(SegmentId tip, TokenCount token_count) {
  LedgerSegment& segment = At(tip);
  for (const ManifestId id : segment.manifests) {
    if (manifests_.at(id).row.token_count == token_count) return {id, false};
  }
  Manifest manifest;
  manifest.row = {.id = static_cast<ManifestId>(next_manifest_++),
                  .domain = segment.domain,
                  .tip = tip,
                  .token_count = token_count,
                  .last_use = ++clock_};
  return {InsertManifest(manifest, segment), true};
}

bool Ledger::RestoreManifest(const ManifestRow& row) {
  const auto found = segments_.find(row.tip);
  if (found == segments_.end() || found->second.domain != row.domain) return false;
  const LedgerSegment& tip = found->second;
  const bool reaches = tip.kind == SegmentKind::kCheckpoint
                           ? row.token_count == tip.first_token
                           : row.token_count > tip.first_token && row.token_count <= tip.end();
  if (!reaches || manifests_.contains(row.id)) return false;
  InsertManifest({.row = row, .durable = true}, found->second);
  if (row.retained_until_s == 0) return true;
  retained_.emplace(row.retained_until_s, row.id);
  for (SegmentId id = row.tip; id != SegmentId::kNone; id = At(id).parent) {
    std::uint64_t& until_s = At(id).retained_until_s;
    until_s = std::max(until_s, row.retained_until_s);
  }
  return true;
}

bool Ledger::MarkDurable(ManifestId id) {
  const auto found = manifests_.find(id);
  if (found == manifests_.end()) return false;
  found->second.durable = true;
  victims_.insert(KeyOf(found->second.row));
  return true;
}

const Ledger::Manifest* Ledger::FindManifest(ManifestId id) const {
  const auto found = manifests_.find(id);
  return found == manifests_.end() ? nullptr : &found->second;
}

void Ledger::Change(Manifest& manifest, const std::function<void(ManifestRow&)>& change) {
  const bool is_victim = victims_.erase(KeyOf(manifest.row)) > 0;
  change(manifest.row);
  if (is_victim) victims_.insert(KeyOf(manifest.row));
  manifest.touched = true;
  touched_.insert(manifest.row.id);
}

void Ledger::SetLastUse(Manifest& manifest, std::uint64_t last_use) {
  Change(manifest, [last_use](ManifestRow& row) { row.last_use = last_use; });
}

void Ledger::RetainChain(SegmentId tip, std::uint64_t until_s) {
  for (SegmentId id = tip; id != SegmentId::kNone; id = At(id).parent) {
    LedgerSegment& segment = At(id);
    segment.retained_until_s = std::max(segment.retained_until_s, until_s);
    for (const ManifestId manifest_id : segment.manifests) {
      Manifest& manifest = manifests_.at(manifest_id);
      if (manifest.row.retained_until_s >= until_s) continue;
      retained_.erase({manifest.row.retained_until_s, manifest_id});
      retained_.emplace(until_s, manifest_id);
      Change(manifest, [until_s](ManifestRow& row) { row.retained_until_s = until_s; });
    }
  }
}

void Ledger::EndRetention(std::uint64_t now_s) {
  while (!retained_.empty() && retained_.begin()->first <= now_s) {
    Manifest& manifest = manifests_.at(retained_.begin()->second);
    retained_.erase(retained_.begin());
    Change(manifest, [](ManifestRow& row) { row.retained_until_s = 0; });
  }
}

void Ledger::TouchChain(SegmentId tip, bool count_hit) {
  ++clock_;
  At(tip).last_use = clock_;
  for (SegmentId id = tip; id != SegmentId::kNone;) {
    const LedgerSegment& segment = At(id);
    for (const ManifestId manifest_id : segment.manifests) {
      Manifest& manifest = manifests_.at(manifest_id);
      if (count_hit) ++manifest.row.hits;
      SetLastUse(manifest, clock_);
    }
    id = segment.parent;
  }
}

std::vector<ManifestTouch> Ledger::TakeTouches(std::size_t limit) {
  std::vector<ManifestTouch> touches;
  while (touches.size() < limit && !touched_.empty()) {
    const ManifestId id = *touched_.begin();
    touched_.erase(touched_.begin());
    Manifest& manifest = manifests_.at(id);
    manifest.touched = false;
    // A manifest that is not durable yet is written with its use.
    if (manifest.durable) {
      touches.push_back(
          {id, manifest.row.last_use, manifest.row.hits, manifest.row.retained_until_s});
    }
  }
  return touches;
}

std::uint64_t Ledger::LatestExclusiveUse(const Manifest& manifest) const {
  std::uint64_t latest = 0;
  SegmentId id = manifest.row.tip;
  std::size_t own_references = 1;  // the manifest itself, then the segment below
  while (id != SegmentId::kNone) {
    const LedgerSegment& segment = segments_.at(id);
    if (segment.children + segment.manifests.size() + segment.pins > own_references) break;
    latest = std::max(latest, segment.last_use);
    id = segment.parent;
  }
  return latest;
}

bool Ledger::EvictNext(std::optional<VictimKey>* cursor,
                       const std::function<bool(const Manifest&)>& accept,
                       LedgerRemovals* removals) {
  auto next = cursor->has_value() ? victims_.upper_bound(**cursor) : victims_.begin();
  while (next != victims_.end()) {
    *cursor = *next;
    Manifest& manifest = manifests_.at(next->id);
    ++next;
    const LedgerSegment& tip = segments_.at(manifest.row.tip);
    if (tip.children + tip.pins > 0 || !accept(manifest)) continue;
    // The head of a prefix may be in use although nobody asks for its end.
    const std::uint64_t latest = LatestExclusiveUse(manifest);
    if (latest > manifest.row.last_use) {
      SetLastUse(manifest, latest);
      next = victims_.upper_bound(**cursor);
      continue;
    }
    DropManifest(manifest.row.id, removals);
    return true;
  }
  return false;
}

void Ledger::RemoveManifest(ManifestId id, LedgerRemovals* removals) {
  if (manifests_.contains(id)) DropManifest(id, removals);
}

void Ledger::DropManifest(ManifestId id, LedgerRemovals* removals) {
  const Manifest manifest = manifests_.at(id);
  victims_.erase(KeyOf(manifest.row));
  touched_.erase(id);
  retained_.erase({manifest.row.retained_until_s, id});
  manifests_.erase(id);
  if (manifest.durable) removals->durable_manifests.push_back(id);
  std::erase(At(manifest.row.tip).manifests, id);
  RemoveIfUnneeded(manifest.row.tip, removals);
}

void Ledger::RemoveIfUnneeded(SegmentId id, LedgerRemovals* removals) {
  while (id != SegmentId::kNone) {
    const auto found = segments_.find(id);
    if (found == segments_.end()) return;
    const LedgerSegment& segment = found->second;
    if (segment.children + segment.pins > 0 || !segment.manifests.empty()) return;
    const SegmentId parent = segment.parent;
    removals->segments.push_back({id, segment.byte_count});
    segments_.erase(found);
    if (parent != SegmentId::kNone) --At(parent).children;
    id = parent;
  }
}

std::optional<ManifestId> Ledger::RemoveSubtree(std::span<const SegmentId> ids,
                                                LedgerRemovals* removals) {
  if (ids.empty()) return std::nullopt;
  const LedgerSegment root = At(ids.back());
  bool wanted = false;
  std::uint64_t last_use = 0;
  std::uint64_t hits = 0;
  std::uint64_t retained_until_s = 0;
  for (const SegmentId id : ids) {
    LedgerSegment& segment = At(id);
    wanted = wanted || segment.pins > 0 || !segment.manifests.empty();
    ++segment.pins;  // kept until its turn, whatever its manifests do
    for (const ManifestId manifest_id : std::vector<ManifestId>(segment.manifests)) {
      const Manifest& manifest = manifests_.at(manifest_id);
      last_use = std::max(last_use, manifest.row.last_use);
      hits = std::max(hits, manifest.row.hits);
      retained_until_s = std::max(retained_until_s, manifest.row.retained_until_s);
      DropManifest(manifest_id, removals);
    }
    removals->segments.push_back({id, segment.byte_count});
    segments_.erase(id);
  }
  if (root.parent == SegmentId::kNone) return std::nullopt;
  --At(root.parent).children;
  if (!wanted || root.kind != SegmentKind::kRows) {
    RemoveIfUnneeded(root.parent, removals);
    return std::nullopt;
  }
  const Added added = AddManifest(root.parent, root.first_token);
  Manifest& manifest = manifests_.at(added.id);
  if (last_use == 0) {
    TouchChain(root.parent, /*count_hit=*/false);  // only pins wanted it: in use now
  } else if (added.is_new) {
    SetLastUse(manifest, last_use);
  }
  manifest.row.hits = std::max(manifest.row.hits, hits);
  if (retained_until_s > 0) RetainChain(root.parent, retained_until_s);
  return added.is_new ? std::optional(added.id) : std::nullopt;
}

void Ledger::VisitSegments(
    const std::function<void(SegmentId, const LedgerSegment&)>& visitor) const {
  for (const auto& [id, segment] : segments_) visitor(id, segment);
}

std::vector<Ledger::Manifest> Ledger::ListManifests(ManifestId after, std::size_t limit) const {
  std::vector<Manifest> out;
  for (auto it = manifests_.upper_bound(after); it != manifests_.end() && out.size() < limit;
       ++it) {
    out.push_back(it->second);
  }
  return out;
}

void Ledger::CheckInvariants() const {
  std::unordered_map<SegmentId, std::uint32_t> children;
  for (const auto& [id, segment] : segments_) {
    if (segment.parent == SegmentId::kNone) continue;
    SKIPPY_CHECK(segments_.contains(segment.parent), "segment without its parent");
    ++children[segment.parent];
  }
  std::size_t ends = 0;
  for (const auto& [id, segment] : segments_) {
    SKIPPY_CHECK(segment.children == children[id], "child count");
    SKIPPY_CHECK(segment.children + segment.pins + segment.manifests.size() > 0,
                 "unneeded segment");
    ends += segment.manifests.size();
    for (const ManifestId manifest : segment.manifests) {
      SKIPPY_CHECK(manifests_.at(manifest).row.tip == id, "manifest ends elsewhere");
    }
  }
  SKIPPY_CHECK(ends == manifests_.size(), "manifest without its segment");
  for (const auto& [id, manifest] : manifests_) {
    SKIPPY_CHECK(victims_.contains(KeyOf(manifest.row)) == manifest.durable, "victim order");
    SKIPPY_CHECK(retained_.contains({manifest.row.retained_until_s, id}) ==
                     (manifest.row.retained_until_s > 0),
                 "retention order");
  }
}

}  // namespace skippy
