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

// What may be done with rows, by the model's family. Decided before any call: some memory types end
// the process when asked for what they lack.
enum class RowAccess {
  kAnyRange,    // rows may be shared, cut, exported and imported token by token
  kAppendOnly,  // a lane may only grow or be cleared
};

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

  // Rows [0, count) of `from` become visible in `to`, which is empty. No copy.
  void CopyPrefix(LaneId from, LaneId to, TokenCount count);
  // Keeps rows [0, length). False when the memory cannot do it: nothing changed.
  bool Truncate(LaneId lane, TokenCount length);
  void Clear(LaneId lane);

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
    std::size_t byte_count_ = 0;
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

  // One token through the whole graph, then everything is forgotten.
  Status WarmUp();

 private:
  void CheckThread() const;
  void FillBatch(std::span<const BatchToken> batch);

  // Constant after construction.
  const LlamaModelPtr model_;
  const LlamaContextPtr context_;
  const RowAccess access_;
  const int batch_tokens_max_;
  const int ubatch_tokens_;
  std::thread::id owner_;
  // Of the owner thread.
  LaneTable lanes_;
  bool exporting_ = false;
  struct BatchArrays;
  std::unique_ptr<BatchArrays> arrays_;
};

}  // namespace skippy
