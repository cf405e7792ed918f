#include <llama.h>

#include <string>
#include <utility>

#include "probe_parts.h"

namespace skippy {
namespace {

// Sliding window, hybrid, recurrent and whole state: rows where there are some, and a state that
// holds at one position. Two positions are recorded, as two turns leave them.
class CheckpointProbe {
 public:
  CheckpointProbe(const ProbeInput& input, const ProbeSetting& setting)
      : input_(input),
        setting_(setting),
        inside_{input.prompt_tokens / 3, {}, {}, {}},
        at_end_{input.prompt_tokens - 1, {}, {}, {}} {}

  Result<ProbeFindings> Run() {
    SKIPPY_RETURN_IF_ERROR(RunFirstProcess());
    SKIPPY_RETURN_IF_ERROR(RunSecondProcess());
    SKIPPY_RETURN_IF_ERROR(RunControls());
    findings_.prompt_tokens = input_.prompt_tokens;
    return findings_;
  }

 private:
  struct ResumePoint {
    TokenCount tokens = 0;
    Bytes rows;   // [0, tokens), as the first process has them
    Bytes state;  // at `tokens`
    Logits logits;
  };

  bool has_rows() const { return input_.access == RowAccess::kCheckpoints; }
  Token At(TokenCount position) const { return prompt_[static_cast<std::size_t>(position)]; }

  Result<std::unique_ptr<Instance>> Start(bool behind_gap) {
    SKIPPY_ASSIGN_OR_RETURN(auto instance,
                            Instance::Start(input_.model_path, setting_, input_.access));
    if (setting_.beside_foreign_state) {
      SKIPPY_RETURN_IF_ERROR(instance->PlaceForeignState(input_.prompt_tokens / 3, behind_gap));
    }
    return instance;
  }

  // Computes up to both points and takes what they are resumed from.
  Status ComputePoints(Instance& instance, std::span<const Token> prompt, ResumePoint* inside,
                       ResumePoint* at_end) {
    TokenCount have = 0;
    for (ResumePoint* point : {inside, at_end}) {
      SKIPPY_RETURN_IF_ERROR(instance.Compute(
          Instance::kPromptLane, prompt.subspan(static_cast<std::size_t>(have),
                                                static_cast<std::size_t>(point->tokens - have))));
      have = point->tokens;
      SKIPPY_ASSIGN_OR_RETURN(point->state, instance.context().SaveState(Instance::kPromptLane));
      if (has_rows()) {
        SKIPPY_ASSIGN_OR_RETURN(Segment rows, instance.Export(0, point->tokens));
        point->rows = std::move(rows.bytes);
      }
    }
    return {};
  }

  // Goes back to a point of the lane and takes the next token's logits, as a server does whose
  // sequence is still resident.
  Status Rewind(Instance& instance, ResumePoint* point) {
    LlamaContext& context = instance.context();
    if (!context.Truncate(Instance::kPromptLane, point->tokens)) {
      return MakeError(ErrorCode::kInternal, "rows could not be cut");
    }
    SKIPPY_RETURN_IF_ERROR(context.LoadState(Instance::kPromptLane, point->state));
    SKIPPY_ASSIGN_OR_RETURN(point->logits, instance.Next(At(point->tokens)));
    return {};
  }

  Status RunFirstProcess() {
    SKIPPY_ASSIGN_OR_RETURN(const auto first, Start(/*behind_gap=*/false));
    prompt_ = RandomTokens(input_.prompt_tokens, first->vocabulary(), 1);
    SKIPPY_RETURN_IF_ERROR(ComputePoints(*first, prompt_, &inside_, &at_end_));
    SKIPPY_RETURN_IF_ERROR(Record(*first));
    for (ResumePoint* point : {&at_end_, &inside_}) {
      SKIPPY_RETURN_IF_ERROR(Rewind(*first, point));
    }
    first->context().Clear(Instance::kPromptLane);
    other_inside_.tokens = inside_.tokens;
    other_at_end_.tokens = at_end_.tokens;
    return ComputePoints(*first, RandomTokens(input_.prompt_tokens, first->vocabulary(), 2),
                         &other_inside_, &other_at_end_);
  }

  Status Record(Instance& first) {
    SKIPPY_ASSIGN_OR_RETURN(DiskCache cache, DiskCache::Open(input_, setting_));
    CheckpointList checkpoints;
    for (const ResumePoint* point : {&inside_, &at_end_}) {
      checkpoints.Add(std::make_shared<const Checkpoint>(Checkpoint{point->tokens, point->state}));
    }
    Recorder recorder(&first.context(), cache.get(),
                      cache.get()->StartRecording(cache.domain(), ResumeRule::kCheckpoint));
    recorder.AddCheckpoints(Instance::kPromptLane, prompt_, checkpoints);
    if (recorder.recorded_tokens() != at_end_.tokens) {
      return MakeError(ErrorCode::kInternal, "not every row was recorded");
    }
    SKIPPY_RETURN_IF_ERROR(cache.get()->Flush());
    return cache.get()->Close();
  }

  Status RunSecondProcess() {
    SKIPPY_ASSIGN_OR_RETURN(DiskCache cache, DiskCache::Open(input_, setting_));
    SKIPPY_ASSIGN_OR_RETURN(findings_.same_logits_at_end, Resume(cache, at_end_, at_end_.tokens));
    SKIPPY_ASSIGN_OR_RETURN(findings_.same_logits_inside_segment,
                            Resume(cache, inside_, at_end_.tokens - 1));
    return cache.get()->Close();
  }

  Result<bool> Resume(DiskCache& cache, const ResumePoint& point, TokenCount limit) {
    SKIPPY_ASSIGN_OR_RETURN(const auto second, Start(/*behind_gap=*/true));
    cache.get()->WarmPath(cache.domain(), prompt_, ResumeRule::kCheckpoint);
    PrefixMatch match =
        cache.get()->Lookup(cache.domain(), prompt_, limit, ResumeRule::kCheckpoint);
    if (match.tokens != point.tokens) {
      return MakeError(ErrorCode::kInternal, "found " + std::to_string(match.tokens) +
                                                 " tokens, not " + std::to_string(point.tokens));
    }
    SKIPPY_RETURN_IF_ERROR(RunRestore(cache, *second, std::move(match), prompt_));
    SKIPPY_ASSIGN_OR_RETURN(const Bytes state, second->context().SaveState(Instance::kPromptLane));
    Note("state: ", RowDifference(point.state, state, &findings_.rows_by_position));
    if (has_rows()) {
      SKIPPY_ASSIGN_OR_RETURN(const Segment rows, second->Export(0, point.tokens));
      Note("rows: ", RowDifference(point.rows, rows.bytes, &findings_.rows_by_position));
    }
    SKIPPY_ASSIGN_OR_RETURN(const Logits logits, second->Next(At(point.tokens)));
    return SameBits(logits, point.logits);
  }

  void Note(const char* where, const std::string& difference) {
    if (!difference.empty() && findings_.row_difference.empty()) {
      findings_.row_difference = where + difference;
    }
  }

  Status RunControls() {
    if (has_rows()) {
      SKIPPY_ASSIGN_OR_RETURN(findings_.foreign_segment_moves,
                              ChangeWith(other_at_end_.rows, at_end_.state));
    }
    SKIPPY_ASSIGN_OR_RETURN(findings_.foreign_checkpoint_moves,
                            ChangeWith(at_end_.rows, other_at_end_.state));
    return {};
  }

  Result<float> ChangeWith(const Bytes& rows, const Bytes& state) {
    SKIPPY_ASSIGN_OR_RETURN(const auto second, Start(/*behind_gap=*/true));
    SKIPPY_RETURN_IF_ERROR(second->Import({0, at_end_.tokens, rows}, at_end_.tokens));
    SKIPPY_RETURN_IF_ERROR(second->context().LoadState(Instance::kPromptLane, state));
    SKIPPY_ASSIGN_OR_RETURN(const Logits logits, second->Next(At(at_end_.tokens)));
    return SameBits(logits, at_end_.logits) ? 0.0F : LargestChange(logits, at_end_.logits);
  }

  const ProbeInput& input_;
  const ProbeSetting& setting_;
  std::vector<Token> prompt_;
  ResumePoint inside_;
  ResumePoint at_end_;
  ResumePoint other_inside_;  // of another prompt
  ResumePoint other_at_end_;
  ProbeFindings findings_;
};

}  // namespace

Result<ProbeFindings> ProbeCheckpoints(const ProbeInput& input, const ProbeSetting& setting) {
  return CheckpointProbe(input, setting).Run();
}

}  // namespace skippy
