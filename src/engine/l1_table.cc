#include "engine/l1_table.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace skippy {

TokenCount CommonTokens(std::span<const Token> a, std::span<const Token> b) {
  const std::size_t shorter = std::min(a.size(), b.size());
  const auto end = a.begin() + static_cast<std::ptrdiff_t>(shorter);
  return static_cast<TokenCount>(std::mismatch(a.begin(), end, b.begin()).first - a.begin());
}

L1Table::L1Table(const LaneTable* lanes, Leaving leaving)
    : lanes_(lanes), leaving_(leaving), sequences_(static_cast<std::size_t>(lanes->lane_count())) {}

const Sequence& L1Table::at(LaneId lane) const {
  return sequences_.at(static_cast<std::size_t>(LaneIndex(lane)));
}

Sequence& L1Table::at(LaneId lane) {
  return sequences_.at(static_cast<std::size_t>(LaneIndex(lane)));
}

std::vector<LaneId> L1Table::InState(SequenceState state) const {
  std::vector<LaneId> out;
  for (int n = 0; n < lanes_->lane_count(); ++n) {
    if (at(NthLane(n)).state == state) {
      out.push_back(NthLane(n));
    }
  }
  return out;
}

void L1Table::Touch(LaneId lane) {
  at(lane).last_used = ++clock_;
  at(lane).rent_ms = 0;
}

std::optional<LaneId> L1Table::FindFree() const {
  const std::vector<LaneId> free = InState(SequenceState::kFree);
  return free.empty() ? std::nullopt : std::optional(free.front());
}

int L1Table::Count(SequenceState state) const { return static_cast<int>(InState(state).size()); }

std::optional<LaneId> L1Table::LeastRecentResident(std::optional<LaneId> keep) const {
  std::optional<LaneId> oldest;
  for (const LaneId lane : InState(SequenceState::kResident)) {
    if (lane != keep && (!oldest || at(lane).last_used < at(*oldest).last_used)) {
      oldest = lane;
    }
  }
  return oldest;
}

// How many of `common` rows another sequence can start with.
TokenCount L1Table::LeavingPoint(LaneId lane, TokenCount common) const {
  const Sequence& sequence = at(lane);
  const bool at_end = common == lanes_->Length(lane) && sequence.state == SequenceState::kResident;
  if (leaving_ == Leaving::kAnywhere || at_end) {
    return common;
  }
  if (leaving_ == Leaving::kAtEnd) {
    return 0;
  }
  const CheckpointPtr checkpoint = sequence.checkpoints.Deepest(common);
  return checkpoint == nullptr ? 0 : checkpoint->position;
}

std::optional<LaneId> L1Table::LeastRecentWithCheckpoints(LaneId last) const {
  std::optional<LaneId> best;
  const auto rank = [this, last](LaneId lane) {
    const Sequence& sequence = at(lane);
    return std::tuple(lane == last, sequence.state == SequenceState::kRunning, sequence.last_used);
  };
  for (int n = 0; n < lanes_->lane_count(); ++n) {
    const LaneId lane = NthLane(n);
    if (!at(lane).checkpoints.empty() && (!best || rank(lane) < rank(*best))) {
      best = lane;
    }
  }
  return best;
}

std::optional<PrefixSource> L1Table::Consider(LaneId lane, std::span<const Token> tokens,
                                              TokenCount limit) const {
  const Sequence& sequence = at(lane);
  const TokenCount rows = lanes_->Length(lane);
  const std::span<const Token> computed(sequence.tokens.data(), static_cast<std::size_t>(rows));
  const TokenCount common = LeavingPoint(lane, std::min(CommonTokens(computed, tokens), limit));
  const bool whole = common == rows;
  const bool resident = sequence.state == SequenceState::kResident;
  if (common == 0) {
    return std::nullopt;
  }
  // A prompt that leaves the old one in its reply goes on with that session (a repeat or its next
  // turn); one that leaves earlier is another session and must not cost the deep one its rows.
  const bool same_session = common >= sequence.prompt_tokens - 1;
  return PrefixSource{lane, common, resident && (whole || same_session)};
}

std::optional<PrefixSource> L1Table::FindPrefix(const std::string& name_space,
                                                std::span<const Token> tokens, TokenCount limit,
                                                const std::string& affinity_key) const {
  std::optional<PrefixSource> best;
  const auto rank = [this, &affinity_key](const PrefixSource& source) {
    const TokenCount lost = lanes_->Length(source.lane) - source.tokens;
    const bool same = !affinity_key.empty() && at(source.lane).affinity_key == affinity_key;
    return std::tuple(source.tokens, same, source.take_over, -lost, at(source.lane).last_used);
  };
  for (int n = 0; n < lanes_->lane_count(); ++n) {
    const Sequence& sequence = at(NthLane(n));
    if (sequence.state == SequenceState::kFree || !sequence.shareable ||
        sequence.name_space != name_space) {
      continue;
    }
    const std::optional<PrefixSource> source = Consider(NthLane(n), tokens, limit);
    if (source && (!best || rank(*source) > rank(*best))) {
      best = source;
    }
  }
  return best;
}

std::optional<PrefixSource> L1Table::FindPromised(const std::string& name_space,
                                                  std::span<const Token> tokens,
                                                  TokenCount limit) const {
  std::optional<PrefixSource> promised;
  if (leaving_ == Leaving::kAtEnd) {
    return promised;
  }
  for (const LaneId lane : InState(SequenceState::kRunning)) {
    const Sequence& sequence = at(lane);
    if (!sequence.shareable || sequence.name_space != name_space) {
      continue;
    }
    const TokenCount common = std::min(CommonTokens(sequence.tokens, tokens), limit);
    if (common > lanes_->Length(lane) && (!promised || common > promised->tokens)) {
      promised = PrefixSource{lane, common, false};
    }
  }
  return promised;
}

void L1Table::Start(LaneId lane, Sequence sequence) {
  sequence.state = SequenceState::kRunning;
  sequence.last_used = ++clock_;
  at(lane) = std::move(sequence);
}

void L1Table::Keep(LaneId lane) {
  Sequence& sequence = at(lane);
  SKIPPY_CHECK(sequence.state == SequenceState::kRunning, "only running sequences become resident");
  sequence.state = SequenceState::kResident;
  sequence.last_used = ++clock_;
  sequence.tokens.resize(static_cast<std::size_t>(lanes_->Length(lane)));
  sequence.prompt_tokens = std::min(sequence.prompt_tokens, lanes_->Length(lane));
}

void L1Table::Release(LaneId lane) { at(lane) = Sequence{}; }

bool L1Table::Covers(LaneId longer, LaneId shorter) const {
  const Sequence& a = at(longer);
  const Sequence& b = at(shorter);
  return a.name_space == b.name_space && a.shareable == b.shareable &&
         a.tokens.size() >= b.tokens.size() &&
         std::equal(b.tokens.begin(), b.tokens.end(), a.tokens.begin()) &&
         LeavingPoint(longer, lanes_->Length(shorter)) == lanes_->Length(shorter);
}

std::vector<LaneId> L1Table::Redundant(LaneId lane) const {
  std::vector<LaneId> out;
  for (const LaneId other : InState(SequenceState::kResident)) {
    if (other == lane) {
      continue;
    }
    if (Covers(lane, other)) {
      out.push_back(other);
    } else if (Covers(other, lane)) {
      return {lane};
    }
  }
  return out;
}

}  // namespace skippy
