#include "engine/restorer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.h"
#include "engine/kv_rows.h"

namespace skippy {

void Restorer::DropHeldSegments(PrefixMatch* match, TokenCount held) {
  const auto is_held = [held](const MatchedSegment& segment) {
    return segment.kind == SegmentKind::kRows && segment.first_token + segment.rows_used <= held;
  };
  std::erase_if(match->segments, is_held);
}

Restorer::Restorer(LlamaContext* context, LaneId lane, std::unique_ptr<Restore> restore)
    : context_(context), lane_(lane), restore_(std::move(restore)) {}

// What is in the lane now, not what was handed in.
void Restorer::TraceImport(TokenCount first, TokenCount end) const {
  if (!RowsAreTraced() || context_->access() != RowAccess::kAnyRange) {
    return;
  }
  LlamaContext::RowExport rows(context_, lane_, first, end);
  std::vector<std::byte> bytes(rows.byte_count());
  if (rows.Write(bytes)) {
    TraceRows("restored", bytes);
  }
}

bool Restorer::ImportCheckpoint(const MatchedSegment& segment) {
  if (segment.first_token != context_->lanes().Length(lane_)) {
    LogWarning("restore: a checkpoint at {} does not follow {} rows", segment.first_token,
               context_->lanes().Length(lane_));
    return false;
  }
  const auto start = std::chrono::steady_clock::now();
  const Status loaded = context_->LoadState(lane_, restore_->bytes());
  import_ms_ +=
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  if (!loaded) {
    LogWarning("restore: {}", loaded.error().text);
    restore_->Reject();
    return false;
  }
  imported_bytes_ += segment.byte_count;
  return true;
}

bool Restorer::Import(const MakeRoom& make_room) {
  const MatchedSegment& segment = restore_->segment();
  if (segment.kind == SegmentKind::kCheckpoint && UsesCheckpoints(context_->access())) {
    return ImportCheckpoint(segment);
  }
  const TokenCount held = context_->lanes().Length(lane_);
  const TokenCount end = segment.first_token + segment.rows_used;
  if (segment.kind != SegmentKind::kRows || segment.first_token > held || end <= held) {
    LogWarning("restore: a segment at {} does not continue {} rows", segment.first_token, held);
    return false;
  }
  if (!make_room(static_cast<std::size_t>(segment.row_count))) {
    LogDebug("restore: no cells for {} rows", segment.row_count);
    return false;
  }
  const auto start = std::chrono::steady_clock::now();
  const Status imported =
      context_->ImportRows(lane_, restore_->bytes(), {segment.first_token, segment.row_count, end});
  import_ms_ +=
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  if (!imported) {
    LogWarning("restore: {}", imported.error().text);
    if (imported.error().code == ErrorCode::kCorrupt) {
      restore_->Reject();
    }
    return false;
  }
  TraceImport(held, end);
  (segment.tier == Tier::kRam ? ram_tokens_ : disk_tokens_) += end - held;
  imported_bytes_ += segment.byte_count;
  return true;
}

Restorer::Outcome Restorer::Step(std::chrono::nanoseconds time, const MakeRoom& make_room) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (true) {
    switch (restore_->Poll()) {
      case Restore::State::kPending:
        return Outcome::kWaiting;
      case Restore::State::kDone:
        return Outcome::kDone;
      case Restore::State::kFailed:
        return Outcome::kFailed;
      case Restore::State::kReady:
        break;
    }
    if (!Import(make_room)) {
      return Outcome::kFailed;
    }
    restore_->Pop();
    if (std::chrono::steady_clock::now() >= end) {
      return Outcome::kPaused;
    }
  }
}

}  // namespace skippy
