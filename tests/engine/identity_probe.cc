#include "identity_probe.h"

#include <llama.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "base/hash.h"
#include "cache/cache_test_util.h"
#include "engine/kv_rows.h"
#include "engine/llama_context.h"
#include "engine/recorder.h"
#include "engine/restorer.h"
#include "engine/test_model.h"
#include "skippy/options.h"

namespace skippy {
namespace {

constexpr int kUbatchTokens = 128;
constexpr int kLanes = 3;

using Bytes = std::vector<std::byte>;
using Logits = std::vector<float>;

std::vector<Token> RandomTokens(TokenCount count, int vocabulary, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Token> tokens(static_cast<std::size_t>(count));
  for (Token& token : tokens) {
    token = static_cast<Token>(random() % static_cast<unsigned>(vocabulary));
  }
  return tokens;
}

// Also tells bit patterns apart that compare equal.
bool SameBits(const Logits& a, const Logits& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

float LargestChange(const Logits& a, const Logits& b) {
  float most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(a[i] - b[i]));
  }
  return most;
}

struct Segment {
  TokenCount first = 0;
  TokenCount count = 0;
  Bytes bytes;
  TokenCount end() const { return first + count; }
};

// What a process has while it serves: model, context, lanes.
class Instance {
 public:
  static constexpr LaneId kPromptLane = LaneId::kFirst;

  static Result<std::unique_ptr<Instance>> Start(const std::string& model_path,
                                                 const ProbeSetting& setting) {
    ModelPtr model = LoadTestModel(model_path);
    if (!model) {
      return MakeError(ErrorCode::kCorrupt, model_path + " cannot be loaded");
    }
    LlamaContextPtr context(llama_init_from_model(model.get(), Params(setting)));
    if (!context) {
      return MakeError(ErrorCode::kUnsupported, "no context in this setting");
    }
    return std::make_unique<Instance>(std::make_unique<LlamaContext>(
        LlamaModelPtr(model.release()), std::move(context), RowAccess::kAnyRange));
  }

  explicit Instance(std::unique_ptr<LlamaContext> context) : context_(std::move(context)) {}

  LlamaContext& context() { return *context_; }
  int vocabulary() const { return llama_vocab_n_tokens(llama_model_get_vocab(context_->model())); }

  // Another sequence takes the first cells, or cells behind a gap.
  Status PlaceForeignState(TokenCount tokens, bool behind_gap) {
    if (behind_gap) {
      SKIPPY_RETURN_IF_ERROR(Compute(NthLane(1), RandomTokens(tokens / 2, vocabulary(), 4)));
    }
    SKIPPY_RETURN_IF_ERROR(Compute(NthLane(2), RandomTokens(tokens, vocabulary(), 3)));
    context_->Clear(NthLane(1));
    return {};
  }

  Status Compute(LaneId lane, std::span<const Token> tokens) {
    for (std::size_t at = 0; at < tokens.size(); at += kUbatchTokens) {
      std::vector<BatchToken> batch;
      for (const Token token :
           tokens.subspan(at, std::min<std::size_t>(kUbatchTokens, tokens.size() - at))) {
        batch.push_back({lane, token, false});
      }
      batch.back().want_logits = true;
      SKIPPY_RETURN_IF_ERROR(Decode(batch));
    }
    return {};
  }

  // After one more token of the prompt.
  Result<Logits> Next(Token token) {
    const BatchToken batch[] = {{kPromptLane, token, true}};
    SKIPPY_RETURN_IF_ERROR(Decode(batch));
    const float* first = llama_get_logits_ith(context_->raw(), 0);
    Logits logits(first, first + vocabulary());
    if (!std::all_of(logits.begin(), logits.end(), [](float x) { return !std::isnan(x); })) {
      return MakeError(ErrorCode::kInternal, "logits that are no numbers");
    }
    return logits;
  }

  Result<Segment> Export(TokenCount first, TokenCount end) {
    LlamaContext::RowExport rows(context_.get(), kPromptLane, first, end);
    Segment segment{first, end - first, Bytes(rows.byte_count())};
    SKIPPY_RETURN_IF_ERROR(rows.Write(segment.bytes));
    return segment;
  }

  // Rows up to `cut` are taken.
  Status Import(const Segment& segment, TokenCount cut) {
    return context_->ImportRows(kPromptLane, segment.bytes,
                                {segment.first, segment.count, std::min(cut, segment.end())});
  }

 private:
  static llama_context_params Params(const ProbeSetting& setting) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 1024;
    params.n_batch = params.n_ubatch = kUbatchTokens;
    params.n_seq_max = params.n_outputs_max = kLanes + kReservedLanes;
    params.n_threads = params.n_threads_batch = 1;
    params.type_k = params.type_v = setting.quantised_rows ? GGML_TYPE_Q8_0 : GGML_TYPE_F16;
    params.flash_attn_type =
        setting.quantised_rows ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.swa_full = false;
    params.kv_unified = true;
    return params;
  }

  Status Decode(std::span<const BatchToken> batch) {
    if (context_->Decode(batch) != DecodeOutcome::kDone) {
      return MakeError(ErrorCode::kInternal, "a batch could not be decoded");
    }
    return {};
  }

  const std::unique_ptr<LlamaContext> context_;
};

// The cache over the probe's root with the domain of one model in one setting.
class DiskCache {
 public:
  static Result<DiskCache> Open(const ProbeInput& input, const ProbeSetting& setting) {
    DiskCache out;
    SKIPPY_ASSIGN_OR_RETURN(out.cache_, OpenDiskCache(input.root));
    DomainSpec spec;
    spec.model_name = input.model_name;
    Hasher hasher;
    hasher.UpdateString(input.model_name);
    spec.model = hasher.Finish<ModelIdentity>();
    hasher.UpdateString(setting.name);
    spec.state = hasher.Finish<StateIdentity>();
    SKIPPY_ASSIGN_OR_RETURN(out.domain_, out.cache_->OpenDomain(spec));
    return out;
  }

  Cache* get() { return cache_.get(); }
  DomainId domain() const { return domain_; }

 private:
  std::unique_ptr<Cache> cache_;
  DomainId domain_ = DomainId::kNone;
};

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
    CompareRows(point.rows, rows);
    SKIPPY_ASSIGN_OR_RETURN(const Logits logits, second->Next(At(point.tokens)));
    return SameBits(logits, point.logits);
  }

  Status Restore(DiskCache& cache, Instance& second, TokenCount tokens) {
    PrefixMatch match = cache.get()->Lookup(cache.domain(), prompt_, tokens, ResumeRule::kAnyToken);
    if (match.tokens != tokens) {
      return MakeError(ErrorCode::kInternal, "found " + std::to_string(match.tokens) +
                                                 " tokens, not " + std::to_string(tokens));
    }
    WakeSignal wake;
    Restorer restorer(&second.context(), Instance::kPromptLane,
                      cache.get()->StartRestore(std::move(match), prompt_, wake.callback()));
    for (;;) {
      const int seen = wake.count();
      switch (restorer.Step(std::chrono::seconds(1), [](std::size_t) { return true; })) {
        case Restorer::Outcome::kWaiting:
          wake.WaitAfter(seen);
          break;
        case Restorer::Outcome::kPaused:
          break;
        case Restorer::Outcome::kFailed:
          return MakeError(ErrorCode::kInternal, "the restore failed");
        case Restorer::Outcome::kDone:
          return restorer.disk_tokens() == tokens
                     ? Status()
                     : MakeError(ErrorCode::kInternal, "not every row came from the disk");
      }
    }
  }

  // Models with a second cache beside the attention's write both one after the other: their
  // exports are compared as a whole, which ascending cells make possible.
  void CompareRows(const Segment& expected, const Segment& actual) {
    const auto a = ParseKvRows(expected.bytes);
    const auto b = ParseKvRows(actual.bytes);
    if (!a || !b) {
      findings_.rows_by_position = false;
      if (expected.bytes != actual.bytes) {
        findings_.row_difference = "exports differ";
      }
      return;
    }
    if (a->rows.size() != static_cast<std::size_t>(expected.count) ||
        a->rows.size() != b->rows.size()) {
      findings_.row_difference = "number of rows";
    }
    for (const auto& [position, row] : a->rows) {
      const auto found = b->rows.find(position);
      if (found == b->rows.end() || found->second != row) {
        findings_.row_difference = "row " + std::to_string(position);
        return;
      }
    }
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
    case ResumeRule::kSegmentEnd:
    case ResumeRule::kCheckpoint:
      return nullptr;
  }
  return nullptr;
}

}  // namespace skippy
