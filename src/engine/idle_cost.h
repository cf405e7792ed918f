// What cells of idle sequences cost everybody else. A step looks at every used cell of the KV
// buffer for every token it computes, also at those that no token of the step may see. Measured
// with the library's own attention operation in the model's shape, because a whole step is far too
// noisy.
#pragma once

#include <cstdint>

#include "skippy/ids.h"
#include "skippy/result.h"

struct llama_context;
struct llama_model;

namespace skippy {

// Attention of a model whose K and V lie in host memory.
struct AttentionShape {
  int layers = 0;
  int heads = 0;
  int kv_heads = 0;
  int key_width = 0;  // of one head
  int value_width = 0;
  int k_type = 0;  // ggml_type
  int v_type = 0;
  bool flash = false;
  int threads = 1;

  std::uint64_t row_bytes() const;  // K and V of one token
};

// kUnsupported: the metadata does not say it.
Result<AttentionShape> ReadAttentionShape(const llama_model* model);

// Milliseconds that one masked cell adds to a step, for each token of the step.
struct IdleCellCost {
  double decode_ms = 0;   // steps of few tokens
  double prefill_ms = 0;  // steps of many
};

// Takes some tens of milliseconds. kResourceExhausted: no memory for some MiB of K and V.
Result<IdleCellCost> MeasureIdleCellCost(const AttentionShape& shape);

// Rent that idle sequences pay for their cells until it reaches what bringing them back would cost;
// then they move to a tier below. Whenever the session comes back, rent and restore together are at
// most twice what the better of the two choices would have cost.
class IdleRent {
 public:
  IdleRent() = default;
  // `row_bytes` of one token.
  IdleRent(IdleCellCost cost, std::uint64_t row_bytes) : cost_(cost), row_bytes_(row_bytes) {}

  bool is_known() const { return row_bytes_ > 0; }
  // Tokens that are about to be computed: in a prompt, or in steps of few tokens.
  void AddPrefill(TokenCount token_count);
  void AddDecode(TokenCount token_count);
  // Rent of one cell since the last TakeDue, in ms; 0 while it is too little to look at.
  double TakeDue();
  // What a reply is likely to have, at most `most` where that is not negative; and what it had.
  TokenCount LikelyReply(TokenCount most) const;
  void AddReply(TokenCount token_count);
  // What restoring so many tokens from a tier below is expected to take.
  double RestoreMs(TokenCount token_count) const;
  // A restore that was completed.
  void AddRestore(std::uint64_t byte_count, double ms);

 private:
  IdleCellCost cost_;
  std::uint64_t row_bytes_ = 0;
  double due_ms_ = 0;
  TokenCount due_tokens_ = 0;
  double reply_tokens_ = 32;                      // until replies were seen
  double restore_ms_per_byte_ = 0.5 / (1 << 20);  // until a restore was seen: 2 GiB/s
};

}  // namespace skippy
