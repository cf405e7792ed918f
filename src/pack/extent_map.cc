#include "pack/extent_map.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>

#include "base/check.h"

namespace skippy {
namespace {

// One past the last block; 64 bits wide because a range may end at block 2^32.
std::uint64_t EndOf(const Extent& extent) {
  return std::uint64_t{extent.first_block} + extent.block_count;
}

std::string Describe(const Extent& extent) {
  return "pack " + std::to_string(static_cast<std::uint32_t>(extent.pack)) + " block " +
         std::to_string(extent.first_block) + " count " + std::to_string(extent.block_count);
}

Extent RangeOf(PackId pack, std::uint64_t first_block, std::uint64_t end_block) {
  return Extent{pack, static_cast<std::uint32_t>(first_block),
                static_cast<std::uint32_t>(end_block - first_block)};
}

}  // namespace

ExtentMap::Ranges::const_iterator ExtentMap::FirstEndingAfter(const Place& place) const {
  auto it = by_place_.upper_bound(place);
  if (it != by_place_.begin()) {
    const auto before = std::prev(it);
    if (before->first.pack == place.pack &&
        std::uint64_t{before->first.first_block} + before->second > place.first_block) {
      return before;
    }
  }
  return it;
}

void ExtentMap::Insert(const Extent& extent) {
  const Place place{extent.pack, extent.first_block};
  by_place_.emplace(place, extent.block_count);
  by_size_.insert(Sized{extent.block_count, place});
  blocks_of_[extent.pack] += extent.block_count;
  block_count_ += extent.block_count;
}

void ExtentMap::Erase(const Extent& extent) {
  const Place place{extent.pack, extent.first_block};
  by_place_.erase(place);
  by_size_.erase(Sized{extent.block_count, place});
  const auto total = blocks_of_.find(extent.pack);
  total->second -= extent.block_count;
  if (total->second == 0) {
    blocks_of_.erase(total);
  }
  block_count_ -= extent.block_count;
}

void ExtentMap::Add(const Extent& extent) {
  SKIPPY_CHECK(extent.block_count > 0, Describe(extent));
  std::uint64_t first = extent.first_block;
  std::uint64_t end = EndOf(extent);
  auto next = FirstEndingAfter(Place{extent.pack, extent.first_block});
  SKIPPY_CHECK(
      next == by_place_.end() || next->first.pack != extent.pack || next->first.first_block >= end,
      Describe(extent) + " is in the map already");
  if (next != by_place_.begin()) {
    const auto before = std::prev(next);
    if (before->first.pack == extent.pack &&
        std::uint64_t{before->first.first_block} + before->second == first) {
      first = before->first.first_block;
      Erase(Extent{extent.pack, before->first.first_block, before->second});
    }
  }
  if (next != by_place_.end() && next->first.pack == extent.pack &&
      next->first.first_block == end) {
    end += next->second;
    Erase(Extent{extent.pack, next->first.first_block, next->second});
  }
  Insert(RangeOf(extent.pack, first, end));
}

bool ExtentMap::Take(const Extent& extent) {
  const auto it = FirstEndingAfter(Place{extent.pack, extent.first_block});
  if (extent.block_count == 0 || it == by_place_.end() || it->first.pack != extent.pack ||
      it->first.first_block > extent.first_block) {
    return false;
  }
  const Extent whole{extent.pack, it->first.first_block, it->second};
  if (EndOf(whole) < EndOf(extent)) {
    return false;
  }
  Erase(whole);
  if (whole.first_block < extent.first_block) {
    Insert(RangeOf(extent.pack, whole.first_block, extent.first_block));
  }
  if (EndOf(extent) < EndOf(whole)) {
    Insert(RangeOf(extent.pack, EndOf(extent), EndOf(whole)));
  }
  return true;
}

Extent ExtentMap::TakeFrom(const Sized& range, std::uint32_t block_count) {
  const Extent taken{range.place.pack, range.place.first_block, block_count};
  SKIPPY_CHECK(Take(taken), Describe(taken));
  return taken;
}

std::optional<ExtentList> ExtentMap::Allocate(std::uint64_t block_count) {
  if (block_count > block_count_) {
    return std::nullopt;
  }
  ExtentList out;
  std::uint64_t wanted = block_count;
  while (wanted > 0) {
    auto range = by_size_.end();
    if (wanted <= std::numeric_limits<std::uint32_t>::max()) {
      range = by_size_.lower_bound(Sized{static_cast<std::uint32_t>(wanted), Place{}});
    }
    if (range == by_size_.end()) {
      range = std::prev(range);  // the largest there is
    }
    const std::uint64_t count = std::min<std::uint64_t>(wanted, range->block_count);
    out.push_back(TakeFrom(Sized(*range), static_cast<std::uint32_t>(count)));
    wanted -= count;
  }
  return out;
}

Extent ExtentMap::TakeSome(std::uint64_t block_count) {
  SKIPPY_CHECK(block_count > 0 && !by_size_.empty(), "nothing to take");
  const Sized largest = *by_size_.rbegin();
  return TakeFrom(largest, static_cast<std::uint32_t>(
                               std::min<std::uint64_t>(block_count, largest.block_count)));
}

Extent ExtentMap::TakeLast(std::uint64_t block_count) {
  SKIPPY_CHECK(block_count > 0 && !by_place_.empty(), "nothing to take");
  const auto& [place, count] = *by_place_.rbegin();
  const std::uint64_t end = std::uint64_t{place.first_block} + count;
  const Extent taken = RangeOf(place.pack, end - std::min<std::uint64_t>(block_count, count), end);
  SKIPPY_CHECK(Take(taken), Describe(taken));
  return taken;
}

std::vector<Extent> ExtentMap::TakeAllOf(PackId pack) {
  std::vector<Extent> out;
  for (auto it = by_place_.lower_bound(Place{pack, 0});
       it != by_place_.end() && it->first.pack == pack; ++it) {
    out.push_back(Extent{pack, it->first.first_block, it->second});
  }
  for (const Extent& extent : out) Erase(extent);
  return out;
}

std::vector<Extent> ExtentMap::PartsMissing(const Extent& extent) const {
  std::vector<Extent> out;
  std::uint64_t at = extent.first_block;
  const std::uint64_t end = EndOf(extent);
  for (auto it = FirstEndingAfter(Place{extent.pack, extent.first_block});
       it != by_place_.end() && it->first.pack == extent.pack && it->first.first_block < end;
       ++it) {
    if (at < it->first.first_block) {
      out.push_back(RangeOf(extent.pack, at, it->first.first_block));
    }
    at = std::uint64_t{it->first.first_block} + it->second;
  }
  if (at < end) {
    out.push_back(RangeOf(extent.pack, at, end));
  }
  return out;
}

std::uint64_t ExtentMap::BlocksOf(PackId pack) const {
  const auto it = blocks_of_.find(pack);
  return it == blocks_of_.end() ? 0 : it->second;
}

}  // namespace skippy
