// Brings a cached prefix into a lane, a bounded amount per engine step.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "engine/llama_context.h"
#include "skippy/cache.h"

namespace skippy {

// Extends one lane by imports in ascending order. Whatever happens, the lane holds a good prefix:
// the caller computes the rest. Engine thread. Destruction cancels the reads.
class Restorer {
 public:
  enum class Outcome {
    kWaiting,  // the next segment is not there yet: come back after the wake-up
    kPaused,   // the time is used up, there is more to import
    kDone,
    kFailed,  // the rest is not available
  };
  // Makes that many cells free by dropping idle state; false when it cannot.
  using MakeRoom = std::function<bool(std::size_t cells)>;

  // Drops the segments of `match` that end within the rows the lane already holds.
  static void DropHeldSegments(PrefixMatch* match, TokenCount held);

  Restorer(LlamaContext* context, LaneId lane, std::unique_ptr<Restore> restore);

  // Stops after the import that uses up `time`.
  Outcome Step(std::chrono::nanoseconds time, const MakeRoom& make_room);

  TokenCount ram_tokens() const { return ram_tokens_; }
  TokenCount disk_tokens() const { return disk_tokens_; }
  std::uint64_t imported_bytes() const { return imported_bytes_; }
  double import_ms() const { return import_ms_; }

 private:
  bool Import(const MakeRoom& make_room);
  bool ImportCheckpoint(const MatchedSegment& segment);
  void TraceImport(TokenCount first, TokenCount end) const;

  LlamaContext* const context_;
  const LaneId lane_;
  const std::unique_ptr<Restore> restore_;
  TokenCount ram_tokens_ = 0;
  TokenCount disk_tokens_ = 0;
  std::uint64_t imported_bytes_ = 0;
  double import_ms_ = 0;
};

}  // namespace skippy
