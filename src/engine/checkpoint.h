// States of a lane that hold at one position only, kept in host memory so that lanes can be resumed
// there; and the positions at which they are taken.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "skippy/ids.h"

namespace skippy {

// Immutable, shared by the sequences whose tokens agree up to `position`.
struct Checkpoint {
  TokenCount position = 0;
  std::vector<std::byte> bytes;
};
using CheckpointPtr = std::shared_ptr<const Checkpoint>;

// Ascending by position, one for each. Engine thread.
class CheckpointList {
 public:
  // Keeps the one that is there.
  void Add(CheckpointPtr checkpoint);
  // The deepest one at or before `position`; null when there is none.
  CheckpointPtr Deepest(TokenCount position) const;
  bool Has(TokenCount position) const;
  // Those at or before `position`.
  CheckpointList UpTo(TokenCount position) const;
  void DropFirst() { items_.erase(items_.begin()); }

  bool empty() const { return items_.empty(); }
  const std::vector<CheckpointPtr>& items() const { return items_; }

 private:
  std::vector<CheckpointPtr> items_;
};

// Where a prompt is worth a checkpoint: before its last message, before its last token (which is
// always computed again), where another request leaves it, and at powers of two, at which prompts
// meet that share only their beginning. Pure.
class CheckpointLadder {
 public:
  static constexpr TokenCount kFirstPowerTokens = 256;

  CheckpointLadder() = default;
  // `powers`: false where a checkpoint grows with its position.
  CheckpointLadder(TokenCount prompt_tokens, TokenCount last_message, bool powers);

  void Want(TokenCount position);
  // The lowest rung above `have`; nullopt: none.
  std::optional<TokenCount> Next(TokenCount have) const;
  bool IsRung(TokenCount position) const;

 private:
  std::vector<TokenCount> rungs_;  // ascending
};

}  // namespace skippy
