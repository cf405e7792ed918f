// Hands the rows that a lane computed to the cache, run by run.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "engine/checkpoint.h"
#include "engine/llama_context.h"
#include "skippy/cache.h"

namespace skippy {

// One recording of one lane. Engine thread; all it costs there is a memory copy. What the cache
// refuses ends the recording and nothing else.
class Recorder {
 public:
  // Neither is owned; both outlive the recorder.
  Recorder(LlamaContext* context, Cache* cache, std::unique_ptr<Recording> recording);

  // Rows [0, Length(lane)) of `path` exist. Without `flush` only full runs are taken.
  void Advance(LaneId lane, std::span<const Token> path, bool flush);
  // Advance with flush, then path[0, Length(lane)) becomes a prefix of its own.
  void Publish(LaneId lane, std::span<const Token> path);

  // For families with checkpoints, instead of Publish: what is new among them, with the rows
  // before, becomes a prefix each. `checkpoints` lie within the lane's rows.
  void AddCheckpoints(LaneId lane, std::span<const Token> path, const CheckpointList& checkpoints);

  TokenCount recorded_tokens() const { return recorded_tokens_; }
  std::uint64_t exported_bytes() const { return exported_bytes_; }

 private:
  void AdvanceTo(LaneId lane, std::span<const Token> path, TokenCount end, bool flush);
  void AddCheckpoint(std::span<const Token> path, const Checkpoint& checkpoint);
  bool Export(LaneId lane, std::span<const Token> path, const Recording::Run& run);

  LlamaContext* const context_;
  Cache* const cache_;
  std::unique_ptr<Recording> recording_;  // null once it ended
  TokenCount published_tokens_ = 0;       // also by checkpoints
  TokenCount recorded_tokens_ = 0;
  std::uint64_t exported_bytes_ = 0;
};

}  // namespace skippy
