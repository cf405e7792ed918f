#include "engine/lanes.h"

#include <algorithm>
#include <string>

#include "base/check.h"

namespace skippy {

LaneTable::LaneTable(int lane_count, std::size_t cell_count)
    : cell_count_(cell_count), lanes_(static_cast<std::size_t>(lane_count)) {
  holders_.reserve(cell_count);
}

std::vector<LaneTable::Cell>& LaneTable::Rows(LaneId lane) {
  const int index = LaneIndex(lane);
  SKIPPY_CHECK(index >= 0 && index < lane_count(), std::to_string(index));
  return lanes_[static_cast<std::size_t>(index)];
}

const std::vector<LaneTable::Cell>& LaneTable::Rows(LaneId lane) const {
  return const_cast<LaneTable*>(this)->Rows(lane);
}

TokenCount LaneTable::Length(LaneId lane) const {
  return static_cast<TokenCount>(Rows(lane).size());
}

void LaneTable::Append(LaneId lane, TokenCount count) {
  std::vector<Cell>& rows = Rows(lane);
  for (TokenCount i = 0; i < count; ++i) {
    if (free_.empty()) {
      free_.push_back(static_cast<Cell>(holders_.size()));
      holders_.push_back(0);
    }
    const Cell cell = free_.back();
    free_.pop_back();
    holders_[cell] = 1;
    rows.push_back(cell);
  }
  cells_used_ += static_cast<std::size_t>(count);
}

void LaneTable::Share(LaneId from, LaneId to, TokenCount count) {
  const std::vector<Cell>& source = Rows(from);
  std::vector<Cell>& rows = Rows(to);
  SKIPPY_CHECK(rows.empty() && from != to, "the lane that takes a prefix must be empty");
  SKIPPY_CHECK(count >= 0 && count <= Length(from), std::to_string(count));
  rows.assign(source.begin(), source.begin() + count);
  for (const Cell cell : rows) {
    ++holders_[cell];
  }
}

void LaneTable::Truncate(LaneId lane, TokenCount length) {
  std::vector<Cell>& rows = Rows(lane);
  SKIPPY_CHECK(length >= 0 && length <= Length(lane), std::to_string(length));
  for (auto it = rows.begin() + length; it != rows.end(); ++it) {
    if (--holders_[*it] == 0) {
      free_.push_back(*it);
      --cells_used_;
    }
  }
  rows.resize(static_cast<std::size_t>(length));
}

double LaneTable::CellShare(LaneId lane) const {
  double share = 0;
  for (const Cell cell : Rows(lane)) {
    share += 1.0 / holders_[cell];
  }
  return share;
}

std::size_t LaneTable::CellsHeldBy(const std::vector<LaneId>& lanes) const {
  std::vector<bool> seen(holders_.size());
  std::size_t count = 0;
  for (const LaneId lane : lanes) {
    for (const Cell cell : Rows(lane)) {
      count += seen[cell] ? 0 : 1;
      seen[cell] = true;
    }
  }
  return count;
}

}  // namespace skippy
