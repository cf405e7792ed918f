// The radix tree over token paths: per domain, segments as nodes. Pure and in memory: no I/O, no
// clock, no locks (the cache's mutex guards it). Knows tokens and ids, not bytes or places.
//
// A path uses a segment whole, or leaves it after at least `head_tokens` of its rows (never before
// its end under kSegmentEnd). So segments that hang at one point of a path may share a short head,
// and of those that a path can use it takes the longest. Invariant: no two segments at one point
// hold the same tokens; and as long as everything is inserted where FindRows says, every segment is
// found by its own path.
//
// A cold segment is known by hashes of its tokens: it is used whole or not at all, and whoever
// relies on it compares the tokens themselves first.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/token_digest.h"
#include "skippy/cache.h"
#include "skippy/ids.h"

namespace skippy {

// BLAKE3-based hash of a growing token path; equal for equal (domain root, tokens).
class PathHasher {
 public:
  PathHasher(const StateIdentity& state, std::string_view name_space);
  ~PathHasher();
  PathHasher(const PathHasher&) = delete;
  PathHasher& operator=(const PathHasher&) = delete;
  void Update(std::span<const Token> tokens);
  PathHash Finish() const;  // of everything so far; more may follow

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct PathStep {
  SegmentId segment = SegmentId::kNone;
  SegmentKind kind = SegmentKind::kRows;
  TokenCount first_token = 0;
  TokenCount rows_used = 0;
  TokenCount row_count = 0;
};

struct PathMatch {
  TokenCount tokens = 0;
  std::vector<PathStep> steps;  // ascending; with ResumeRule::kCheckpoint the checkpoint is last
  // Cold segments that might hold more of the path if their tokens were known; at most
  // kColdCandidatesMax of them.
  std::vector<SegmentId> cold;
};

struct NewSegment {
  SegmentId id = SegmentId::kNone;
  DomainId domain = DomainId::kNone;
  SegmentId parent = SegmentId::kNone;
  SegmentKind kind = SegmentKind::kRows;
  TokenCount first_token = 0;
  std::vector<Token> tokens;  // empty for a checkpoint
  // Segments of this domain are used whole only: siblings may share any head.
  bool whole_only = false;
};

// A segment of rows as the catalog knows it, without its tokens.
struct ColdSegment {
  SegmentId id = SegmentId::kNone;
  DomainId domain = DomainId::kNone;
  SegmentId parent = SegmentId::kNone;
  TokenCount first_token = 0;
  TokenCount token_count = 0;
  TokensDigest tokens_digest;
  std::uint64_t head_hash = 0;
};

inline constexpr std::size_t kColdCandidatesMax = 256;

class PrefixIndex {
 public:
  // Tests choose a shorter head; then cold segments cannot be added.
  explicit PrefixIndex(TokenCount head_tokens = kHeadTokens);
  ~PrefixIndex();
  PrefixIndex(PrefixIndex&& other) noexcept;
  PrefixIndex& operator=(PrefixIndex&& other) noexcept;

  // Longest resumable prefix of `tokens` under `rule`:
  //   kAnyToken    every row that matches; of a segment that the path leaves within its head, only
  //                if the path ends there and half of the segment is used
  //   kSegmentEnd  whole segments only
  //   kCheckpoint  the deepest checkpoint on the matching path; steps are the row segments up to
  //                it, then the checkpoint (0 steps before it for families without rows)
  PathMatch Find(DomainId domain, std::span<const Token> tokens, ResumeRule rule) const;
  // The rows of the path that are known: where new segments have to be attached. Like Find, but
  // without the need for a checkpoint, and never ending in the middle of a segment's head.
  PathMatch FindRows(DomainId domain, std::span<const Token> tokens, ResumeRule rule) const;
  // The checkpoint at exactly tokens.size() on this path, if there is one.
  std::optional<SegmentId> FindCheckpoint(DomainId domain, std::span<const Token> tokens) const;

  // Adds a node. False, and no change, when the invariant would break or the parent is unknown, of
  // another domain, a checkpoint, or does not reach first_token; or when the id is taken.
  bool Insert(NewSegment segment);
  // The same at start-up, where only what cannot be is refused: whatever was recorded stays.
  bool InsertCold(const ColdSegment& segment);
  // Gives a cold segment its tokens. No effect on one that is gone or hot. False when these are not
  // the tokens that its hashes speak of.
  bool Warm(SegmentId id, std::span<const Token> tokens);
  // A segment with rows whose tokens are not here.
  bool IsCold(SegmentId id) const;
  // The checkpoints that hang on a segment of rows, in no order.
  std::vector<SegmentId> Checkpoints(SegmentId id) const;
  // Removes a node without children. False when it has some or does not exist.
  bool Erase(SegmentId id);
  // Removes a node and everything below it; returns the ids, children before parents.
  std::vector<SegmentId> EraseSubtree(SegmentId id);

  bool Contains(SegmentId id) const;
  SegmentId Parent(SegmentId id) const;
  std::span<const Token> Tokens(SegmentId id) const;  // empty for a cold one
  // The whole path up to the end of `id`, root first; all of it is hot.
  std::vector<Token> Path(SegmentId id) const;
  std::size_t segment_count() const;
  // Heap bytes held, estimated from container sizes.
  std::uint64_t MemoryBytes() const;
  // Panics when the invariant does not hold; for tests. Cost: the whole tree.
  void CheckInvariants() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skippy
