// Goal: state that was recorded, written to disk and read back by another process is the same
// state, for every architecture that is cached; the others are known, refused with a reason and
// still served. Method: a tiny random model of each architecture of the table, made sensitive to
// its history. A model counts as covered only if another prompt's segment, one damaged row and,
// where there are checkpoints, another prompt's checkpoint change its logits. The table at the end
// names what is covered and what is not.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "generated_model.h"
#include "identity_probe.h"

namespace skippy {
namespace {

struct Exception {
  std::string_view architecture;
  std::string_view reason;
};

// The generator writes no model of these.
constexpr Exception kNotGenerated[] = {
    {"clip", "not a language model"},
    {"gptj", "no usable implementation"},
    {"bert", "no tokenizer in the generator, encoder only"},
    {"modern-bert", "no tokenizer in the generator, encoder only"},
    {"nomic-bert", "no tokenizer in the generator, encoder only"},
    {"nomic-bert-moe", "no tokenizer in the generator, encoder only"},
    {"neo-bert", "no tokenizer in the generator, encoder only"},
    {"jina-bert-v2", "no tokenizer in the generator, encoder only"},
    {"jina-bert-v3", "no tokenizer in the generator, encoder only"},
    {"eurobert", "no tokenizer in the generator, encoder only"},
    {"plamo3", "the generator cannot save it"},
    {"gemma3", "the generator cannot save it"},
    {"gemma3n", "the generator cannot save it"},
    {"gemma4", "left out by the generator"},
    {"gemma4-assistant", "draft model"},
    {"gemma-embedding", "embedding model"},
    {"cohere2", "the generator cannot save it"},
    {"cohere2moe", "the generator cannot save it"},
    {"olmo2", "the generator cannot save it"},
    {"muse-glimmer", "the generator cannot save it"},
    {"deepseek2-ocr", "left out by the generator"},
    {"bitnet", "the generator cannot save it"},
    {"t5", "the generator cannot save it"},
    {"t5encoder", "encoder only"},
    {"exaone-moe", "the generator cannot save it"},
    {"rwkv6", "left out by the generator: it hangs"},
    {"rwkv6qwen2", "left out by the generator: it hangs"},
    {"rwkv7", "left out by the generator: it hangs"},
    {"arwkv7", "left out by the generator: it hangs"},
    {"graniteswitch", "left out by the generator: it needs an adapter"},
    {"granite_swa", "the generator cannot save it"},
    {"chameleon", "no usable implementation"},
    {"wavtokenizer-dec", "left out by the generator"},
    {"plm", "left out by the generator"},
    {"dots3note", "the generator cannot save it"},
    {"afmoe", "the generator cannot save it"},
    {"laguna", "the generator cannot save it"},
    {"apertus", "the generator cannot save it"},
    {"eagle3", "draft model"},
    {"dflash", "draft model"},
    {"mimo2", "the generator cannot save it"},
    {"step35", "the generator cannot save it"},
    {"llama-embed", "embedding model"},
    {"mellum", "the generator cannot save it"},
};

// Each token looks at the few rows that an indexer picks, and costs a hundred times more: a short
// prompt, and more damaged rows than one, which is likely not picked.
constexpr std::string_view kPicksRows[] = {"deepseek32", "glm-dsa"};

// The engine offers no context with q8_0 K/V and flash attention.
constexpr Exception kNoQuantisedRows[] = {
    {"grok", "the engine forces flash attention off"},
};

// Only the last few tokens move the logits of the generated model: the other prompt's segment is
// put in place near the end.
constexpr std::string_view kShortMemory[] = {"command-r", "talkie", "plamo",   "falcon", "bloom",
                                             "mpt",       "phi2",   "minicpm", "gemma"};

// The generated model does not show which rows are restored: the control cannot change its logits.
// exaone4 has no layer without a window.
constexpr std::string_view kBlindToSegments[] = {"lfm2", "exaone4"};

bool IsIn(std::span<const std::string_view> list, std::string_view architecture) {
  return std::find(list.begin(), list.end(), architecture) != list.end();
}

const Exception* Find(std::span<const Exception> table, std::string_view architecture) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Exception& entry) {
    return entry.architecture == architecture;
  });
  return found == table.end() ? nullptr : &*found;
}

struct CoverageLine {
  std::string model;
  std::string family;
  std::string setting;
  bool covered = false;
  std::string note;
};

class ArchIdentityTest : public testing::TestWithParam<std::string_view> {
 protected:
  static void TearDownTestSuite() {
    std::printf("%-20s %-15s %-15s %-8s %s\n", "model", "family", "setting", "covered", "note");
    for (const CoverageLine& line : lines_) {
      std::printf("%-20s %-15s %-15s %-8s %s\n", line.model.c_str(), line.family.c_str(),
                  line.setting.c_str(), line.covered ? "yes" : "no", line.note.c_str());
    }
    lines_.clear();
  }

  static void Report(const GeneratedModel& model, std::string_view setting, bool covered,
                     std::string note) {
    lines_.push_back({model.name, std::string(ToString(model.family.family)), std::string(setting),
                      covered, std::move(note)});
  }

  void ExpectExact(const GeneratedModels& models, const GeneratedModel& model);
  static void CheckControl(const char* what, std::optional<float> moves, bool blind,
                           std::string* note);
  void ExpectExactIn(const ProbeSetting& setting, const ProbeInput& input,
                     const GeneratedModel& model);
  void ExpectRefusedButServed(const GeneratedModels& models, const GeneratedModel& model);

  static std::vector<CoverageLine> lines_;
};

std::vector<CoverageLine> ArchIdentityTest::lines_;

void ArchIdentityTest::ExpectExact(const GeneratedModels& models, const GeneratedModel& model) {
  const Status sensitive = MakeSensitive(model);
  ASSERT_TRUE(sensitive) << sensitive.error().text;
  ProbeInput input;
  input.model_path = model.path;
  input.model_name = model.name;
  if (model.positions_max > 0) {
    input.prompt_tokens = std::min(input.prompt_tokens, model.positions_max);
  }
  input.access = AccessOf(model.family);
  input.control_near_end = IsIn(kShortMemory, GetParam());
  if (IsIn(kPicksRows, GetParam())) {
    input.prompt_tokens = 150;
    input.damaged_rows = 64;
  }
  input.root = models.Sub(model.name + "-replay");
  ExpectExactIn(kReplay, input, model);
  input.root = models.Sub(model.name + "-beside");
  ExpectExactIn(kBesideForeignState, input, model);
}

void ArchIdentityTest::ExpectExactIn(const ProbeSetting& setting, const ProbeInput& input,
                                     const GeneratedModel& model) {
  SCOPED_TRACE(model.name + ", " + std::string(setting.name));
  const Probe probe = ProbeFor(model.family.resume_rule);
  ASSERT_TRUE(probe) << "cached, but nothing here probes its family";
  const Result<ProbeFindings> findings = probe(input, setting);
  const Exception* known = setting.quantised_rows ? Find(kNoQuantisedRows, GetParam()) : nullptr;
  if (known != nullptr) {
    EXPECT_EQ(findings ? ErrorCode::kInternal : findings.error().code, ErrorCode::kUnsupported);
    Report(model, setting.name, false, std::string(known->reason));
    return;
  }
  ASSERT_TRUE(findings) << findings.error().text;
  EXPECT_EQ(findings->row_difference, "");
  EXPECT_TRUE(findings->same_logits_at_end);
  EXPECT_TRUE(findings->same_logits_inside_segment);
  const bool blind_to_segments = IsIn(kBlindToSegments, GetParam());
  std::string note = std::to_string(findings->prompt_tokens) + " tokens";
  note += findings->rows_by_position ? "" : ", whole exports";
  CheckControl("another segment", findings->foreign_segment_moves, blind_to_segments, &note);
  CheckControl("damaged rows", findings->damaged_rows_move, false, &note);
  CheckControl("another checkpoint", findings->foreign_checkpoint_moves, false, &note);
  Report(model, setting.name, !HasFailure() && !blind_to_segments, note);
}

// A control that changes nothing proves nothing. `blind`: known, and so the model is not covered.
void ArchIdentityTest::CheckControl(const char* what, std::optional<float> moves, bool blind,
                                    std::string* note) {
  if (!moves) {
    return;
  }
  EXPECT_EQ(*moves == 0, blind) << what << " moves the logits by " << *moves;
  char text[80];
  std::snprintf(text, sizeof(text), "; %s moves %.1e", what, static_cast<double>(*moves));
  *note += text;
}

// What must not be cached is served all the same: nothing recorded, nothing shared.
void ArchIdentityTest::ExpectRefusedButServed(const GeneratedModels& models,
                                              const GeneratedModel& model) {
  SCOPED_TRACE(model.name);
  EXPECT_NE(model.family.reason, "");
  auto cache = OpenDiskCache(models.Sub(model.name + "-cache"));
  ASSERT_TRUE(cache) << cache.error().text;
  EngineOptions options;
  options.model_path = model.path;
  options.context_tokens = 256;
  options.threads = 1;
  options.parallel = 2;
  auto opened = OpenLlamaEngine(options, cache->get(), Env::Posix());
  if (!opened) {
    EXPECT_EQ(opened.error().code, ErrorCode::kUnsupported) << opened.error().text;
    Report(model, "-", false, "not served: " + opened.error().text);
    return;
  }
  Engine& engine = **opened;
  EXPECT_EQ(engine.Info().cache_reason, model.family.reason);
  for (int turn = 0; turn < 2; ++turn) {
    GenerateRequest request;
    request.prompt = std::vector<Token>(40, 7);
    request.max_tokens = 2;
    request.sampling.temperature = 0.0F;
    request.sampling.ignore_eos = true;
    auto generation = engine.Submit(std::move(request));
    ASSERT_TRUE(generation) << generation.error().text;
    std::optional<GenerateEvent> event;
    do {
      event = (*generation)->Next(std::chrono::seconds(60));
      ASSERT_TRUE(event);
    } while (event->kind != GenerateEvent::Kind::kDone);
    EXPECT_FALSE(event->error) << event->error->text;
    EXPECT_EQ(event->timings.computed_tokens, 40);
    EXPECT_EQ(event->timings.recorded_tokens, 0);
  }
  engine.Stop();
  EXPECT_EQ((*cache)->GetStatus().activity.bytes_written, 0u);
  EXPECT_EQ((*cache)->GetStatus().disk.unique_segments, 0u);
  Report(model, "-", false, model.family.reason);
}

// Proves P9.
TEST_P(ArchIdentityTest, IsRestoredExactlyOrRefused) {
  GeneratedModels models(GetParam());
  const auto written = models.Write();
  ASSERT_TRUE(written) << written.error().text;
  const Exception* not_generated = Find(kNotGenerated, GetParam());
  ASSERT_EQ(written->empty(), not_generated != nullptr) << "the table of exceptions is not true";
  if (not_generated != nullptr) {
    lines_.push_back({std::string(GetParam()), "-", "-", false,
                      "not generated: " + std::string(not_generated->reason)});
  }
  for (const GeneratedModel& model : *written) {
    model.family.cacheable_now ? ExpectExact(models, model) : ExpectRefusedButServed(models, model);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, ArchIdentityTest,
                         testing::ValuesIn(KnownArchitectures().begin(),
                                           KnownArchitectures().end()),
                         [](const testing::TestParamInfo<std::string_view>& parameter) {
                           std::string name(parameter.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace skippy
