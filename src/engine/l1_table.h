// L1: the sequences that live in the engine, running or kept after their request, and which of
// them a new prompt can start from. Pure bookkeeping; what is decided here the scheduler does.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint.h"
#include "engine/lanes.h"

namespace skippy {

enum class SequenceState { kFree, kRunning, kResident };

// What a lane is used for.
struct Sequence {
  SequenceState state = SequenceState::kFree;
  std::string name_space;
  std::string affinity_key;  // see GenerateRequest
  std::chrono::seconds retain_for{0};
  bool shareable = false;    // other requests of the namespace may use its rows
  bool persistable = false;  // its rows may be handed to the cache
  bool recorded = false;     // all its rows were offered to the cache
  TokenCount prompt_tokens = 0;
  std::vector<Token> tokens;    // prompt and reply; rows exist for the first Length(lane)
  CheckpointList checkpoints;   // within the rows
  CheckpointLadder ladder;      // where more are to come
  std::uint64_t last_used = 0;  // larger is later
  double rent_ms = 0;           // what its cells cost others since it became idle or was used
};

struct PrefixSource {
  LaneId lane = LaneId::kFirst;
  TokenCount tokens = 0;
  // The lane itself goes on as the new request's: it is resident and nothing that matters is lost.
  bool take_over = false;
};

// Where the rows of a sequence can be left.
enum class Leaving {
  kAnywhere,
  kAtCheckpoints,  // or at the sequence's end
  kAtEnd,          // by the sequence that goes on with them: rows are not shared
};

class L1Table {
 public:
  // `lanes` outlives the table.
  L1Table(const LaneTable* lanes, Leaving leaving);

  const Sequence& at(LaneId lane) const;
  Sequence& at(LaneId lane);

  std::optional<LaneId> FindFree() const;
  std::vector<LaneId> InState(SequenceState state) const;
  int Count(SequenceState state) const;
  // nullopt: no resident besides `keep`.
  std::optional<LaneId> LeastRecentResident(std::optional<LaneId> keep) const;
  // Of the sequences with checkpoints: the least recent resident besides `last`, then the least
  // recent running one besides `last`, then `last`.
  std::optional<LaneId> LeastRecentWithCheckpoints(LaneId last) const;

  // The best start for tokens[0, limit): longest first, then one of the same affinity key, then one
  // that can be taken over, then the one that loses least. nullopt: nothing in common.
  std::optional<PrefixSource> FindPrefix(const std::string& name_space,
                                         std::span<const Token> tokens, TokenCount limit,
                                         const std::string& affinity_key = {}) const;

  // A running sequence that has tokens of tokens[0, limit) in common but has not computed all of
  // them yet; the longest such prefix, nullopt when none.
  std::optional<PrefixSource> FindPromised(const std::string& name_space,
                                           std::span<const Token> tokens, TokenCount limit) const;

  // The lane becomes `sequence`, running.
  void Start(LaneId lane, Sequence sequence);
  // Its rows were used by another request.
  void Touch(LaneId lane);
  // Running -> resident; its tokens are cut to the rows that exist.
  void Keep(LaneId lane);
  // Any -> free. The caller clears the lane.
  void Release(LaneId lane);
  // Residents of the same namespace whose tokens are a prefix of the resident `lane`, or, when one
  // of them covers `lane` itself, just `lane`: they add nothing.
  std::vector<LaneId> Redundant(LaneId lane) const;

 private:
  std::optional<PrefixSource> Consider(LaneId lane, std::span<const Token> tokens,
                                       TokenCount limit) const;
  TokenCount LeavingPoint(LaneId lane, TokenCount common) const;
  bool Covers(LaneId longer, LaneId shorter) const;

  const LaneTable* const lanes_;
  const Leaving leaving_;
  std::vector<Sequence> sequences_;  // by lane index
  std::uint64_t clock_ = 0;
};

// Length of the common prefix.
TokenCount CommonTokens(std::span<const Token> a, std::span<const Token> b);

}  // namespace skippy
