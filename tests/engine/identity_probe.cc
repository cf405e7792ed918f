#include "identity_probe.h"

#include <cstddef>
#include <string>
#include <utility>

#include "engine/kv_rows.h"
#include "probe_parts.h"

namespace skippy {
namespace {

// Full attention: rows may be cut, shared and damaged one by one.
class AnyTokenProbe {
 public:
  AnyTokenProbe(const ProbeInput& input, const ProbeSetting& setting)
      : input_(input),
        setting_(setting),
        end_(input.prompt_tokens),
        at_end_{end_ - 1, {}, {}},
        inside_segment_{end_ - end_ / 12, {}, {}} {}

  Result<ProbeFindings> Run() {
    SKIPPY_RETURN_IF_ERROR(RunFirstProcess());
    SKIPPY_RETURN_IF_ERROR(RunSecondProcess());
    SKIPPY_RETURN_IF_ERROR(RunControls());
    findings_.prompt_tokens = end_;
    return findings_;
  }

 private:
  // What the first process has when it resumes with rows [0, tokens).
  struct ResumePoint {
    TokenCount tokens = 0;
    Segment rows;
    Logits logits;
  };

  Token At(TokenCount position) const { return prompt_[static_cast<std::size_t>(position)]; }

  Status RunFirstProcess() {
    SKIPPY_ASSIGN_OR_RETURN(const auto first, Instance::Start(input_.model_path, setting_));
    prompt_ = RandomTokens(end_, first->vocabulary(), 1);
    if (setting_.beside_foreign_state) {
      SKIPPY_RETURN_IF_ERROR(first->PlaceForeignState(end_ / 3, /*behind_gap=*/false));
    }
    SKIPPY_RETURN_IF_ERROR(Record(*first));
    SKIPPY_RETURN_IF_ERROR(KeepSegments(*first, &segments_));
    for (ResumePoint* point : {&at_end_, &inside_segment_}) {
      SKIPPY_ASSIGN_OR_RETURN(point->rows, first->Export(0, point->tokens));
    }
    for (ResumePoint* point : {&at_end_, &inside_segment_}) {
      if (!first->context().Truncate(Instance::kPromptLane, point->tokens)) {
        return MakeError(ErrorCode::kInternal, "rows could not be cut");
      }
      SKIPPY_ASSIGN_OR_RETURN(point->logits, first->Next(At(point->tokens)));
    }
    first->context().Clear(Instance::kPromptLane);
    SKIPPY_RETURN_IF_ERROR(
        first->Compute(Instance::kPromptLane, RandomTokens(end_, first->vocabulary(), 2)));
    return KeepSegments(*first, &other_segments_);
  }

  // Two turns: the second one continues what the first one recorded.
  Status Record(Instance& first) {
    SKIPPY_ASSIGN_OR_RETURN(DiskCache cache, DiskCache::Open(input_, setting_));
    for (const TokenCount turn_end : {end_ / 3, end_}) {
      const TokenCount have = first.context().lanes().Length(Instance::kPromptLane);
      SKIPPY_RETURN_IF_ERROR(
          first.Compute(Instance::kPromptLane,
                        std::span(prompt_).subspan(static_cast<std::size_t>(have),
                                                   static_cast<std::size_t>(turn_end - have))));
      Recorder recorder(&first.context(), cache.get(),
                        cache.get()->StartRecording(cache.domain(), ResumeRule::kAnyToken));
      recorder.Publish(Instance::kPromptLane, prompt_);
      if (recorder.recorded_tokens() != turn_end - have) {
        return MakeError(ErrorCode::kInternal, "not every row was recorded");
      }
    }
    SKIPPY_RETURN_IF_ERROR(cache.get()->Flush());
    return cache.get()->Close();
  }

  // The prompt as the cut rule divides it, and the rows to be damaged by themselves.
  Status KeepSegments(Instance& instance, std::vector<Segment>* out) {
    for (TokenCount first = 0, end = 0; first < end_; first = end) {
      const TokenCount turn_end = first < end_ / 3 ? end_ / 3 : end_;
      end = std::min(turn_end, first + kMaxSegmentTokens);
      SKIPPY_ASSIGN_OR_RETURN(Segment segment, instance.Export(first, end));
      out->push_back(std::move(segment));
    }
    SKIPPY_ASSIGN_OR_RETURN((out == &segments_ ? last_rows_ : other_last_rows_),
                            instance.Export(end_ - 1 - input_.damaged_rows, end_ - 1));
    return {};
  }

  Status RunSecondProcess() {
    SKIPPY_ASSIGN_OR_RETURN(DiskCache cache, DiskCache::Open(input_, setting_));
    SKIPPY_ASSIGN_OR_RETURN(findings_.same_logits_at_end, Resume(cache, at_end_));
    SKIPPY_ASSIGN_OR_RETURN(findings_.same_logits_inside_segment, Resume(cache, inside_segment_));
    return cache.get()->Close();
  }

  Result<std::unique_ptr<Instance>> StartSecond() {
    SKIPPY_ASSIGN_OR_RETURN(auto second, Instance::Start(input_.model_path, setting_));
    if (setting_.beside_foreign_state) {
      SKIPPY_RETURN_IF_ERROR(second->PlaceForeignState(end_ / 3, /*behind_gap=*/true));
    }
    return second;
  }

  Result<bool> Resume(DiskCache& cache, const ResumePoint& point) {
    SKIPPY_ASSIGN_OR_RETURN(const auto second, StartSecond());
    SKIPPY_RETURN_IF_ERROR(Restore(cache, *second, point.tokens));
    SKIPPY_ASSIGN_OR_RETURN(const Segment rows, second->Export(0, point.tokens));
    if (findings_.row_difference.empty()) {
      findings_.row_difference =
          RowDifference(point.rows.bytes, rows.bytes, &findings_.rows_by_position);
    }
    SKIPPY_ASSIGN_OR_RETURN(const Logits logits, second->Next(At(point.tokens)));
    return SameBits(logits, point.logits);
  }

  Status Restore(DiskCache& cache, Instance& second, TokenCount tokens) {
    cache.get()->WarmPath(cache.domain(), prompt_, ResumeRule::kAnyToken);
    PrefixMatch match = cache.get()->Lookup(cache.domain(), prompt_, tokens, ResumeRule::kAnyToken);
    if (match.tokens != tokens) {
      return MakeError(ErrorCode::kInternal, "found " + std::to_string(match.tokens) +
                                                 " tokens, not " + std::to_string(tokens));
    }
    return RunRestore(cache, second, std::move(match), prompt_);
  }

  Status RunControls() {
    std::vector<Segment> foreign = segments_;
    const std::size_t last = foreign.size() - 1;
    const std::size_t index = input_.control_near_end ? last : last / 2;
    foreign[index] = other_segments_[index];
    SKIPPY_ASSIGN_OR_RETURN(findings_.foreign_segment_moves, ChangeWith(foreign));
    std::vector<Segment> damaged = segments_;
    damaged.push_back(DamagedRows());
    SKIPPY_ASSIGN_OR_RETURN(findings_.damaged_rows_move, ChangeWith(damaged));
    return {};
  }

  // Every byte of the rows' own state has one bit flipped that leaves finite numbers finite.
  // Which bytes these are: those in which the same rows of two prompts differ.
  Segment DamagedRows() const {
    Segment rows = last_rows_;
    for (std::size_t i = 0; i < rows.bytes.size(); ++i) {
      if (rows.bytes[i] != other_last_rows_.bytes.at(i)) {
        rows.bytes[i] ^= std::byte{0x80};
      }
    }
    return rows;
  }

  // Of each segment the rows before the next one are taken.
  Result<float> ChangeWith(const std::vector<Segment>& segments) {
    SKIPPY_ASSIGN_OR_RETURN(const auto second, StartSecond());
    for (std::size_t i = 0; i < segments.size(); ++i) {
      const bool is_last = i + 1 == segments.size();
      SKIPPY_RETURN_IF_ERROR(
          second->Import(segments[i], is_last ? at_end_.tokens : segments[i + 1].first));
    }
    SKIPPY_ASSIGN_OR_RETURN(const Logits logits, second->Next(At(at_end_.tokens)));
    return SameBits(logits, at_end_.logits) ? 0.0F : LargestChange(logits, at_end_.logits);
  }

  const ProbeInput& input_;
  const ProbeSetting& setting_;
  const TokenCount end_;
  std::vector<Token> prompt_;
  ResumePoint at_end_;
  ResumePoint inside_segment_;
  std::vector<Segment> segments_;
  std::vector<Segment> other_segments_;  // of another prompt
  Segment last_rows_;                    // without the very last one
  Segment other_last_rows_;
  ProbeFindings findings_;
};

Result<ProbeFindings> ProbeAnyToken(const ProbeInput& input, const ProbeSetting& setting) {
  return AnyTokenProbe(input, setting).Run();
}

}  // namespace

std::string RowDifference(std::span<const std::byte> expected, std::span<const std::byte> actual,
                          bool* by_position) {
  const auto a = ParseKvRows(expected);
  const auto b = ParseKvRows(actual);
  if (!a || !b) {
    *by_position = false;
    return std::ranges::equal(expected, actual) ? "" : "exports differ";
  }
  if (a->rows.size() != b->rows.size()) {
    return "number of rows";
  }
  for (const auto& [position, row] : a->rows) {
    const auto found = b->rows.find(position);
    if (found == b->rows.end() || found->second != row) {
      return "row " + std::to_string(position);
    }
  }
  return "";
}

Result<std::unique_ptr<Cache>> OpenDiskCache(const std::string& root) {
  CacheOptions options;
  options.disk.mode = DiskMode::kFixed;
  options.disk.directory = root;
  options.disk.budget_bytes = 64 * kMiB;
  options.disk.pack_bytes = 8 * kMiB;
  options.disk.minimum_free_bytes = kLowestMinimumFreeBytes;
  return Cache::Open(options, Env::Posix());
}

Probe ProbeFor(ResumeRule rule) {
  switch (rule) {
    case ResumeRule::kAnyToken:
      return ProbeAnyToken;
    case ResumeRule::kCheckpoint:
      return ProbeCheckpoints;
    case ResumeRule::kSegmentEnd:
      return nullptr;
  }
  return nullptr;
}

}  // namespace skippy
