// What the probes have in common: a process that computes, and the cache it records into.
#pragma once

#include <llama.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "cache/cache_test_util.h"
#include "engine/llama_context.h"
#include "engine/recorder.h"
#include "engine/restorer.h"
#include "engine/test_model.h"
#include "identity_probe.h"
#include "skippy/options.h"

namespace skippy {

inline constexpr int kUbatchTokens = 128;
inline constexpr int kLanes = 3;

using Bytes = std::vector<std::byte>;
using Logits = std::vector<float>;

inline std::vector<Token> RandomTokens(TokenCount count, int vocabulary, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Token> tokens(static_cast<std::size_t>(count));
  for (Token& token : tokens) {
    token = static_cast<Token>(random() % static_cast<unsigned>(vocabulary));
  }
  return tokens;
}

// Also tells bit patterns apart that compare equal.
inline bool SameBits(const Logits& a, const Logits& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline float LargestChange(const Logits& a, const Logits& b) {
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
                                                 const ProbeSetting& setting,
                                                 RowAccess access = RowAccess::kAnyRange) {
    ModelPtr model = LoadTestModel(model_path);
    if (!model) {
      return MakeError(ErrorCode::kCorrupt, model_path + " cannot be loaded");
    }
    LlamaContextPtr context(llama_init_from_model(model.get(), Params(setting)));
    if (!context) {
      return MakeError(ErrorCode::kUnsupported, "no context in this setting");
    }
    return std::make_unique<Instance>(
        std::make_unique<LlamaContext>(LlamaModelPtr(model.release()), std::move(context), access));
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

// Runs it to its end; kInternal when it fails.
inline Status RunRestore(DiskCache& cache, Instance& to, PrefixMatch match,
                         std::span<const Token> path) {
  WakeSignal wake;
  Restorer restorer(&to.context(), Instance::kPromptLane,
                    cache.get()->StartRestore(std::move(match), path, wake.callback()));
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
        return restorer.disk_tokens() == to.context().lanes().Length(Instance::kPromptLane)
                   ? Status()
                   : MakeError(ErrorCode::kInternal, "not every row came from the disk");
    }
  }
}

// Which row differs; "" when all are equal. `by_position` becomes false where the exports could
// only be compared as a whole: models with a second cache write both one after the other.
std::string RowDifference(std::span<const std::byte> expected, std::span<const std::byte> actual,
                          bool* by_position);

// Families that resume at checkpoints only; by their access.
Result<ProbeFindings> ProbeCheckpoints(const ProbeInput& input, const ProbeSetting& setting);

}  // namespace skippy
