#include "engine/recorder.h"

#include <algorithm>
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
  AdvanceTo(lane, path, context_->lanes().Length(lane), flush);
}

void Recorder::AdvanceTo(LaneId lane, std::span<const Token> path, TokenCount end, bool flush) {
  while (recording_) {
    const std::optional<Recording::Run> run = recording_->NextRun(path, end, flush);
    if (!run) {
      return;
    }
    if (!Export(lane, path, *run)) {
      recording_.reset();
    }
  }
}

void Recorder::AddCheckpoints(LaneId lane, std::span<const Token> path,
                              const CheckpointList& checkpoints) {
  for (const CheckpointPtr& checkpoint : checkpoints.items()) {
    if (checkpoint->position > published_tokens_) {
      published_tokens_ = checkpoint->position;
      AdvanceTo(lane, path, checkpoint->position, true);
      AddCheckpoint(path, *checkpoint);
    }
  }
}

// Where there is no room for it the recording goes on: what follows may have its own.
void Recorder::AddCheckpoint(std::span<const Token> path, const Checkpoint& checkpoint) {
  if (!recording_ || !recording_->WantsCheckpoint(path, checkpoint.position)) {
    return;
  }
  std::unique_ptr<Buffer> buffer = cache_->AcquireBuffer(checkpoint.bytes.size());
  if (!buffer) {
    return;
  }
  std::copy(checkpoint.bytes.begin(), checkpoint.bytes.end(), buffer->bytes().begin());
  exported_bytes_ += checkpoint.bytes.size();
  const RefusalReason refusal =
      recording_->AppendCheckpoint(path, checkpoint.position, std::move(buffer));
  if (refusal != RefusalReason::kNone) {
    LogDebug("record: checkpoint at {} refused, {}", checkpoint.position, ToString(refusal));
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
