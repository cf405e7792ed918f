#include "engine/recorder.h"

#include <utility>

#include "base/log.h"
#include "engine/kv_rows.h"

namespace skippy {

Recorder::Recorder(LlamaContext* context, Cache* cache, std::unique_ptr<Recording> recording)
    : context_(context), cache_(cache), recording_(std::move(recording)) {}

bool Recorder::Export(LaneId lane, std::span<const Token> path, const Recording::Run& run) {
  std::unique_ptr<Buffer> buffer;
  {
    LlamaContext::RowExport rows(context_, lane, run.first_token,
                                 run.first_token + run.token_count);
    buffer = cache_->AcquireBuffer(rows.byte_count());
    if (!buffer) {
      return false;
    }
    if (const Status written = rows.Write(buffer->bytes()); !written) {
      LogWarning("record: {}", written.error().text);
      return false;
    }
    exported_bytes_ += rows.byte_count();
    TraceRows("recorded", buffer->bytes());
  }
  const RefusalReason refusal = recording_->Append(path, run, std::move(buffer));
  if (refusal != RefusalReason::kNone) {
    LogDebug("record: rows [{}, {}) refused, {}", run.first_token,
             run.first_token + run.token_count, ToString(refusal));
    return false;
  }
  recorded_tokens_ += run.token_count;
  return true;
}

void Recorder::Advance(LaneId lane, std::span<const Token> path, bool flush) {
  const TokenCount computed = context_->lanes().Length(lane);
  while (recording_) {
    const std::optional<Recording::Run> run = recording_->NextRun(path, computed, flush);
    if (!run) {
      return;
    }
    if (!Export(lane, path, *run)) {
      recording_.reset();
    }
  }
}

void Recorder::Publish(LaneId lane, std::span<const Token> path) {
  Advance(lane, path, true);
  const TokenCount rows = context_->lanes().Length(lane);
  if (recording_ && rows != std::exchange(published_tokens_, rows)) {
    recording_->Publish(path, rows);
  }
}

}  // namespace skippy
