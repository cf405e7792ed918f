// Records a prompt of a model in one engine instance, restores it from the cache's disk in another
// one and says what is the same and what is not.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/lanes.h"
#include "skippy/cache.h"
#include "skippy/result.h"

namespace skippy {

// How both instances run. One thread each, so that replay mode holds.
struct ProbeSetting {
  std::string_view name;
  bool quantised_rows = false;  // q8_0 K/V with flash attention; else f16 without
  // Another sequence is resident first, in other cells in the second instance than in the first.
  bool beside_foreign_state = false;
};
inline constexpr ProbeSetting kReplay{"replay", false, false};
inline constexpr ProbeSetting kBesideForeignState{"beside foreign", true, true};

struct ProbeInput {
  std::string model_path;
  std::string model_name;  // names the domain in the cache
  RowAccess access = RowAccess::kAnyRange;
  std::string root;  // of the cache; must not exist
  TokenCount prompt_tokens = 600;
  TokenCount damaged_rows = 1;    // of the last ones
  bool control_near_end = false;  // which segment of the other prompt is put in place
};

struct ProbeFindings {
  TokenCount prompt_tokens = 0;
  std::string row_difference;    // empty: every restored row is the recorded one
  bool rows_by_position = true;  // false: only whole exports could be compared
  // Bit-identical next-token logits, resuming at the last token and inside a segment.
  bool same_logits_at_end = false;
  bool same_logits_inside_segment = false;  // at the earlier checkpoint, where these are used
  // Negative controls: largest change of a logit; 0: not one bit changed; nullopt: not there.
  std::optional<float> foreign_segment_moves;
  std::optional<float> damaged_rows_move;
  std::optional<float> foreign_checkpoint_moves;
};

// The disk tier alone, over `root`, as one process opens it.
Result<std::unique_ptr<Cache>> OpenDiskCache(const std::string& root);

// How a family is probed; null where none of its models is cached yet.
using Probe = std::function<Result<ProbeFindings>(const ProbeInput&, const ProbeSetting&)>;
Probe ProbeFor(ResumeRule rule);

}  // namespace skippy
