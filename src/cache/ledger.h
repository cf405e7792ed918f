// Who needs which segment: reference counts, recorded prefixes (manifests), pins and the order of
// eviction. Pure bookkeeping without I/O, clock or lock (the cache's mutex guards it).
//
// Invariant: a segment is here as long as a child, a manifest that ends on it, or a pin needs it.
// A pin on a segment therefore protects its whole chain. A manifest is used no later than any
// manifest below it on the same chain, because using a chain marks all of its manifests: so the
// least recently used manifest, deepest first, is always one whose segments nobody else needs.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "catalog/catalog.h"
#include "skippy/ids.h"

namespace skippy {

struct LedgerSegment {
  DomainId domain = DomainId::kNone;
  SegmentId parent = SegmentId::kNone;
  SegmentKind kind = SegmentKind::kRows;
  TokenCount first_token = 0;
  TokenCount token_count = 0;
  std::uint64_t byte_count = 0;

  TokenCount end() const { return first_token + token_count; }

  // Kept by the Ledger.
  std::uint64_t chain_bytes = 0;  // with all segments above
  std::uint32_t children = 0;
  std::uint32_t pins = 0;
  std::uint64_t last_use = 0;
  std::uint64_t retained_until_s = 0;  // the latest of the prefixes that it is part of
  std::vector<ManifestId> manifests;   // that end on it
};

// What an operation made superfluous. Gathered by the caller, who owns bytes and rows.
struct LedgerRemovals {
  struct Segment {
    SegmentId id = SegmentId::kNone;
    std::uint64_t byte_count = 0;
  };
  std::vector<Segment> segments;              // children before parents
  std::vector<ManifestId> durable_manifests;  // those that the catalog knows
};

class Ledger {
 public:
  struct Manifest {
    ManifestRow row;
    bool durable = false;
    bool touched = false;  // the catalog's last_use is older
  };
  // Where a pass over the victims stands, so that a pass never looks at a manifest twice.
  struct VictimKey {
    bool retained = false;
    std::uint64_t last_use = 0;
    TokenCount negated_tokens = 0;  // deeper first among equally old ones
    ManifestId id = ManifestId::kNone;
    friend auto operator<=>(const VictimKey&, const VictimKey&) = default;
  };

  // First ids and clock value to give out.
  void StartAbove(std::uint64_t manifest, std::uint64_t use_clock);

  // The parent, unless kNone, must be here and the id must be new. Nothing needs the segment yet:
  // pin it or let a manifest end on it before the next removal.
  void AddSegment(SegmentId id, LedgerSegment segment);
  const LedgerSegment* FindSegment(SegmentId id) const;

  void Pin(SegmentId id);
  // No effect on a segment that was removed with its subtree meanwhile.
  void Unpin(SegmentId id, LedgerRemovals* removals);

  // Makes a manifest that ends on `tip`, or finds the one that is there. `tip` must be here.
  struct Added {
    ManifestId id = ManifestId::kNone;
    bool is_new = false;
  };
  Added AddManifest(SegmentId tip, TokenCount token_count);
  // Start-up: a manifest that the catalog knows. False when its tip does not fit.
  bool RestoreManifest(const ManifestRow& row);
  // From now on it may be evicted. False when it is gone.
  bool MarkDurable(ManifestId id);
  const Manifest* FindManifest(ManifestId id) const;
  // No effect when it is gone.
  void RemoveManifest(ManifestId id, LedgerRemovals* removals);

  // Marks every manifest that ends on the chain of `tip` as used now.
  void TouchChain(SegmentId tip, bool count_hit);
  // What is on the chain of `tip` is evicted after everything that is not retained, until then.
  void RetainChain(SegmentId tip, std::uint64_t until_s);
  // Prefixes whose time is over are ordinary ones again.
  void EndRetention(std::uint64_t now_s);
  // Uses that the catalog does not know yet; at most `limit` at a time.
  std::vector<ManifestTouch> TakeTouches(std::size_t limit);
  bool has_touches() const { return !touched_.empty(); }

  // Removes the least recently used durable manifest after `cursor` that `accept` agrees to and
  // whose last segment nobody else needs; retained ones come last. False when there is none.
  bool EvictNext(std::optional<VictimKey>* cursor,
                 const std::function<bool(const Manifest&)>& accept, LedgerRemovals* removals);

  // Removes the segments of a subtree (children before parents, its root last) together with their
  // manifests, needed or not. When something wanted the subtree, the prefix above it becomes a
  // manifest of its own, which is returned: it is new and not durable.
  std::optional<ManifestId> RemoveSubtree(std::span<const SegmentId> ids, LedgerRemovals* removals);

  // Start-up: removes `id` when nothing needs it.
  void RemoveIfUnneeded(SegmentId id, LedgerRemovals* removals);
  // In no order.
  void VisitSegments(
      const std::function<void(SegmentId, const LedgerSegment&)>& visitor) const;

  std::size_t segment_count() const { return segments_.size(); }
  std::size_t manifest_count() const { return manifests_.size(); }
  // At most `limit` manifests with ids above `after`, ascending.
  std::vector<Manifest> ListManifests(ManifestId after, std::size_t limit) const;
  // Ends the process when a count is wrong; for tests. Cost: everything.
  void CheckInvariants() const;

 private:
  static VictimKey KeyOf(const ManifestRow& row);
  ManifestId InsertManifest(Manifest manifest, LedgerSegment& tip);
  void DropManifest(ManifestId id, LedgerRemovals* removals);
  // Changes fields that the victims' order or the catalog's row depend on.
  void Change(Manifest& manifest, const std::function<void(ManifestRow&)>& change);
  void SetLastUse(Manifest& manifest, std::uint64_t last_use);
  // Latest use of the segments that only this manifest keeps.
  std::uint64_t LatestExclusiveUse(const Manifest& manifest) const;
  LedgerSegment& At(SegmentId id);

  std::unordered_map<SegmentId, LedgerSegment> segments_;
  std::map<ManifestId, Manifest> manifests_;
  std::set<VictimKey> victims_;  // durable manifests
  std::set<ManifestId> touched_;
  std::set<std::pair<std::uint64_t, ManifestId>> retained_;  // by the end of the retention
  std::uint64_t next_manifest_ = 1;
  std::uint64_t clock_ = 0;
};

}  // namespace skippy
