// Goal: reference counts, pins and the order of eviction. Method: small scripts, then random
// operations against a plain model that recomputes everything.
#include "cache/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace skippy {
namespace {

SegmentId Id(std::uint64_t value) { return static_cast<SegmentId>(value); }

class LedgerTest : public testing::Test {
 protected:
  void Add(std::uint64_t id, std::uint64_t parent) {
    TokenCount first = 0;
    if (parent != 0) first = ledger_.FindSegment(Id(parent))->end();
    ledger_.AddSegment(Id(id), {.domain = DomainId{1},
                                .parent = Id(parent),
                                .first_token = first,
                                .token_count = 10,
                                .byte_count = 100});
  }
  // A durable manifest at the end of `tip`.
  ManifestId Publish(std::uint64_t tip) {
    const auto added = ledger_.AddManifest(Id(tip), ledger_.FindSegment(Id(tip))->end());
    ledger_.TouchChain(Id(tip), false);
    if (added.is_new) ledger_.MarkDurable(added.id);
    return added.id;
  }
  std::vector<SegmentId> EvictOne() {
    std::optional<Ledger::VictimKey> cursor;
    LedgerRemovals removals;
    ledger_.EvictNext(
        &cursor, [](const Ledger::Manifest&) { return true; }, &removals);
    ledger_.CheckInvariants();
    return IdsOf(removals);
  }
  using Ids = std::vector<SegmentId>;
  static Ids IdsOf(const LedgerRemovals& removals) {
    Ids ids;
    for (const LedgerRemovals::Segment& segment : removals.segments) {
      EXPECT_EQ(segment.byte_count, 100U);
      ids.push_back(segment.id);
    }
    return ids;
  }

  Ledger ledger_;
};

TEST_F(LedgerTest, RemovesAChainChildrenFirstWhenItsManifestGoes) {
  Add(1, 0);
  Add(2, 1);
  Publish(2);
  EXPECT_EQ(ledger_.FindSegment(Id(2))->chain_bytes, 200U);
  EXPECT_EQ(EvictOne(), (Ids{Id(2), Id(1)}));
  EXPECT_EQ(ledger_.segment_count(), 0U);
}

TEST_F(LedgerTest, KeepsASharedHead) {
  Add(1, 0);
  Add(2, 1);
  Add(3, 1);
  Publish(2);
  Publish(3);
  EXPECT_EQ(EvictOne(), Ids{Id(2)});
  EXPECT_EQ(EvictOne(), (Ids{Id(3), Id(1)}));
}

TEST_F(LedgerTest, EvictsWhatIsRetainedLastUntilItsTimeIsOver) {
  for (std::uint64_t id = 1; id <= 4; ++id) {
    Add(id, 0);
    Publish(id);
  }
  ledger_.RetainChain(Id(1), 100);
  ledger_.RetainChain(Id(2), 200);
  ledger_.RetainChain(Id(2), 150);  // an earlier end changes nothing
  ledger_.CheckInvariants();
  EXPECT_EQ(EvictOne(), Ids{Id(3)});
  ledger_.EndRetention(150);
  ledger_.CheckInvariants();
  EXPECT_EQ(EvictOne(), Ids{Id(1)}) << "ordinary again, and the least recently used";
  EXPECT_EQ(EvictOne(), Ids{Id(4)});
  EXPECT_EQ(EvictOne(), Ids{Id(2)});
}

TEST_F(LedgerTest, EvictsLeafFirstAmongManifestsOfOneChain) {
  Add(1, 0);
  Publish(1);
  Add(2, 1);
  Publish(2);
  ledger_.TouchChain(Id(2), true);
  EXPECT_EQ(EvictOne(), Ids{Id(2)});
  EXPECT_EQ(EvictOne(), Ids{Id(1)});
}

// Proves D19.
TEST_F(LedgerTest, SkipsWhatIsPinnedAndWhatIsNotDurable) {
  Add(1, 0);
  Publish(1);
  Add(2, 0);
  ledger_.AddManifest(Id(2), 10);
  Add(3, 0);
  Publish(3);
  ledger_.Pin(Id(1));
  EXPECT_EQ(EvictOne(), Ids{Id(3)});
  EXPECT_EQ(EvictOne(), Ids{});
  LedgerRemovals removals;
  ledger_.Unpin(Id(1), &removals);
  EXPECT_TRUE(removals.segments.empty());
  EXPECT_EQ(EvictOne(), Ids{Id(1)});
}

TEST_F(LedgerTest, RemovesAnUnpublishedSegmentWithItsLastPin) {
  Add(1, 0);
  ledger_.Pin(Id(1));
  LedgerRemovals removals;
  ledger_.Unpin(Id(1), &removals);
  EXPECT_EQ(IdsOf(removals), Ids{Id(1)});
  ledger_.Unpin(Id(1), &removals);  // gone: no effect
}

TEST_F(LedgerTest, KeepsAHeadThatIsUsedAlthoughItsEndIsNot) {
  Add(1, 0);
  Add(2, 1);
  Publish(2);
  Add(3, 0);
  Publish(3);
  ledger_.TouchChain(Id(1), true);  // no manifest ends there
  EXPECT_EQ(EvictOne(), Ids{Id(3)});
}

TEST_F(LedgerTest, FindsAManifestThatIsThereAlready) {
  Add(1, 0);
  const ManifestId first = Publish(1);
  EXPECT_EQ(Publish(1), first);
  EXPECT_EQ(ledger_.manifest_count(), 1U);
}

TEST_F(LedgerTest, ShortensAPrefixWhoseEndIsLost) {
  Add(1, 0);
  Add(2, 1);
  Add(3, 2);
  Publish(3);
  LedgerRemovals removals;
  const Ids lost = {Id(3), Id(2)};
  const auto shortened = ledger_.RemoveSubtree(lost, &removals);
  ASSERT_TRUE(shortened);
  EXPECT_EQ(ledger_.FindManifest(*shortened)->row.tip, Id(1));
  EXPECT_EQ(ledger_.FindManifest(*shortened)->row.token_count, 10);
  EXPECT_EQ(IdsOf(removals), lost);
  EXPECT_EQ(removals.durable_manifests.size(), 1U);
  ledger_.CheckInvariants();
}

TEST_F(LedgerTest, EvictsAShortenedPrefixOfARecordingBeforeItsAncestors) {
  Add(1, 0);
  Publish(1);
  Add(2, 1);
  Add(3, 2);
  ledger_.Pin(Id(3));
  LedgerRemovals removals;
  const Ids lost = {Id(3)};
  const auto shortened = ledger_.RemoveSubtree(lost, &removals);
  ASSERT_TRUE(shortened && ledger_.MarkDurable(*shortened));
  EXPECT_EQ(EvictOne(), Ids{Id(2)});
  EXPECT_EQ(EvictOne(), Ids{Id(1)});
}

// Proves D18.
TEST_F(LedgerTest, RefusesAManifestThatDoesNotFitItsSegment) {
  Add(1, 0);
  ledger_.Pin(Id(1));
  const ManifestRow row{
      .id = ManifestId{5}, .domain = DomainId{1}, .tip = Id(1), .token_count = 10};
  ManifestRow longer = row;
  longer.token_count = 11;
  ManifestRow elsewhere = row;
  elsewhere.tip = Id(9);
  ManifestRow foreign = row;
  foreign.domain = DomainId{2};
  EXPECT_FALSE(ledger_.RestoreManifest(longer));
  EXPECT_FALSE(ledger_.RestoreManifest(elsewhere));
  EXPECT_FALSE(ledger_.RestoreManifest(foreign));
  EXPECT_TRUE(ledger_.RestoreManifest(row));
}

TEST_F(LedgerTest, ReportsEachUseOnce) {
  Add(1, 0);
  const ManifestId id = Publish(1);
  ledger_.TakeTouches(10);
  ledger_.TouchChain(Id(1), true);
  const auto touches = ledger_.TakeTouches(10);
  ASSERT_EQ(touches.size(), 1U);
  EXPECT_EQ(touches[0].id, id);
  EXPECT_EQ(touches[0].hits, 1U);
  EXPECT_TRUE(ledger_.TakeTouches(10).empty());
}

// Which segments must be there, from manifests and pins alone.
class LedgerModel {
 public:
  std::map<std::uint64_t, std::uint64_t> parents;
  std::map<std::uint64_t, int> pins;
  std::map<ManifestId, std::uint64_t> tips;

  std::set<std::uint64_t> Needed() const {
    std::set<std::uint64_t> out;
    const auto need = [&](std::uint64_t id) {
      while (id != 0 && out.insert(id).second) id = parents.at(id);
    };
    for (const auto& [id, count] : pins) {
      if (count > 0) need(id);
    }
    for (const auto& [manifest, tip] : tips) need(tip);
    return out;
  }
};

TEST(LedgerModelTest, AgreesWithRecomputedReferences) {
  constexpr std::uint32_t kSeed = 20240611;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  Ledger ledger;
  LedgerModel model;
  std::uint64_t next = 1;
  const auto pick = [&](const std::set<std::uint64_t>& from) {
    return *std::next(from.begin(), static_cast<std::ptrdiff_t>(random() % from.size()));
  };
  for (int step = 0; step < 1500; ++step) {
    const std::set<std::uint64_t> here = model.Needed();
    LedgerRemovals removals;
    const unsigned action = random() % 6;
    if (action <= 1 || here.empty()) {
      const std::uint64_t parent = here.empty() || random() % 4 == 0 ? 0 : pick(here);
      const TokenCount first = parent == 0 ? 0 : ledger.FindSegment(Id(parent))->end();
      ledger.AddSegment(
          Id(next),
          {.parent = Id(parent), .first_token = first, .token_count = 1, .byte_count = 1});
      ledger.Pin(Id(next));
      model.parents[next] = parent;
      model.pins[next] = 1;
      ++next;
    } else if (action == 2) {
      const std::uint64_t tip = pick(here);
      const auto added = ledger.AddManifest(Id(tip), ledger.FindSegment(Id(tip))->end());
      ledger.TouchChain(Id(tip), false);
      if (added.is_new) ledger.MarkDurable(added.id);
      model.tips[added.id] = tip;
    } else if (action == 3) {
      const std::uint64_t id = pick(here);
      if (model.pins[id] > 0) {
        --model.pins[id];
        ledger.Unpin(Id(id), &removals);
      }
    } else if (action == 4) {
      std::optional<Ledger::VictimKey> cursor;
      ledger.EvictNext(
          &cursor, [](const Ledger::Manifest&) { return true; }, &removals);
      for (const ManifestId id : removals.durable_manifests) model.tips.erase(id);
    } else {
      ledger.TouchChain(Id(pick(here)), true);
    }
    std::set<std::uint64_t> expected_gone = here;
    for (const std::uint64_t id : model.Needed()) expected_gone.erase(id);
    std::set<std::uint64_t> gone;
    for (const auto& segment : removals.segments) {
      gone.insert(static_cast<std::uint64_t>(segment.id));
    }
    ASSERT_EQ(gone, expected_gone) << "step " << step;
    if (step % 16 == 0) ledger.CheckInvariants();
  }
}

}  // namespace
}  // namespace skippy
