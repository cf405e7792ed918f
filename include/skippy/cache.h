// libskippy: exact attention state that survives the request, the accelerator and the process.
//
// The cache keeps opaque byte strings ("segments") under (state identity, namespace, token path) in
// bounded RAM and in a durable, hard-budgeted disk store. It knows nothing of engines, tokens'
// meaning, HTTP or JSON. It may forget; it never serves wrong bytes; no fault in it is an error of
// the request that asked.
//
// Threads: every method may be called from any thread. The methods that an engine thread calls in
// its loop (Lookup, StartRestore, StartRecording and the methods of the objects they return) never
// touch the disk and take short locks only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "skippy/env.h"
#include "skippy/ids.h"
#include "skippy/options.h"
#include "skippy/result.h"
#include "skippy/stats.h"

namespace skippy {

// What an isolation domain is: everything besides the tokens that must match.
struct DomainSpec {
  ModelIdentity model;
  StateIdentity state;
  std::string name_space;  // caller-chosen, "" is the shared one; at most 256 bytes
  std::string model_name;  // display only, never compared
};

// Bytes of one segment or checkpoint, 4096-aligned, from the cache's pool: warm memory, bounded.
// Returned to the pool on destruction.
class Buffer {
 public:
  virtual ~Buffer() = default;
  // Exactly the bytes asked for; writable until the buffer is handed to a Recording.
  virtual std::span<std::byte> bytes() = 0;
};

enum class SegmentKind : std::uint8_t {
  kRows = 0,        // attention rows of a run of tokens, importable run by run
  kCheckpoint = 1,  // state that holds at one position only
};

enum class Tier : std::uint8_t { kRam = 2, kDisk = 3 };

// One piece of a found prefix.
struct MatchedSegment {
  SegmentId id = SegmentId::kNone;
  SegmentKind kind = SegmentKind::kRows;
  TokenCount first_token = 0;  // kCheckpoint: the position it holds at
  TokenCount rows_used = 0;    // leading rows of the segment that belong to the prefix
  TokenCount row_count = 0;    // rows the segment holds
  std::uint64_t byte_count = 0;
  Tier tier = Tier::kDisk;
};

// The longest prefix that can be restored. Holds a lease: what it names is not evicted while it or
// the Restore made from it lives. Cheap to move; empty when nothing was found.
class PrefixMatch {
 public:
  TokenCount tokens = 0;  // rows [0, tokens) can be restored
  std::uint64_t byte_count = 0;
  std::vector<MatchedSegment> segments;  // ascending first_token; a checkpoint is last
  std::shared_ptr<const void> lease;
  bool empty() const { return tokens == 0; }
};

// How a prefix may be resumed, by the model family.
enum class ResumeRule : std::uint8_t {
  kAnyToken,    // full attention: rows may be cut anywhere
  kSegmentEnd,  // only where a segment ends
  kCheckpoint,  // windows, hybrid, recurrent, whole state: only where a checkpoint is
};

// A restore in progress: reads and verifies ahead on cache threads, hands segments to the engine in
// ascending order. Used by one thread; destruction cancels and releases every lease and buffer.
class Restore {
 public:
  enum class State {
    kPending,  // nothing ready yet: come back after the wake-up
    kReady,    // segment() may be imported
    kDone,     // everything was handed out
    kFailed,   // the segments handed out so far are good, the rest is not available
  };
  virtual ~Restore() = default;
  // Never blocks.
  virtual State Poll() = 0;
  // The segment that is ready and its verified bytes; valid until Pop or destruction.
  virtual const MatchedSegment& segment() const = 0;
  virtual std::span<const std::byte> bytes() const = 0;
  // Goes on to the next segment.
  virtual void Pop() = 0;
  // The segment that is ready holds what was recorded, and yet the engine cannot use it. It leaves
  // the cache with all that follows it, so that no request meets it again. No Pop after it.
  virtual void Reject() {}
  // Bytes that came from the disk so far, for cost models.
  virtual std::uint64_t bytes_read() const = 0;
};

// New state of one token path, handed over run by run while it is computed. Used by one thread.
// Destruction without Finish keeps what was appended so far as a prefix of its own.
class Recording {
 public:
  struct Run {
    TokenCount first_token = 0;
    TokenCount token_count = 0;
  };
  virtual ~Recording() = default;

  // The next run that the cache lacks, given that rows [0, computed) of the path exist in the
  // engine: at most kMaxSegmentTokens, shorter only with `flush` (the recording ends or pauses at
  // `computed`). nullopt: nothing to export now. `path` holds the path's tokens, >= computed.
  virtual std::optional<Run> NextRun(std::span<const Token> path, TokenCount computed,
                                     bool flush) = 0;
  // Takes the exported bytes of `run`, as NextRun gave it. They are visible to Lookup at once and
  // durable some time later. A refusal is counted and ends the recording: later NextRun give
  // nullopt.
  virtual RefusalReason Append(std::span<const Token> path, const Run& run,
                               std::unique_ptr<Buffer> bytes) = 0;
  // True when a checkpoint at `position` would be new. `path` holds >= position tokens.
  virtual bool WantsCheckpoint(std::span<const Token> path, TokenCount position) = 0;
  virtual RefusalReason AppendCheckpoint(std::span<const Token> path, TokenCount position,
                                         std::unique_ptr<Buffer> bytes) = 0;
  // Publishes path[0, token_count) as a recorded prefix (a manifest): the unit that is evicted.
  // Call it at the end of the prompt and again at the end of generation.
  virtual void Publish(std::span<const Token> path, TokenCount token_count) = 0;
  // What is published from now on is more valuable than what is not retained: every tier evicts it
  // last, until that time (since the epoch). A later time counts, an earlier one changes nothing.
  virtual void Retain(std::chrono::seconds /*until*/) {}
};

// A prefix that the cache had.
struct RemovedPrefix {
  TokenCount tokens = 0;
  std::chrono::nanoseconds removed_at{0};  // since the epoch
  RemovalCause cause = RemovalCause::kEviction;
};

// One read of a stored segment, as a restore does it, and how many such reads run at a time.
struct DiskProbe {
  std::uint64_t byte_count = 0;
  double ms = 0;
  int reads_at_once = 1;
};

class Cache {
 public:
  virtual ~Cache() = default;

  // Opens the tiers that `options` names. A disk root that cannot be used (read-only, locked by
  // another process, network file system) does not fail the call: the cache works without it and
  // status says why. kInvalidArgument for options that make no sense.
  static Result<std::unique_ptr<Cache>> Open(const CacheOptions& options, Env* env);

  // Registers a domain, or finds it again. kUnavailable with no tier on.
  virtual Result<DomainId> OpenDomain(const DomainSpec& spec) = 0;

  // Fetches from the disk what is known of this path by hashes only, as everything is after a
  // start: tokens and places of its segments. A path that was recorded or warmed in this process
  // needs no I/O. Call it before Lookup; without it a prefix from before the start may be found
  // shorter than it is, and not be restored. Does I/O: not for engine threads.
  virtual void WarmPath(DomainId /*domain*/, std::span<const Token> /*tokens*/,
                        ResumeRule /*rule*/) {}

  // The longest restorable prefix of tokens[0, limit). Counts a hit or a miss and marks what it
  // found as used.
  virtual PrefixMatch Lookup(DomainId domain, std::span<const Token> tokens, TokenCount limit,
                             ResumeRule rule) = 0;
  // The same without any side effect: no lease, no counter, no recency.
  virtual TokenCount Peek(DomainId domain, std::span<const Token> tokens, TokenCount limit,
                          ResumeRule rule) = 0;

  // The longest prefix of `tokens` that this process is known to have removed, whether it was
  // recorded again or not. For explanations: only the last removals are remembered, and the whole
  // path is hashed. Not for engine threads.
  virtual std::optional<RemovedPrefix> FindRemoved(DomainId /*domain*/,
                                                   std::span<const Token> /*tokens*/) {
    return std::nullopt;
  }

  // Starts reading. `path` are the tokens that were looked up: stored token ids are compared with
  // them once more before bytes are handed out. `wake` is called from a cache thread whenever Poll
  // may say something new; it must not block.
  virtual std::unique_ptr<Restore> StartRestore(PrefixMatch match, std::span<const Token> path,
                                                std::function<void()> wake) = 0;

  virtual std::unique_ptr<Recording> StartRecording(DomainId domain, ResumeRule rule) = 0;

  // A buffer of `byte_count` bytes for a Recording, within the RAM budget where that tier is on;
  // null when the write queue's bound is reached or RAM has no room and there is no disk (counted
  // as a dropped record), or when no tier would take it.
  virtual std::unique_ptr<Buffer> AcquireBuffer(std::uint64_t byte_count) = 0;

  // Waits until everything appended before the call is durable or dropped. Not for engine threads.
  virtual Status Flush() = 0;

  // Evicts least-recently-used prefixes until the root's physical bytes are <= target; without a
  // disk tier, until the RAM tier's are. With `model` only that model's. Returns the physical bytes
  // freed.
  virtual Result<std::uint64_t> Prune(std::uint64_t target_bytes,
                                      std::optional<ModelIdentity> model) = 0;
  // Removes every prefix that is not in use, from every tier. Returns the physical bytes freed on
  // disk; without a disk tier, in RAM.
  virtual Result<std::uint64_t> Clear(std::optional<ModelIdentity> model) = 0;

  // Live change of the RAM budget; takes effect before it returns: what does not fit is evicted and
  // its memory returned. What readers hold at that moment follows when they let go. kUnavailable
  // when no tier was on at start.
  virtual Status SetRamLimit(std::uint64_t budget_bytes) = 0;
  // The model is not served any more: drops what RAM holds for it, except what is being read.
  // Copies on disk stay.
  virtual void DropRam(const ModelIdentity& model) = 0;

  // Live change of the disk budget and reserve; takes effect before it returns.
  virtual Status SetDiskLimits(std::uint64_t budget_bytes, std::uint64_t minimum_free_bytes) = 0;

  // Reads one stored segment a few times and says how long the fastest took: so that the first
  // request already knows whether restoring is worth it. nullopt when nothing is stored on disk, or
  // it cannot be read. Does I/O: not for engine threads.
  virtual std::optional<DiskProbe> ProbeDisk() { return std::nullopt; }

  virtual CacheStatus GetStatus() = 0;

  // Drains the write queue, closes the tiers, releases the owner lock. Idempotent; the destructor
  // does it too, without reporting.
  virtual Status Close() = 0;
};

}  // namespace skippy
