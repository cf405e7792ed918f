// The radix tree over token paths: per domain, segments as nodes. Pure and in memory: no I/O, no
// clock, no locks (the cache's mutex guards it). Knows tokens and ids, not bytes or places.
//
// Invariant: below one point of a path (a position on a segment) at most one child begins with a
// given token, and no child begins with the token by which its parent goes on. So a path of tokens
// names at most one chain of segments.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

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
};

struct NewSegment {
  SegmentId id = SegmentId::kNone;
  DomainId domain = DomainId::kNone;
  SegmentId parent = SegmentId::kNone;
  SegmentKind kind = SegmentKind::kRows;
  TokenCount first_token = 0;
  std::vector<Token> tokens;  // empty for a checkpoint
};

class PrefixIndex {
 public:
  PrefixIndex();
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // Longest resumable prefix of `tokens` under `rule`:
  //   kAnyToken    every row that matches
  //   kSegmentEnd  whole segments only
  //   kCheckpoint  the deepest checkpoint on the matching path; steps are the row segments up to
  //                it, then the checkpoint (0 steps before it for families without rows)
  PathMatch Find(DomainId domain, std::span<const Token> tokens, ResumeRule rule) const;
  // Every row that matches, whatever the family: where new segments have to be attached.
  // The same as Find(..., kAnyToken).
  PathMatch FindRows(DomainId domain, std::span<const Token> tokens) const;
  // The checkpoint at exactly tokens.size() on this path, if there is one.
  std::optional<SegmentId> FindCheckpoint(DomainId domain, std::span<const Token> tokens) const;

  // Adds a node. False, and no change, when the invariant would break or the parent is unknown, of
  // another domain, a checkpoint, or does not reach first_token; or when the id is taken.
  bool Insert(NewSegment segment);
  // Removes a node without children. False when it has some or does not exist.
  bool Erase(SegmentId id);
  // Removes a node and everything below it; returns the ids, children before parents.
  std::vector<SegmentId> EraseSubtree(SegmentId id);

  bool Contains(SegmentId id) const;
  SegmentId Parent(SegmentId id) const;
  std::span<const Token> Tokens(SegmentId id) const;
  // The whole path up to the end of `id`, root first.
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
