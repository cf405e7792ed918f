// A hash table of slot numbers: 8 bytes an entry, keys live with their owner. The owner gives the
// hash with every call and decides equality, so one table serves any key that can be recomputed
// from what a slot holds. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace skippy {

class SlotTable {
 public:
  static constexpr std::uint32_t kNoSlot = 0xFFFFFFFFU;

  // The slot with this hash for which `equals(slot)` holds, or kNoSlot.
  template <class Equals>
  std::uint32_t Find(std::uint32_t hash, const Equals& equals) const {
    if (entries_.empty()) {
      return kNoSlot;
    }
    for (std::size_t i = hash & Mask();; i = (i + 1) & Mask()) {
      const Entry& entry = entries_[i];
      if (entry.slot == kNoSlot || (entry.hash == hash && equals(entry.slot))) {
        return entry.slot;
      }
    }
  }

  // The key of `slot` must not be in the table.
  void Insert(std::uint32_t hash, std::uint32_t slot) {
    if (4 * (count_ + 1) > 3 * entries_.size()) {
      Resize(entries_.empty() ? 16 : 2 * entries_.size());
    }
    Place({hash, slot});
    ++count_;
  }

  // `slot` must be in the table, under `hash`.
  void Erase(std::uint32_t hash, std::uint32_t slot) {
    std::size_t hole = hash & Mask();
    while (entries_[hole].slot != slot) {
      SKIPPY_CHECK(entries_[hole].slot != kNoSlot, "erased a slot that is not in the table");
      hole = (hole + 1) & Mask();
    }
    CloseHole(hole);
    --count_;
    if (entries_.size() > 16 && 8 * count_ < entries_.size()) {
      Resize(entries_.size() / 2);
    }
  }

  std::size_t count() const { return count_; }
  std::uint64_t MemoryBytes() const { return entries_.capacity() * sizeof(Entry); }

 private:
  struct Entry {
    std::uint32_t hash = 0;
    std::uint32_t slot = kNoSlot;
  };

  std::size_t Mask() const { return entries_.size() - 1; }

  void Place(Entry entry) {
    std::size_t i = entry.hash & Mask();
    while (entries_[i].slot != kNoSlot) {
      i = (i + 1) & Mask();
    }
    entries_[i] = entry;
  }

  // Moves later entries of the same probe run back, so that no lookup stops at the hole too early.
  void CloseHole(std::size_t hole) {
    for (std::size_t i = (hole + 1) & Mask(); entries_[i].slot != kNoSlot; i = (i + 1) & Mask()) {
      const std::size_t home = entries_[i].hash & Mask();
      if (((i - home) & Mask()) >= ((i - hole) & Mask())) {
        entries_[hole] = entries_[i];
        hole = i;
      }
    }
    entries_[hole] = Entry{};
  }

  void Resize(std::size_t entry_count) {
    std::vector<Entry> old(entry_count);
    old.swap(entries_);
    for (const Entry& entry : old) {
      if (entry.slot != kNoSlot) {
        Place(entry);
      }
    }
  }

  std::vector<Entry> entries_;  // a power of two of them, at most three quarters in use
  std::size_t count_ = 0;
};

}  // namespace skippy
