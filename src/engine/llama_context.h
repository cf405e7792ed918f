// The only code that touches sequences of a llama_context. Every rule that llama.cpp leaves to its
// caller ("never" list of docs/design section 2) is an assertion here.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "engine/lanes.h"
#include "skippy/result.h"

struct llama_context;
struct llama_context_params;
struct llama_model;

namespace skippy {

struct LlamaModelDeleter {
  void operator()(llama_model* model) const;
};
struct LlamaContextDeleter {
  void operator()(llama_context* context) const;
};
using LlamaModelPtr = std::unique_ptr<llama_model, LlamaModelDeleter>;
using LlamaContextPtr = std::unique_ptr<llama_context, LlamaContextDeleter>;

// One token of a batch; it takes the next position of its lane.
struct BatchToken {
  LaneId lane = LaneId::kFirst;
  Token token = 0;
  bool want_logits = false;
};

enum class DecodeOutcome {
  kDone,
  kNoCells,  // nothing changed
  kFailed,   // lanes of the batch hold an unknown part of it: clear them
};

// Owns model and context. Used by one thread, the one that called AdoptThread last (at first: the
// one that created it).
class LlamaContext {
 public:
  LlamaContext(LlamaModelPtr model, LlamaContextPtr context, RowAccess access);
  ~LlamaContext();

  void AdoptThread() { owner_ = std::this_thread::get_id(); }

  const llama_model* model() const { return model_.get(); }
  llama_context* raw() { return context_.get(); }
  RowAccess access() const { return access_; }
  const LaneTable& lanes() const { return lanes_; }
  int batch_tokens_max() const { return batch_tokens_max_; }
  int ubatch_tokens() const { return ubatch_tokens_; }

  // At most batch_tokens_max() tokens; a lane's tokens in the order of their positions.
  DecodeOutcome Decode(std::span<const BatchToken> batch);

  // Rows [0, count) of `from` become visible in `to`, which is empty. No copy. With checkpoints
  // `to` has no state afterwards.
  void CopyPrefix(LaneId from, LaneId to, TokenCount count);
  // Keeps rows [0, length). False when the memory cannot do it: nothing changed. With checkpoints
  // the lane has no state afterwards unless it has that length already.
  bool Truncate(LaneId lane, TokenCount length);
  void Clear(LaneId lane);

  // With checkpoints: false between a change of the lane's rows from outside and LoadState. Such a
  // lane must not be computed on.
  bool HasState(LaneId lane) const;
  // The state beside the rows at the end of the lane, which has one.
  Result<std::vector<std::byte>> SaveState(LaneId lane);
  // `bytes` were saved where the same Length(lane) tokens ended. On failure the lane has no state.
  Status LoadState(LaneId lane, std::span<const std::byte> bytes);

  // While it lives, the scratch sequence names rows [first, end) of a lane. One at a time; nothing
  // else may be called meanwhile.
  class RowExport {
   public:
    RowExport(LlamaContext* owner, LaneId lane, TokenCount first, TokenCount end);
    ~RowExport();
    RowExport(const RowExport&) = delete;
    RowExport& operator=(const RowExport&) = delete;
    std::size_t byte_count() const { return byte_count_; }
    // Fills `to`, byte_count() bytes. kInternal when llama.cpp wrote something else.
    Status Write(std::span<std::byte> to);

   private:
    LlamaContext* const owner_;
    std::size_t byte_count_ = 0;  // 0 for families without rows
  };

  struct RowImport {
    TokenCount first_token = 0;  // of the first row that the bytes hold
    TokenCount row_count = 0;    // rows that the bytes hold
    TokenCount end = 0;          // rows up to here are taken, first_token < end
  };
  // Appends the rows [Length(lane), end) that `bytes` hold; Length(lane) must lie in
  // [first_token, end). kResourceExhausted: too few free cells for row_count rows; kCorrupt:
  // llama.cpp refused the bytes. On failure the lane is as before.
  Status ImportRows(LaneId lane, std::span<const std::byte> bytes, const RowImport& rows);

  // Some tokens through the whole graph, then everything is forgotten. Returns what a token of a
  // prompt takes, in ms: rather more than less, since memory is touched for the first time.
  Result<double> WarmUp();

 private:
  void CheckThread() const;
  void FillBatch(std::span<const BatchToken> batch);
  bool KeepsRows() const {
    return access_ == RowAccess::kAnyRange || access_ == RowAccess::kCheckpoints;
  }
  void DropState(LaneId lane);
  void MarkScratch(LaneId lane, TokenCount first, TokenCount end);
  void SetHasState(LaneId lane, bool has) { has_state_.at(LaneSlot(lane)) = has; }
  static std::size_t LaneSlot(LaneId lane) { return static_cast<std::size_t>(LaneIndex(lane)); }

  // Constant after construction.
  const LlamaModelPtr model_;
  const LlamaContextPtr context_;
  const RowAccess access_;
  const int batch_tokens_max_;
  const int ubatch_tokens_;
  std::thread::id owner_;
  // Of the owner thread.
  LaneTable lanes_;
  std::vector<bool> has_state_;  // by lane index
  bool exporting_ = false;
  struct BatchArrays;
  std::unique_ptr<BatchArrays> arrays_;
};

}  // namespace skippy
