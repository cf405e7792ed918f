// Which rows each sequence of the unified KV buffer holds, and which cells those rows share. Pure
// bookkeeping: the one truth about lengths, because the library's own pos_min/pos_max may lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "skippy/ids.h"

namespace skippy {

// A sequence id of the engine. kScratch takes exports and imports, kEmpty never holds anything.
enum class LaneId : std::int32_t { kScratch = 0, kEmpty = 1, kFirst = 2 };

inline constexpr int kReservedLanes = 2;

inline LaneId NthLane(int n) { return static_cast<LaneId>(n + kReservedLanes); }
inline int LaneIndex(LaneId lane) { return static_cast<int>(lane) - kReservedLanes; }

// What may be done with rows, by the model's family. Decided before any call: some memory types end
// the process when asked for what they lack.
enum class RowAccess {
  kAnyRange,     // rows may be shared, cut, exported and imported token by token
  kCheckpoints,  // rows as above, and a state beside them that holds at the lane's end only
  kStateOnly,    // no rows, only such a state
  kWholeState,   // the same, and the library cannot take rows and state apart
  kAppendOnly,   // a lane may only grow or be cleared
};

// The lane's state holds at its end only: whoever changes its length from outside loads another.
inline bool UsesCheckpoints(RowAccess access) {
  return access == RowAccess::kCheckpoints || access == RowAccess::kStateOnly ||
         access == RowAccess::kWholeState;
}

// Invariant: a lane holds exactly the rows [0, Length(lane)); a cell is used while a lane holds it.
class LaneTable {
 public:
  LaneTable(int lane_count, std::size_t cell_count);

  int lane_count() const { return static_cast<int>(lanes_.size()); }
  std::size_t cell_count() const { return cell_count_; }
  std::size_t cells_used() const { return cells_used_; }
  std::size_t cells_free() const { return cell_count_ - cells_used_; }
  TokenCount Length(LaneId lane) const;

  // `count` new rows in cells of their own.
  void Append(LaneId lane, TokenCount count);
  // `to`, which is empty, shares the cells of the first `count` rows of `from`.
  void Share(LaneId from, LaneId to, TokenCount count);
  // Keeps the first `length` rows.
  void Truncate(LaneId lane, TokenCount length);

  // The lane's part of its cells: one that n lanes hold counts 1/n.
  double CellShare(LaneId lane) const;
  // Cells held by at least one of `lanes`.
  std::size_t CellsHeldBy(const std::vector<LaneId>& lanes) const;

 private:
  using Cell = std::uint32_t;
  std::vector<Cell>& Rows(LaneId lane);
  const std::vector<Cell>& Rows(LaneId lane) const;

  const std::size_t cell_count_;
  std::size_t cells_used_ = 0;
  std::vector<std::vector<Cell>> lanes_;  // by lane, the cell of each row; names, not places
  std::vector<std::uint32_t> holders_;    // by cell, how many lanes hold it
  std::vector<Cell> free_;
};

}  // namespace skippy
