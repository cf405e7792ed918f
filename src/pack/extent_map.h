// A set of block ranges over all packs, kept merged: which blocks are free (or quarantined). Pure
// memory, no I/O.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "pack/pack_store.h"

namespace skippy {

// Not thread-safe. Invariant: no two ranges overlap or touch within a pack; every operation costs
// O(log ranges) per range it changes.
class ExtentMap {
 public:
  // Adds a non-empty range of which no block may be in the map yet, and merges it with neighbours.
  void Add(const Extent& extent);
  // Takes a range out. False, and nothing changes, unless every block of it is in the map.
  bool Take(const Extent& extent);
  // Takes `block_count` blocks out: the smallest range that holds them all, lowest first; failing
  // that as few ranges as possible. nullopt, and nothing changes, when there are not enough.
  std::optional<ExtentList> Allocate(std::uint64_t block_count);
  // Takes at most `block_count` blocks out, in one range: of the largest one, or of the last one of
  // the last pack. The map must not be empty.
  Extent TakeSome(std::uint64_t block_count);
  Extent TakeLast(std::uint64_t block_count);
  // Takes out all ranges of a pack.
  std::vector<Extent> TakeAllOf(PackId pack);
  // The parts of `extent` that are not in the map, ascending.
  std::vector<Extent> PartsMissing(const Extent& extent) const;

  std::uint64_t block_count() const { return block_count_; }
  // Blocks of one pack that are in the map.
  std::uint64_t BlocksOf(PackId pack) const;
  std::size_t range_count() const { return by_place_.size(); }

 private:
  struct Place {
    PackId pack{};
    std::uint32_t first_block = 0;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  struct Sized {
    std::uint32_t block_count = 0;
    Place place;
    friend auto operator<=>(const Sized&, const Sized&) = default;
  };
  using Ranges = std::map<Place, std::uint32_t>;  // -> number of blocks

  // The range that holds `place`, or the first one after it.
  Ranges::const_iterator FirstEndingAfter(const Place& place) const;
  void Insert(const Extent& extent);
  void Erase(const Extent& extent);
  // Takes the first `block_count` blocks of a whole range.
  Extent TakeFrom(const Sized& range, std::uint32_t block_count);

  Ranges by_place_;
  std::set<Sized> by_size_;
  std::map<PackId, std::uint64_t> blocks_of_;
  std::uint64_t block_count_ = 0;
};

}  // namespace skippy
