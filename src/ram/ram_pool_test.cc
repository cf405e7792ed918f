// Goal: the RAM tier never passes its budget, charges every byte once, shares what is equal,
// refuses by name and never serves what it did not verify (section C of the acceptance list).
// Method: entries are built from small text segments; a random test with several threads compares
// the pool with its own invariants, a sequential one with a plain map model.
#include "ram/ram_pool.h"

#include <gtest/gtest.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "base/hash.h"

namespace skippy {
namespace {

RamKey Key(int n) {
  RamKey key;
  key.bytes[0] = static_cast<std::uint8_t>(n >> 8);
  key.bytes[1] = static_cast<std::uint8_t>(n);
  return key;
}

RamHandle Hold(const std::string& text) {
  auto owner = std::make_shared<std::string>(text);
  const auto bytes = std::as_bytes(std::span<const char>(*owner));
  return {owner, bytes};
}

void AddSegment(RamLayout* layout, RamHandle handle) {
  RamLayoutSegment segment;
  segment.index = static_cast<std::uint32_t>(layout->segments.size());
  segment.offset = layout->total_bytes;
  segment.digest = HashBytes<SegmentDigest>(handle.bytes);
  layout->total_bytes += handle.bytes.size();
  segment.handle = std::move(handle);
  layout->segments.push_back(std::move(segment));
}

RamLayout Layout(const std::vector<std::string>& texts) {
  RamLayout layout;
  for (const std::string& text : texts) {
    AddSegment(&layout, Hold(text));
  }
  layout.rows_bytes = layout.total_bytes;
  layout.token_count = static_cast<TokenCount>(texts.size());
  layout.digest = ComputeLayoutDigest(layout.segments);
  return layout;
}

std::string Wire(const RamLayout& layout) {
  std::string out;
  for (const RamLayoutSegment& segment : layout.segments) {
    out.append(reinterpret_cast<const char*>(segment.handle.bytes.data()),
               segment.handle.bytes.size());
  }
  return out;
}

class RamPoolTest : public ::testing::Test {
 protected:
  ~RamPoolTest() override { pool_.CheckInvariants(); }
  RamRefusal Admit(int key, const std::vector<std::string>& texts) {
    const RamRefusal refusal = pool_.Admit(Key(key), Layout(texts));
    pool_.CheckInvariants();
    EXPECT_LE(pool_.GetStats().resident_bytes, pool_.GetStats().budget_bytes);
    return refusal;
  }
  RamPool pool_{100};
};

// Proves C1, C2, C4, U27.
TEST_F(RamPoolTest, SharesTheSegmentsOfAShorterPrefix) {
  EXPECT_EQ(Admit(1, {"head", "one"}), RamRefusal::kNone);
  EXPECT_EQ(Admit(2, {"head", "one", "two"}), RamRefusal::kNone);
  const RamStats stats = pool_.GetStats();
  EXPECT_EQ(stats.segments, 3U);
  EXPECT_EQ(stats.resident_bytes, 10U);
  EXPECT_EQ(stats.logical_bytes, 17U);
  const auto one = pool_.Peek(Key(1));
  const auto two = pool_.Peek(Key(2));
  EXPECT_EQ(one->segments[0].handle.bytes.data(), two->segments[0].handle.bytes.data());
}

// Proves C3, C15, U30.
TEST_F(RamPoolTest, ChargesASharedSegmentToTheLowestKey) {
  EXPECT_EQ(Admit(5, {"head", "five"}), RamRefusal::kNone);
  EXPECT_EQ(Admit(3, {"head", "three"}), RamRefusal::kNone);
  EXPECT_EQ(pool_.ChargeOf(Key(3)), 9U);
  EXPECT_EQ(pool_.ChargeOf(Key(5)), 4U);
  pool_.Remove(Key(3));
  pool_.CheckInvariants();
  EXPECT_EQ(pool_.ChargeOf(Key(5)), 8U);
}

// Proves C5, R9.
TEST_F(RamPoolTest, ReportsFreedApartFromRetainedBytes) {
  EXPECT_EQ(Admit(1, {"shared", "a"}), RamRefusal::kNone);
  EXPECT_EQ(Admit(2, {"shared", "bb"}), RamRefusal::kNone);
  EXPECT_EQ(Admit(3, {"shared", "ccc"}), RamRefusal::kNone);
  const RamRemoval first = pool_.Remove(Key(2));
  EXPECT_EQ(first.freed_bytes, 2U);
  EXPECT_EQ(first.retained_bytes, 6U);
  const RamRemoval second = pool_.Remove(Key(1));
  EXPECT_EQ(second.freed_bytes, 1U);
  EXPECT_EQ(second.retained_bytes, 6U);
  const RamRemoval last = pool_.Remove(Key(3));
  EXPECT_EQ(last.freed_bytes, 9U);
  EXPECT_EQ(last.retained_bytes, 0U);
}

// Proves C5: a digest that one layout uses twice is counted once.
TEST_F(RamPoolTest, CountsARepeatedDigestOnce) {
  EXPECT_EQ(Admit(1, {"again", "x", "again"}), RamRefusal::kNone);
  EXPECT_EQ(pool_.GetStats().resident_bytes, 6U);
  EXPECT_EQ(pool_.GetStats().logical_bytes, 11U);
  EXPECT_EQ(pool_.Remove(Key(1)).freed_bytes, 6U);
}

// Proves C8, C11, C16, U28, U29, U34.
TEST_F(RamPoolTest, RefusesMalformedLayoutsByName) {
  EXPECT_EQ(pool_.Admit(Key(1), RamLayout{}), RamRefusal::kEmptyPayload);
  RamLayout gap = Layout({"ab", "cd"});
  gap.segments[1].offset = 3;
  EXPECT_EQ(pool_.Admit(Key(1), gap), RamRefusal::kMalformedLayout);
  RamLayout order = Layout({"ab", "cd"});
  std::swap(order.segments[0], order.segments[1]);
  EXPECT_EQ(pool_.Admit(Key(1), order), RamRefusal::kMalformedLayout);
  RamLayout parts = Layout({"ab"});
  parts.checkpoint_bytes = 1;
  EXPECT_EQ(pool_.Admit(Key(1), parts), RamRefusal::kMalformedLayout);
  RamLayout huge = Layout({"ab"});
  huge.rows_bytes = ~0ULL;
  huge.checkpoint_bytes = 3;  // wraps around to the total
  EXPECT_EQ(pool_.Admit(Key(1), huge), RamRefusal::kMalformedLayout);
  RamLayout longer = Layout({"ab"});
  longer.total_bytes = longer.rows_bytes = 3;
  EXPECT_EQ(pool_.Admit(Key(1), longer), RamRefusal::kMalformedLayout);
  RamLayout missing = Layout({"ab", "cd"});
  missing.segments[1].handle.bytes = {};
  EXPECT_EQ(pool_.Admit(Key(1), missing), RamRefusal::kMalformedLayout);
  RamLayout whole = Layout({"ab"});
  whole.digest.bytes[0] ^= 1;
  EXPECT_EQ(pool_.Admit(Key(1), whole), RamRefusal::kDigestMismatch);
  RamLayout bytes = Layout({"ab"});
  bytes.segments[0].handle = Hold("xy");
  EXPECT_EQ(pool_.Admit(Key(1), bytes), RamRefusal::kSegmentDigestMismatch);
  RamLayout kind = Layout({"ab"});
  kind.kind = static_cast<RamPayloadKind>(7);
  EXPECT_EQ(pool_.Admit(Key(1), kind), RamRefusal::kUnknownPayloadKind);
  EXPECT_EQ(pool_.GetStats().entries, 0U);
  EXPECT_EQ(pool_.GetStats().refusals, 10U);
}

// Proves C16 and C20: what was admitted is handed out as it lies there, without another hash.
TEST_F(RamPoolTest, ReadsNeitherHashNorCopy) {
  auto text = std::make_shared<std::string>("good");
  RamLayout layout;
  AddSegment(&layout, {text, std::as_bytes(std::span<const char>(*text))});
  layout.rows_bytes = layout.total_bytes;
  layout.digest = ComputeLayoutDigest(layout.segments);
  ASSERT_EQ(pool_.Admit(Key(1), layout), RamRefusal::kNone);
  (*text)[0] = 'b';
  const auto held = pool_.Get(Key(1));
  ASSERT_NE(held, nullptr);
  EXPECT_EQ(static_cast<const void*>(held->segments[0].handle.bytes.data()), text->data());
}

// Proves C23 and U31: making room looks at the entries that go, however many there are.
TEST(RamPoolCostTest, AnEvictionLooksAtItsVictimsOnly) {
  for (const int entries : {10, 1000}) {
    RamPool pool(10U * static_cast<std::uint64_t>(entries));
    for (int i = 0; i < entries; ++i) {
      std::string text = std::to_string(i);
      text.resize(10, '.');
      ASSERT_EQ(pool.Admit(Key(i), Layout({text})), RamRefusal::kNone);
    }
    int asked = 0;
    std::vector<RamEvicted> evicted;
    ASSERT_TRUE(pool.Reserve(
        30, [&](const RamKey&) { return ++asked > 0; }, &evicted));
    EXPECT_EQ(evicted.size(), 3U);
    EXPECT_EQ(asked, 3) << entries << " entries";
    pool.CheckInvariants();
  }
}

// Proves C9, C10: the content is compared, not the digest's text.
TEST_F(RamPoolTest, RefusesAPooledDigestWithOtherBytes) {
  RamLayout layout;
  auto text = std::make_shared<std::string>("good");
  AddSegment(&layout, {text, std::as_bytes(std::span<const char>(*text))});
  layout.rows_bytes = layout.total_bytes;
  layout.digest = ComputeLayoutDigest(layout.segments);
  ASSERT_EQ(pool_.Admit(Key(1), layout), RamRefusal::kNone);
  (*text)[0] = 'b';  // the pooled memory went bad
  EXPECT_EQ(pool_.Admit(Key(2), Layout({"good"})), RamRefusal::kConflictingSegment);
  EXPECT_EQ(pool_.GetStats().entries, 1U);
}

// Proves C11: named, and nothing changes.
TEST_F(RamPoolTest, RefusesWhatCannotFit) {
  EXPECT_EQ(Admit(1, {std::string(60, 'a')}), RamRefusal::kNone);
  EXPECT_EQ(Admit(2, {std::string(101, 'b')}), RamRefusal::kOverBudget);
  const auto held = pool_.Get(Key(1));
  EXPECT_EQ(Admit(3, {std::string(50, 'c')}), RamRefusal::kProtectedOvercommit);
  EXPECT_EQ(pool_.GetStats().entries, 1U);
  EXPECT_EQ(Wire(*held), std::string(60, 'a'));
}

// Proves C11, R9: shared bytes are protected while their entry makes room for itself.
TEST_F(RamPoolTest, RefusesWhenProtectedBytesPlusNewOnesPassTheBudget) {
  EXPECT_EQ(Admit(1, {std::string(70, 'a')}), RamRefusal::kNone);
  EXPECT_EQ(Admit(2, {std::string(70, 'a'), std::string(40, 'b')}),
            RamRefusal::kProtectedOvercommit);
  EXPECT_NE(pool_.Peek(Key(1)), nullptr);
}

// Proves C12, C13: three rounds keep segments and bytes constant, and the wire still serves.
TEST_F(RamPoolTest, ReadmittingTheSameBytesKeepsThem) {
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(Admit(1, {"alpha", "beta"}), RamRefusal::kNone);
    EXPECT_EQ(pool_.GetStats().segments, 2U);
    EXPECT_EQ(pool_.GetStats().resident_bytes, 9U);
    EXPECT_EQ(Wire(*pool_.Get(Key(1))), "alphabeta");
  }
  EXPECT_EQ(pool_.GetStats().evictions, 0U);
}

// Proves C14: one byte short, the victim goes, the shared prefix stays byte for byte.
TEST_F(RamPoolTest, KeepsSegmentsSharedWithItsVictim) {
  const std::string head(40, 'h');
  EXPECT_EQ(Admit(1, {head, std::string(30, 'x')}), RamRefusal::kNone);
  EXPECT_EQ(Admit(2, {head, std::string(31, 'y')}), RamRefusal::kNone);
  EXPECT_EQ(pool_.Peek(Key(1)), nullptr);
  EXPECT_EQ(pool_.GetStats().evictions, 1U);
  EXPECT_EQ(Wire(*pool_.Peek(Key(2))), head + std::string(31, 'y'));
  EXPECT_EQ(pool_.ChargeOf(Key(2)), 71U);
}

// Proves C17, C18, C22.
TEST_F(RamPoolTest, OnlyASuccessfulGetAdvancesRecency) {
  for (int key = 1; key <= 4; ++key) {
    EXPECT_EQ(Admit(key, {std::string(25, static_cast<char>('a' + key))}), RamRefusal::kNone);
  }
  EXPECT_NE(pool_.Peek(Key(1)), nullptr);
  EXPECT_EQ(pool_.Get(Key(9)), nullptr);
  EXPECT_EQ(pool_.GetStats().misses, 1U);
  EXPECT_EQ(pool_.GetStats().hits, 0U);
  EXPECT_NE(pool_.Get(Key(2)), nullptr);
  EXPECT_EQ(Admit(5, {std::string(50, 'z')}), RamRefusal::kNone);
  EXPECT_EQ(pool_.Peek(Key(1)), nullptr);
  EXPECT_EQ(pool_.Peek(Key(3)), nullptr);
  EXPECT_NE(pool_.Peek(Key(2)), nullptr);
  EXPECT_NE(pool_.Peek(Key(4)), nullptr);
}

// Proves C20, C21, U32: views of the pooled memory, always of full length, also after removal.
TEST_F(RamPoolTest, AHeldLayoutOutlivesItsRemoval) {
  EXPECT_EQ(Admit(1, {"left", "right"}), RamRefusal::kNone);
  auto held = pool_.Get(Key(1));
  const RamRemoval removal = pool_.Remove(Key(1));
  EXPECT_EQ(removal.freed_bytes, 0U);
  EXPECT_EQ(removal.retained_bytes, 9U);
  EXPECT_EQ(Wire(*held), "leftright");
  EXPECT_EQ(pool_.GetStats().detached_bytes, 9U);
  EXPECT_EQ(Admit(2, {std::string(95, 'n')}), RamRefusal::kProtectedOvercommit);
  held.reset();
  EXPECT_EQ(pool_.GetStats().detached_bytes, 0U);
  EXPECT_EQ(Admit(2, {std::string(95, 'n')}), RamRefusal::kNone);
}

// Proves C31: bytes that went bad take every entry with them.
TEST_F(RamPoolTest, RemovesEveryEntryOfABadSegment) {
  EXPECT_EQ(Admit(1, {"bad", "one"}), RamRefusal::kNone);
  EXPECT_EQ(Admit(2, {"bad", "two"}), RamRefusal::kNone);
  EXPECT_EQ(Admit(3, {"good"}), RamRefusal::kNone);
  const RamRemoval removal = pool_.RemoveSegment(Layout({"bad"}).segments[0].digest);
  EXPECT_TRUE(removal.found);
  EXPECT_EQ(removal.freed_bytes, 9U);
  EXPECT_EQ(pool_.GetStats().entries, 1U);
}

TEST_F(RamPoolTest, AShrinkEvictsAtOnceAndAdmitsNothingAbove) {
  EXPECT_EQ(Admit(1, {std::string(40, 'a')}), RamRefusal::kNone);
  EXPECT_EQ(Admit(2, {std::string(40, 'b')}), RamRefusal::kNone);
  pool_.SetBudget(50);
  EXPECT_EQ(pool_.Peek(Key(1)), nullptr);
  EXPECT_NE(pool_.Peek(Key(2)), nullptr);
  EXPECT_EQ(Admit(3, {std::string(60, 'c')}), RamRefusal::kOverBudget);
  pool_.SetBudget(0);
  EXPECT_EQ(pool_.GetStats().resident_bytes, 0U);
  EXPECT_EQ(Admit(4, {"x"}), RamRefusal::kDisabled);
}

// Proves C24, U33: what is refused is never seen in the counters of what happened.
TEST_F(RamPoolTest, ARefusalEvictsNothing) {
  EXPECT_EQ(Admit(1, {std::string(30, 'a')}), RamRefusal::kNone);
  EXPECT_EQ(Admit(2, {std::string(60, 'b')}), RamRefusal::kNone);
  const auto held = pool_.Get(Key(2));
  EXPECT_EQ(Admit(3, {std::string(50, 'c')}), RamRefusal::kProtectedOvercommit);
  EXPECT_EQ(pool_.GetStats().evictions, 0U);
  EXPECT_NE(pool_.Peek(Key(1)), nullptr);
}

// A plain model: recency list of (key, distinct texts), evicted front first.
class Model {
 public:
  explicit Model(std::uint64_t budget_bytes) : budget_bytes_(budget_bytes) {}
  bool Admit(int key, const std::vector<std::string>& texts) {
    if (Bytes({{key, texts}}) > budget_bytes_) {
      return false;
    }
    std::erase_if(order_, [&](const auto& entry) { return entry.first == key; });
    order_.emplace_back(key, texts);
    while (Bytes(order_) > budget_bytes_) {
      order_.erase(order_.begin());
    }
    return true;
  }
  void SetBudget(std::uint64_t budget_bytes) {
    budget_bytes_ = budget_bytes;
    while (Bytes(order_) > budget_bytes_) {
      order_.erase(order_.begin());
    }
  }
  void Touch(int key) {
    const auto it = std::find_if(order_.begin(), order_.end(),
                                 [&](const auto& entry) { return entry.first == key; });
    if (it != order_.end()) {
      std::rotate(it, it + 1, order_.end());
    }
  }
  void Remove(int key) {
    std::erase_if(order_, [&](const auto& entry) { return entry.first == key; });
  }
  std::set<int> Keys() const {
    std::set<int> keys;
    for (const auto& entry : order_) {
      keys.insert(entry.first);
    }
    return keys;
  }

 private:
  using Order = std::vector<std::pair<int, std::vector<std::string>>>;
  static std::uint64_t Bytes(const Order& order) {
    std::set<std::string> distinct;
    for (const auto& entry : order) {
      distinct.insert(entry.second.begin(), entry.second.end());
    }
    std::uint64_t total = 0;
    for (const std::string& text : distinct) {
      total += text.size();
    }
    return total;
  }
  std::uint64_t budget_bytes_;
  Order order_;
};

std::vector<std::string> RandomTexts(std::mt19937* random) {
  std::vector<std::string> texts;
  const int count = 1 + static_cast<int>((*random)() % 4);
  for (int i = 0; i < count; ++i) {
    const unsigned which = (*random)() % 12;
    texts.push_back(std::string(3 + which, static_cast<char>('a' + which)));
  }
  return texts;
}

// Proves C22: identical sequences of operations evict identically (the model is one of them).
TEST(RamPoolModelTest, AgreesWithAPlainModel) {
  const unsigned seed = 20261130;
  RecordProperty("seed", static_cast<int>(seed));
  std::mt19937 random(seed);
  RamPool pool(60);
  Model model(60);
  for (int step = 0; step < 5000; ++step) {
    const int key = static_cast<int>(random() % 10);
    switch (random() % 5) {
      case 4: {
        const std::uint64_t budget_bytes = 40 + random() % 40;
        pool.SetBudget(budget_bytes);
        model.SetBudget(budget_bytes);
        break;
      }
      case 0:
      case 1: {
        const auto texts = RandomTexts(&random);
        EXPECT_EQ(pool.Admit(Key(key), Layout(texts)) == RamRefusal::kNone,
                  model.Admit(key, texts));
        break;
      }
      case 2:
        pool.Get(Key(key));
        model.Touch(key);
        break;
      default:
        pool.Remove(Key(key));
        model.Remove(key);
    }
    pool.CheckInvariants();
    for (int other = 0; other < 10; ++other) {
      ASSERT_EQ(pool.Peek(Key(other)) != nullptr, model.Keys().contains(other)) << "step " << step;
    }
  }
}

// Nanoseconds for one admission that must evict one entry, with `entries` of them in the pool that
// all share a head.
double AdmissionNs(int entries) {
  constexpr int kAdmissions = 2000;
  const auto text = [](int n) { return fmt::format("{:08}", n); };
  RamPool pool(8 + 8 * static_cast<std::uint64_t>(entries));
  for (int i = 0; i < entries; ++i) pool.Admit(Key(i), Layout({"one head", text(i)}));
  EXPECT_EQ(pool.GetStats().entries, static_cast<std::uint64_t>(entries));
  std::vector<RamLayout> layouts;
  for (int i = 0; i < kAdmissions; ++i) layouts.push_back(Layout({"one head", text(entries + i)}));
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kAdmissions; ++i) {
    EXPECT_EQ(pool.Admit(Key(entries + i), std::move(layouts[static_cast<std::size_t>(i)])),
              RamRefusal::kNone);
  }
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(pool.GetStats().evictions, static_cast<std::uint64_t>(kAdmissions));
  pool.CheckInvariants();
  return spent.count() / kAdmissions;
}

// Proves C23, U31: recomputing every charge would make this ratio some 400.
TEST(RamPoolScaleTest, AnEvictionDoesNotGrowWithTheNumberOfEntries) {
  const double few = AdmissionNs(50);
  const double many = AdmissionNs(20000);
  std::printf("admission with eviction: 50 entries %.0f ns, 20000 entries %.0f ns\n", few, many);
  EXPECT_LT(many, 20 * few);
}

// One of the operations that change what is there; the keys that left because of it.
std::vector<RamKey> Step(RamPool* pool, std::mt19937* random) {
  std::vector<RamKey> gone;
  const RamKey key = Key(static_cast<int>((*random)() % 40));
  switch ((*random)() % 5) {
    case 0:
      pool->Admit(key, Layout(RandomTexts(random)));
      break;
    case 1:
      pool->Remove(key);
      break;
    case 2: {
      for (const RamEvicted& entry : pool->SetBudget(100 + (*random)() % 100)) {
        gone.push_back(entry.key);
      }
      break;
    }
    default:
      pool->Get(key);
  }
  return gone;
}

// Proves C22: two pools that were asked the same evict the same, in the same order.
TEST(RamPoolModelTest, IdenticalOperationsEvictIdentically) {
  constexpr unsigned kSeed = 20261201;
  RecordProperty("seed", static_cast<int>(kSeed));
  std::mt19937 random_a(kSeed);
  std::mt19937 random_b(kSeed);
  RamPool a(150);
  RamPool b(150);
  for (int step = 0; step < 20000; ++step) {
    ASSERT_EQ(Step(&a, &random_a), Step(&b, &random_b)) << "step " << step;
    const RamStats stats_a = a.GetStats();
    const RamStats stats_b = b.GetStats();
    ASSERT_EQ(stats_a.evictions, stats_b.evictions) << "step " << step;
    ASSERT_EQ(stats_a.resident_bytes, stats_b.resident_bytes) << "step " << step;
    ASSERT_LE(stats_a.resident_bytes, stats_a.budget_bytes);
  }
  EXPECT_GT(a.GetStats().evictions, 100U);
  for (int key = 0; key < 40; ++key) {
    EXPECT_EQ(a.Peek(Key(key)) != nullptr, b.Peek(Key(key)) != nullptr) << key;
  }
}

// One thread's random operations, and its model of the keys that only it changes: such a key is
// absent, because others made room, or has what was admitted last.
class HammerThread {
 public:
  static constexpr int kOwnKeys = 5;

  HammerThread(RamPool* pool, int index, unsigned seed)
      : pool_(pool), first_key_(index * kOwnKeys), random_(seed) {}

  // False when the pool was seen in a state that it may not be in.
  bool Run(int operations) {
    bool good = true;
    for (int i = 0; i < operations; ++i) good = Once() && good;
    return good;
  }

 private:
  bool Once() {
    const int own = first_key_ + static_cast<int>(random_() % kOwnKeys);
    switch (random_() % 9) {
      case 0:
      case 1:
      case 2: {
        RamLayout layout = Layout(RandomTexts(&random_));
        const LayoutDigest digest = layout.digest;
        if (pool_->Admit(Key(own), std::move(layout)) == RamRefusal::kNone) admitted_[own] = digest;
        return true;
      }
      case 3:
        pool_->Remove(Key(own));
        admitted_.erase(own);
        return pool_->Peek(Key(own)) == nullptr;
      case 4:
        pool_->SetBudget(150 + random_() % 50);
        return true;
      case 5:
        ReserveAndAdmit(own);
        return true;
      case 6:
        return Holds(pool_->Get(Key(own)), own);
      default:
        return IsWhole(pool_->Get(Key(static_cast<int>(random_() % 40))).get());
    }
  }

  // Room first, bytes later, as a recording does it.
  void ReserveAndAdmit(int key) {
    const RamHandle handle = Hold(RandomTexts(&random_).front());
    std::vector<RamEvicted> evicted;
    auto room = pool_->Reserve(handle.bytes.size(), {}, &evicted);
    evicted.clear();
    if (!room || random_() % 4 == 0) return;
    HashedBytes bytes(handle);
    RamLayout expected;
    expected.segments.push_back({.digest = bytes.digest(), .handle = bytes.handle()});
    const LayoutDigest digest = ComputeLayoutDigest(expected.segments);
    if (pool_->AdmitSegment(Key(key), {}, std::move(bytes), *std::move(room)) ==
        RamRefusal::kNone) {
      admitted_[key] = digest;
    }
  }

  bool Holds(const std::shared_ptr<const RamLayout>& layout, int key) const {
    if (layout == nullptr) return true;
    const auto known = admitted_.find(key);
    return known != admitted_.end() && layout->digest == known->second && IsWhole(layout.get());
  }

  static bool IsWhole(const RamLayout* layout) {
    return layout == nullptr ||
           (ComputeLayoutDigest(layout->segments) == layout->digest &&
            std::ranges::all_of(layout->segments, [](const RamLayoutSegment& segment) {
              return HashBytes<SegmentDigest>(segment.handle.bytes) == segment.digest;
            }));
  }

  RamPool* const pool_;
  const int first_key_;
  std::mt19937 random_;
  std::map<int, LayoutDigest> admitted_;
};

// 100,000 operations. Proves C4, C12 under concurrency: the budget holds at every sample, charges
// at every quiet point.
TEST(RamPoolModelTest, HoldsItsBudgetUnderEightThreads) {
  constexpr int kThreads = 8;
  constexpr int kQuietPoints = 25;
  constexpr int kOperationsBetween = 500;
  constexpr std::uint64_t kLargestBudget = 200;
  RamPool pool(kLargestBudget);
  std::atomic<bool> good{true};
  std::atomic<bool> done{false};
  std::thread sampler([&] {
    while (!done) {
      const RamStats stats = pool.GetStats();
      if (stats.resident_bytes + stats.detached_bytes + stats.reserved_bytes > kLargestBudget) {
        good = false;
      }
      std::this_thread::yield();
    }
  });
  std::vector<HammerThread> hammers;
  for (int t = 0; t < kThreads; ++t) hammers.emplace_back(&pool, t, static_cast<unsigned>(77 + t));
  for (int round = 0; round < kQuietPoints; ++round) {
    std::vector<std::thread> threads;
    for (HammerThread& hammer : hammers) {
      threads.emplace_back([&] {
        if (!hammer.Run(kOperationsBetween)) good = false;
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    pool.CheckInvariants();
    const RamStats stats = pool.GetStats();
    ASSERT_EQ(stats.detached_bytes + stats.reserved_bytes, 0U);
    ASSERT_LE(stats.resident_bytes, stats.budget_bytes);
  }
  done = true;
  sampler.join();
  EXPECT_TRUE(good);
}

// Proves C12: room is set aside with the victims it needs, or nothing happens.
TEST_F(RamPoolTest, AReservationIsPartOfTheBudgetUntilItIsAdmitted) {
  EXPECT_EQ(Admit(1, {std::string(40, 'a')}), RamRefusal::kNone);
  EXPECT_EQ(Admit(2, {std::string(40, 'b')}), RamRefusal::kNone);
  std::vector<RamEvicted> evicted;
  EXPECT_FALSE(pool_.Reserve(101, {}, &evicted));
  auto room = pool_.Reserve(60, {}, &evicted);
  ASSERT_TRUE(room);
  ASSERT_EQ(evicted.size(), 1U);
  EXPECT_EQ(evicted.front().key, Key(1));
  EXPECT_EQ(pool_.GetStats().reserved_bytes, 60U);
  EXPECT_EQ(Admit(3, {std::string(41, 'c')}), RamRefusal::kProtectedOvercommit);
  EXPECT_EQ(
      pool_.AdmitSegment(Key(4), {}, HashedBytes(Hold(std::string(60, 'd'))), *std::move(room)),
      RamRefusal::kNone);
  EXPECT_EQ(pool_.GetStats().reserved_bytes, 0U);
  EXPECT_EQ(pool_.GetStats().resident_bytes, 100U);
}

// Proves C6.
TEST_F(RamPoolTest, AnEntryTellsWhereItsBytesCameFrom) {
  for (const RamOrigin origin : {RamOrigin::kDiskFill, RamOrigin::kRecorded}) {
    std::vector<RamEvicted> evicted;
    auto room = pool_.Reserve(5, {}, &evicted);
    ASSERT_TRUE(room);
    const RamKey key = Key(static_cast<int>(origin));
    EXPECT_EQ(
        pool_.AdmitSegment(key, {.origin = origin}, HashedBytes(Hold("bytes")), *std::move(room)),
        RamRefusal::kNone);
    EXPECT_EQ(pool_.Peek(key)->origin, origin);
  }
}

TEST_F(RamPoolTest, AReservationThatIsDroppedGivesItsRoomBack) {
  std::vector<RamEvicted> evicted;
  pool_.Reserve(100, {}, &evicted).reset();
  EXPECT_EQ(pool_.GetStats().reserved_bytes, 0U);
  EXPECT_EQ(Admit(1, {std::string(100, 'a')}), RamRefusal::kNone);
}

// Proves C14: what the filter protects stays, and what goes because of others goes with them.
TEST_F(RamPoolTest, TheFilterDecidesWhoMayBeEvicted) {
  EXPECT_EQ(Admit(1, {std::string(40, 'a')}), RamRefusal::kNone);
  EXPECT_EQ(Admit(2, {std::string(40, 'b')}), RamRefusal::kNone);
  std::vector<RamEvicted> evicted;
  const auto nobody = [](const RamKey&) { return false; };
  EXPECT_FALSE(pool_.Reserve(50, nobody, &evicted));
  EXPECT_EQ(pool_.GetStats().evictions, 0U);
  // 1 may go only after 2.
  bool second_gone = false;
  const auto in_order = [&](const RamKey& key) {
    second_gone = second_gone || key == Key(2);
    return second_gone;
  };
  ASSERT_TRUE(pool_.Reserve(90, in_order, &evicted));
  ASSERT_EQ(evicted.size(), 2U);
  EXPECT_EQ(evicted.front().key, Key(2));
}

}  // namespace
}  // namespace skippy
