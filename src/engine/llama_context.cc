#include "engine/llama_context.h"

#include <llama.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "base/log.h"

namespace skippy {
namespace {

constexpr llama_seq_id kScratch = static_cast<llama_seq_id>(LaneId::kScratch);

llama_seq_id Seq(LaneId lane) { return static_cast<llama_seq_id>(lane); }

// What the state of a lane is exported with.
llama_state_seq_flags StateFlags(RowAccess access) {
  return access == RowAccess::kWholeState ? LLAMA_STATE_SEQ_FLAGS_NONE
                                          : LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;
}

// A recurrent state has one size whatever the length: only the context of each lane is a bound.
std::size_t CellCount(const llama_context* context, RowAccess access) {
  const std::size_t cells = llama_n_ctx(context);
  return access == RowAccess::kStateOnly ? cells * llama_n_seq_max(context) : cells;
}

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
             CellCount(context_.get(), access)),
      has_state_(static_cast<std::size_t>(lanes_.lane_count()), true),
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
    SKIPPY_CHECK(HasState(item.lane), "a lane without its state cannot be computed on");
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
  SKIPPY_CHECK(access_ != RowAccess::kAppendOnly, "this family shares no rows");
  if (!KeepsRows()) {
    SKIPPY_CHECK(lanes_.Length(to) == 0 && count <= lanes_.Length(from), std::to_string(count));
    lanes_.Append(to, count);
  } else {
    lanes_.Share(from, to, count);
    if (count > 0) {
      llama_memory_seq_cp(llama_get_memory(context_.get()), Seq(from), Seq(to), 0, count);
    }
  }
  DropState(to);
}

// Copying from the sequence that is always empty drops a recurrent state and leaves rows alone.
void LlamaContext::DropState(LaneId lane) {
  if (!UsesCheckpoints(access_)) {
    return;
  }
  llama_memory_t memory = llama_get_memory(context_.get());
  if (access_ == RowAccess::kCheckpoints) {
    llama_memory_seq_cp(memory, static_cast<llama_seq_id>(LaneId::kEmpty), Seq(lane), 0, 1);
  } else {
    llama_memory_seq_rm(memory, Seq(lane), -1, -1);
  }
  SetHasState(lane, lanes_.Length(lane) == 0);
}

bool LlamaContext::HasState(LaneId lane) const { return has_state_.at(LaneSlot(lane)); }

Result<std::vector<std::byte>> LlamaContext::SaveState(LaneId lane) {
  CheckThread();
  SKIPPY_CHECK(UsesCheckpoints(access_) && HasState(lane) && lanes_.Length(lane) > 0,
               "there is no state to save");
  const llama_state_seq_flags flags = StateFlags(access_);
  std::vector<std::byte> bytes(llama_state_seq_get_size_ext(context_.get(), Seq(lane), flags));
  const std::size_t written =
      llama_state_seq_get_data_ext(context_.get(), reinterpret_cast<std::uint8_t*>(bytes.data()),
                                   bytes.size(), Seq(lane), flags);
  if (written != bytes.size() || bytes.empty()) {
    return MakeError(ErrorCode::kInternal, "llama.cpp exported " + std::to_string(written) +
                                               " bytes instead of " + std::to_string(bytes.size()));
  }
  return bytes;
}

Status LlamaContext::LoadState(LaneId lane, std::span<const std::byte> bytes) {
  CheckThread();
  SKIPPY_CHECK(UsesCheckpoints(access_) && lanes_.Length(lane) > 0, "there is no state to load");
  SetHasState(lane, false);
  const std::size_t read = llama_state_seq_set_data_ext(
      context_.get(), reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), Seq(lane),
      StateFlags(access_));
  if (read != bytes.size() || llama_memory_seq_pos_max(llama_get_memory(context_.get()),
                                                       Seq(lane)) != lanes_.Length(lane) - 1) {
    DropState(lane);
    return MakeError(ErrorCode::kCorrupt,
                     "llama.cpp refused the state at token " + std::to_string(lanes_.Length(lane)));
  }
  SetHasState(lane, true);
  return {};
}

bool LlamaContext::Truncate(LaneId lane, TokenCount length) {
  CheckThread();
  if (length == lanes_.Length(lane)) {
    return true;
  }
  SKIPPY_CHECK(length == 0 || access_ != RowAccess::kAppendOnly, "this family cuts no rows");
  if (length == 0) {
    Clear(lane);
    return true;
  }
  DropState(lane);  // a recurrent state in the way would keep every row
  if (!KeepsRows()) {
    lanes_.Truncate(lane, length);
    return true;
  }
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
  SetHasState(lane, true);
}

// Names rows [first, end) of a lane without a recurrent state. Of a window's rows only the last one
// is named: the others serve nobody, because a state is loaded after the rows. There is no call
// that removes them alone, but loading a window of one row replaces them.
void LlamaContext::MarkScratch(LaneId lane, TokenCount first, TokenCount end) {
  llama_memory_t memory = llama_get_memory(context_.get());
  if (access_ != RowAccess::kCheckpoints) {
    llama_memory_seq_cp(memory, Seq(lane), kScratch, first, end);
    return;
  }
  const auto mark = [&](TokenCount from) {
    llama_memory_seq_cp(memory, Seq(lane), kScratch, from, end);
    llama_memory_seq_cp(memory, static_cast<llama_seq_id>(LaneId::kEmpty), kScratch, 0, 1);
  };
  const llama_state_seq_flags flags = StateFlags(access_);
  mark(end - 1);
  std::vector<std::uint8_t> window(llama_state_seq_get_size_ext(context_.get(), kScratch, flags));
  const std::size_t written =
      llama_state_seq_get_data_ext(context_.get(), window.data(), window.size(), kScratch, flags);
  llama_memory_seq_rm(memory, kScratch, -1, -1);
  mark(first);
  if (written != window.size() ||
      llama_state_seq_set_data_ext(context_.get(), window.data(), window.size(), kScratch, flags) !=
          window.size()) {
    LogDebug("rows {} are exported with their window", Range(first, end));
  }
}

LlamaContext::RowExport::RowExport(LlamaContext* owner, LaneId lane, TokenCount first,
                                   TokenCount end)
    : owner_(owner) {
  owner->CheckThread();
  SKIPPY_CHECK(owner->access_ != RowAccess::kAppendOnly, "this family exports no rows");
  SKIPPY_CHECK(first >= 0 && first < end && end <= owner->lanes_.Length(lane), Range(first, end));
  owner->exporting_ = true;
  if (!owner->KeepsRows()) {
    return;
  }
  owner->MarkScratch(lane, first, end);
  byte_count_ = llama_state_seq_get_size(owner->context_.get(), kScratch);
}

LlamaContext::RowExport::~RowExport() {
  if (owner_->KeepsRows()) {
    llama_memory_seq_rm(llama_get_memory(owner_->context_.get()), kScratch, -1, -1);
  }
  owner_->exporting_ = false;
}

Status LlamaContext::RowExport::Write(std::span<std::byte> to) {
  SKIPPY_CHECK(to.size() == byte_count_, "the buffer must have the size of the export");
  if (!owner_->KeepsRows()) {
    return {};
  }
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
  SKIPPY_CHECK(access_ != RowAccess::kAppendOnly, "this family imports no rows");
  SKIPPY_CHECK(
      rows.first_token <= have && have < rows.end && rows.end <= rows.first_token + rows.row_count,
      Range(have, rows.end));
  if (lanes_.cells_free() < static_cast<std::size_t>(rows.row_count)) {
    return MakeError(ErrorCode::kResourceExhausted, "no free cells for an import");
  }
  if (!KeepsRows()) {
    DropState(lane);
    lanes_.Append(lane, rows.end - have);
    SetHasState(lane, false);
    return {};
  }
  llama_memory_t memory = llama_get_memory(context_.get());
  const std::size_t read = llama_state_seq_set_data(
      context_.get(), reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), kScratch);
  // Rows alone have no end that the library would report where a recurrent state is missing.
  const bool good = read == bytes.size() && (access_ == RowAccess::kCheckpoints ||
                                             llama_memory_seq_pos_max(memory, kScratch) ==
                                                 rows.first_token + rows.row_count - 1);
  if (good) {
    llama_memory_seq_cp(memory, kScratch, Seq(lane), have, rows.end);
  }
  llama_memory_seq_rm(memory, kScratch, -1, -1);
  if (!good) {
    return MakeError(ErrorCode::kCorrupt,
                     "llama.cpp refused the rows " + Range(rows.first_token, rows.end));
  }
  lanes_.Append(lane, rows.end - have);
  if (UsesCheckpoints(access_)) {
    SetHasState(lane, false);
  }
  return {};
}

Result<double> LlamaContext::WarmUp() {
  constexpr double kTimeForAPromptMs = 250;  // at most, since a step makes its tokens cheaper
  constexpr double kTokensMax = 128;
  CheckThread();
  const llama_vocab* vocab = llama_model_get_vocab(model_.get());
  const Token token = std::max(llama_vocab_bos(vocab), 0);
  const auto decode_ms = [&](std::size_t token_count) {
    std::vector<BatchToken> batch(token_count, {NthLane(0), token, false});
    batch.back().want_logits = true;
    const auto begin = std::chrono::steady_clock::now();
    const DecodeOutcome outcome = Decode(batch);
    llama_synchronize(context_.get());
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    return outcome == DecodeOutcome::kDone ? took.count() : -1.0;
  };
  const auto room = static_cast<double>(
      std::min<std::size_t>(lanes_.cells_free() / 2, static_cast<std::size_t>(ubatch_tokens_)));
  const double one_ms = decode_ms(1);
  const double count = std::floor(std::min({kTimeForAPromptMs / one_ms, kTokensMax, room}));
  const bool measures = one_ms > 0 && count >= 2;
  const double many_ms = measures ? decode_ms(static_cast<std::size_t>(count)) : one_ms;
  llama_memory_clear(llama_get_memory(context_.get()), true);
  lanes_.Truncate(NthLane(0), 0);
  if (one_ms < 0 || many_ms < 0) {
    return MakeError(ErrorCode::kInternal, "the first decode failed");
  }
  return measures ? many_ms / count : one_ms;
}

}  // namespace skippy
