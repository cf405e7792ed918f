#include "engine/llama_context.h"

#include <llama.h>

#include <cstdint>
#include <string>

#include "base/check.h"

namespace skippy {
namespace {

constexpr llama_seq_id kScratch = static_cast<llama_seq_id>(LaneId::kScratch);

llama_seq_id Seq(LaneId lane) { return static_cast<llama_seq_id>(lane); }

std::string Range(TokenCount first, TokenCount end) {
  return "[" + std::to_string(first) + ", " + std::to_string(end) + ")";
}

}  // namespace

void LlamaModelDeleter::operator()(llama_model* model) const { llama_model_free(model); }
void LlamaContextDeleter::operator()(llama_context* context) const { llama_free(context); }

// The arrays that a llama_batch points into, reused by every step.
struct LlamaContext::BatchArrays {
  std::vector<llama_token> tokens;
  std::vector<llama_pos> positions;
  std::vector<std::int32_t> sequence_counts;
  std::vector<llama_seq_id> sequences;
  std::vector<llama_seq_id*> sequence_pointers;
  std::vector<std::int8_t> want_logits;
  std::vector<TokenCount> next_position;  // by lane index

  void Clear() {
    tokens.clear();
    positions.clear();
    sequence_counts.clear();
    sequences.clear();
    sequence_pointers.clear();
    want_logits.clear();
  }
};

LlamaContext::LlamaContext(LlamaModelPtr model, LlamaContextPtr context, RowAccess access)
    : model_(std::move(model)),
      context_(std::move(context)),
      access_(access),
      batch_tokens_max_(static_cast<int>(llama_n_batch(context_.get()))),
      ubatch_tokens_(static_cast<int>(llama_n_ubatch(context_.get()))),
      owner_(std::this_thread::get_id()),
      lanes_(static_cast<int>(llama_n_seq_max(context_.get())) - kReservedLanes,
             llama_n_ctx(context_.get())),
      arrays_(std::make_unique<BatchArrays>()) {
  SKIPPY_CHECK(lanes_.lane_count() > 0, "n_seq_max must exceed the reserved sequences");
}

LlamaContext::~LlamaContext() = default;

void LlamaContext::CheckThread() const {
  SKIPPY_CHECK(owner_ == std::this_thread::get_id(), "a llama context has one thread");
  SKIPPY_CHECK(!exporting_, "the scratch sequence is in use");
}

void LlamaContext::FillBatch(std::span<const BatchToken> batch) {
  BatchArrays& arrays = *arrays_;
  arrays.Clear();
  arrays.next_position.assign(static_cast<std::size_t>(lanes_.lane_count()), -1);
  for (const BatchToken& item : batch) {
    TokenCount& next = arrays.next_position.at(static_cast<std::size_t>(LaneIndex(item.lane)));
    next = next < 0 ? lanes_.Length(item.lane) : next;
    arrays.tokens.push_back(item.token);
    arrays.positions.push_back(next++);
    arrays.sequence_counts.push_back(1);
    arrays.sequences.push_back(Seq(item.lane));
    arrays.want_logits.push_back(item.want_logits ? 1 : 0);
  }
  for (llama_seq_id& sequence : arrays.sequences) {
    arrays.sequence_pointers.push_back(&sequence);
  }
}

DecodeOutcome LlamaContext::Decode(std::span<const BatchToken> batch) {
  CheckThread();
  SKIPPY_CHECK(!batch.empty() && batch.size() <= static_cast<std::size_t>(batch_tokens_max_),
               std::to_string(batch.size()));
  FillBatch(batch);
  BatchArrays& arrays = *arrays_;
  llama_batch raw{};
  raw.n_tokens = static_cast<std::int32_t>(batch.size());
  raw.token = arrays.tokens.data();
  raw.pos = arrays.positions.data();
  raw.n_seq_id = arrays.sequence_counts.data();
  raw.seq_id = arrays.sequence_pointers.data();
  raw.logits = arrays.want_logits.data();
  const std::int32_t code = llama_decode(context_.get(), raw);
  if (code == 1) {
    return DecodeOutcome::kNoCells;
  }
  if (code != 0) {
    return DecodeOutcome::kFailed;
  }
  for (const BatchToken& item : batch) {
    lanes_.Append(item.lane, 1);
  }
  return DecodeOutcome::kDone;
}

void LlamaContext::CopyPrefix(LaneId from, LaneId to, TokenCount count) {
  CheckThread();
  SKIPPY_CHECK(access_ == RowAccess::kAnyRange, "this family shares no rows");
  lanes_.Share(from, to, count);
  if (count > 0) {
    llama_memory_seq_cp(llama_get_memory(context_.get()), Seq(from), Seq(to), 0, count);
  }
}

bool LlamaContext::Truncate(LaneId lane, TokenCount length) {
  CheckThread();
  if (length == lanes_.Length(lane)) {
    return true;
  }
  SKIPPY_CHECK(length == 0 || access_ == RowAccess::kAnyRange, "this family cuts no rows");
  if (!llama_memory_seq_rm(llama_get_memory(context_.get()), Seq(lane), length, -1)) {
    return false;
  }
  lanes_.Truncate(lane, length);
  return true;
}

void LlamaContext::Clear(LaneId lane) {
  CheckThread();
  // Whole sequences can always be removed. It is done even for a length of 0: after a failed decode
  // the memory may hold rows that the table does not count.
  const bool removed = llama_memory_seq_rm(llama_get_memory(context_.get()), Seq(lane), -1, -1);
  SKIPPY_CHECK(removed, "a whole sequence could not be removed");
  lanes_.Truncate(lane, 0);
}

LlamaContext::RowExport::RowExport(LlamaContext* owner, LaneId lane, TokenCount first,
                                   TokenCount end)
    : owner_(owner) {
  owner->CheckThread();
  SKIPPY_CHECK(owner->access_ == RowAccess::kAnyRange, "this family exports no rows");
  SKIPPY_CHECK(first >= 0 && first < end && end <= owner->lanes_.Length(lane), Range(first, end));
  owner->exporting_ = true;
  llama_context* context = owner->context_.get();
  llama_memory_seq_cp(llama_get_memory(context), Seq(lane), kScratch, first, end);
  byte_count_ = llama_state_seq_get_size(context, kScratch);
}

LlamaContext::RowExport::~RowExport() {
  llama_memory_seq_rm(llama_get_memory(owner_->context_.get()), kScratch, -1, -1);
  owner_->exporting_ = false;
}

Status LlamaContext::RowExport::Write(std::span<std::byte> to) {
  SKIPPY_CHECK(to.size() == byte_count_, "the buffer must have the size of the export");
  const std::size_t written = llama_state_seq_get_data(
      owner_->context_.get(), reinterpret_cast<std::uint8_t*>(to.data()), to.size(), kScratch);
  if (written != byte_count_ || byte_count_ == 0) {
    return MakeError(ErrorCode::kInternal, "llama.cpp exported " + std::to_string(written) +
                                               " bytes instead of " + std::to_string(byte_count_));
  }
  return {};
}

Status LlamaContext::ImportRows(LaneId lane, std::span<const std::byte> bytes,
                                const RowImport& rows) {
  CheckThread();
  const TokenCount have = lanes_.Length(lane);
  SKIPPY_CHECK(access_ == RowAccess::kAnyRange, "this family imports no rows");
  SKIPPY_CHECK(
      rows.first_token <= have && have < rows.end && rows.end <= rows.first_token + rows.row_count,
      Range(have, rows.end));
  if (lanes_.cells_free() < static_cast<std::size_t>(rows.row_count)) {
    return MakeError(ErrorCode::kResourceExhausted, "no free cells for an import");
  }
  llama_memory_t memory = llama_get_memory(context_.get());
  const std::size_t read = llama_state_seq_set_data(
      context_.get(), reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), kScratch);
  const bool good = read == bytes.size() && llama_memory_seq_pos_max(memory, kScratch) ==
                                                rows.first_token + rows.row_count - 1;
  if (good) {
    llama_memory_seq_cp(memory, kScratch, Seq(lane), have, rows.end);
  }
  llama_memory_seq_rm(memory, kScratch, -1, -1);
  if (!good) {
    return MakeError(ErrorCode::kCorrupt,
                     "llama.cpp refused the rows " + Range(rows.first_token, rows.end));
  }
  lanes_.Append(lane, rows.end - have);
  return {};
}

Status LlamaContext::WarmUp() {
  CheckThread();
  const llama_vocab* vocab = llama_model_get_vocab(model_.get());
  Token token = llama_vocab_bos(vocab);
  token = token < 0 ? 0 : token;
  const BatchToken batch[] = {{NthLane(0), token, true}};
  const DecodeOutcome outcome = Decode(batch);
  llama_synchronize(context_.get());
  llama_memory_clear(llama_get_memory(context_.get()), true);
  lanes_.Truncate(NthLane(0), 0);
  if (outcome != DecodeOutcome::kDone) {
    return MakeError(ErrorCode::kInternal, "the first decode failed");
  }
  return {};
}

}  // namespace skippy
