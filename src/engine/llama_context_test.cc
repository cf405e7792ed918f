// Goal: rows that went out through an export and came back through imports are the same rows, and
// give the same logits where cells and batch shapes are the same. Negative controls: another
// prompt's rows and one damaged row must change the logits.
#include "engine/llama_context.h"

#include <cstring>
#include <optional>

#include "engine/engine_test_support.h"

namespace skippy {
namespace {

struct Segment {
  TokenCount first = 0;
  TokenCount count = 0;
  std::vector<std::byte> bytes;
};

class LlamaContextTest : public ::testing::Test {
 protected:
  void Prefill(LlamaContext& context, LaneId lane, std::span<const Token> tokens) {
    const auto chunk = static_cast<std::size_t>(context.ubatch_tokens());
    for (std::size_t at = 0; at < tokens.size(); at += chunk) {
      std::vector<BatchToken> batch;
      for (const Token token : tokens.subspan(at, std::min(chunk, tokens.size() - at))) {
        batch.push_back({lane, token, false});
      }
      batch.back().want_logits = true;
      ASSERT_EQ(context.Decode(batch), DecodeOutcome::kDone);
    }
  }

  std::vector<float> LogitsOf(LlamaContext& context, LaneId lane, Token token) {
    const BatchToken batch[] = {{lane, token, true}};
    EXPECT_EQ(context.Decode(batch), DecodeOutcome::kDone);
    const float* logits = llama_get_logits_ith(context.raw(), 0);
    const int count = llama_vocab_n_tokens(llama_model_get_vocab(context.model()));
    return {logits, logits + count};
  }

  Segment Export(LlamaContext& context, LaneId lane, TokenCount first, TokenCount end) {
    LlamaContext::RowExport rows(&context, lane, first, end);
    Segment segment{first, end - first, std::vector<std::byte>(rows.byte_count())};
    EXPECT_TRUE(rows.Write(segment.bytes));
    return segment;
  }

  std::vector<Segment> ExportAll(LlamaContext& context, LaneId lane, TokenCount end) {
    std::vector<Segment> out;
    for (TokenCount first = 0; first < end; first += kMaxSegmentTokens) {
      out.push_back(Export(context, lane, first, std::min(end, first + kMaxSegmentTokens)));
    }
    return out;
  }

  void Import(LlamaContext& context, LaneId lane, const std::vector<Segment>& segments,
              TokenCount end) {
    for (const Segment& segment : segments) {
      const TokenCount cut = std::min(end, segment.first + segment.count);
      const Status imported =
          context.ImportRows(lane, segment.bytes, {segment.first, segment.count, cut});
      ASSERT_TRUE(imported) << imported.error().text;
    }
  }

  std::map<TokenCount, RowHash> Hashes(const Segment& segment) {
    auto hashes = HashKvRows(segment.bytes);
    EXPECT_TRUE(hashes);
    return hashes ? *hashes : std::map<TokenCount, RowHash>{};
  }

  // Every row of `some` is the same in `all`.
  void ExpectSameRows(const Segment& some, const Segment& all) {
    const auto expected = Hashes(all);
    const auto hashes = Hashes(some);
    EXPECT_EQ(hashes.size(), static_cast<std::size_t>(some.count));
    for (const auto& [position, hash] : hashes) {
      EXPECT_EQ(hash, expected.at(position)) << "row " << position;
    }
  }

  void ExpectRoundTrip(const TestContextOptions& options);

  const std::vector<Token> tokens_ = SomeTokens(700, 1);
  const TokenCount cut_ = 699;
  const LaneId lane_ = NthLane(0);
};

void LlamaContextTest::ExpectRoundTrip(const TestContextOptions& options) {
  const auto first = MakeLaneContext(options);
  Prefill(*first, lane_, tokens_);
  const std::vector<Segment> segments = ExportAll(*first, lane_, 700);
  ASSERT_TRUE(first->Truncate(lane_, cut_));
  const std::vector<float> expected = LogitsOf(*first, lane_, tokens_.back());

  const auto second = MakeLaneContext(options);
  Import(*second, lane_, segments, cut_);
  EXPECT_EQ(second->lanes().Length(lane_), cut_);
  EXPECT_EQ(second->lanes().cells_used(), static_cast<std::size_t>(cut_));
  EXPECT_EQ(LogitsOf(*second, lane_, tokens_.back()), expected);
  for (const Segment& segment : segments) {
    // The last row was computed by itself in both contexts, not imported.
    const TokenCount end = std::min(cut_, segment.first + segment.count);
    ExpectSameRows(Export(*second, lane_, segment.first, end), segment);
  }
}

TEST_F(LlamaContextTest, ImportedRowsGiveTheSameLogitsAndRows) { ExpectRoundTrip({}); }

TEST_F(LlamaContextTest, TransposedValuesSurviveToo) {
  TestContextOptions options;
  options.flash_attention = false;
  ExpectRoundTrip(options);
}

TEST_F(LlamaContextTest, QuantisedRowsSurviveToo) {
  TestContextOptions options;
  options.kv_type = GGML_TYPE_Q8_0;
  ExpectRoundTrip(options);
}

TEST_F(LlamaContextTest, QuantisedRowsGiveTheSameLogitsBesideForeignState) {
  TestContextOptions options;
  options.kv_type = GGML_TYPE_Q8_0;
  const auto first = MakeLaneContext(options);
  Prefill(*first, lane_, tokens_);
  const std::vector<Segment> segments = ExportAll(*first, lane_, 700);
  ASSERT_TRUE(first->Truncate(lane_, cut_));
  const std::vector<float> expected = LogitsOf(*first, lane_, tokens_.back());

  const auto second = MakeLaneContext(options);
  Prefill(*second, NthLane(1), SomeTokens(333, 9));
  Import(*second, lane_, segments, cut_);
  EXPECT_EQ(LogitsOf(*second, lane_, tokens_.back()), expected);
}

TEST_F(LlamaContextTest, AnotherPromptsRowsAndADamagedRowChangeTheLogits) {
  const auto first = MakeLaneContext({});
  Prefill(*first, lane_, tokens_);
  Prefill(*first, NthLane(1), SomeTokens(700, 2));
  std::vector<Segment> segments = ExportAll(*first, lane_, 700);
  const std::vector<Segment> foreign = ExportAll(*first, NthLane(1), 700);

  const auto logits = [&](const std::vector<Segment>& used) {
    const auto context = MakeLaneContext({});
    Import(*context, lane_, used, cut_);
    return LogitsOf(*context, lane_, tokens_.back());
  };
  const std::vector<float> expected = logits(segments);
  EXPECT_NE(logits({segments[0], foreign[1], segments[2]}), expected);
  const std::size_t in_last_layer = segments[2].bytes.size() - 1000;
  std::memset(segments[2].bytes.data() + in_last_layer, 0x3c, 512);
  EXPECT_NE(logits(segments), expected);
}

TEST_F(LlamaContextTest, FollowerOfASharedPrefixComputesWhatAPrivateCopyDoes) {
  const auto context = MakeLaneContext({});
  Prefill(*context, lane_, tokens_);
  context->CopyPrefix(lane_, NthLane(1), 400);
  EXPECT_EQ(context->lanes().cells_used(), 700u);
  const Segment shared = Export(*context, NthLane(1), 100, 300);
  ExpectSameRows(shared, Export(*context, lane_, 100, 300));
  context->Clear(lane_);
  ExpectSameRows(Export(*context, NthLane(1), 100, 300), shared);
  EXPECT_EQ(context->lanes().cells_used(), 400u);
}

TEST_F(LlamaContextTest, ImportContinuesInsideASegment) {
  const auto context = MakeLaneContext({});
  Prefill(*context, lane_, tokens_);
  const std::vector<Segment> segments = ExportAll(*context, lane_, 700);
  context->CopyPrefix(lane_, NthLane(1), 300);
  Import(*context, NthLane(1), {segments[1], segments[2]}, 600);
  EXPECT_EQ(context->lanes().Length(NthLane(1)), 600);
  ExpectSameRows(Export(*context, NthLane(1), 256, 512), segments[1]);
}

TEST_F(LlamaContextTest, RefusedBytesLeaveTheLaneAsItWas) {
  const auto context = MakeLaneContext({});
  Prefill(*context, lane_, tokens_);
  Segment segment = Export(*context, lane_, 0, 256);
  segment.bytes.resize(segment.bytes.size() / 2);
  const Status imported = context->ImportRows(NthLane(1), segment.bytes, {0, 256, 256});
  ASSERT_FALSE(imported);
  EXPECT_EQ(imported.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(context->lanes().Length(NthLane(1)), 0);
  EXPECT_EQ(context->lanes().cells_used(), 700u);
}

TEST_F(LlamaContextTest, WantOfCellsIsTold) {
  TestContextOptions options;
  options.context_tokens = 768;
  const auto context = MakeLaneContext(options);
  Prefill(*context, lane_, tokens_);
  const Segment segment = Export(*context, lane_, 0, 256);
  const Status imported = context->ImportRows(NthLane(1), segment.bytes, {0, 256, 256});
  ASSERT_FALSE(imported);
  EXPECT_EQ(imported.error().code, ErrorCode::kResourceExhausted);
  std::vector<BatchToken> batch(100, {NthLane(1), 500, false});
  EXPECT_EQ(context->Decode(batch), DecodeOutcome::kNoCells);
  EXPECT_EQ(context->lanes().Length(NthLane(1)), 0);
}

TEST_F(LlamaContextTest, WarmUpLeavesNothing) {
  const auto context = MakeLaneContext({});
  ASSERT_TRUE(context->WarmUp());
  EXPECT_EQ(context->lanes().cells_used(), 0u);
  Prefill(*context, lane_, tokens_);
  ASSERT_TRUE(context->Truncate(lane_, cut_));
  const std::vector<float> expected = LogitsOf(*context, lane_, tokens_.back());
  const auto cold = MakeLaneContext({});
  Prefill(*cold, lane_, tokens_);
  ASSERT_TRUE(cold->Truncate(lane_, cut_));
  EXPECT_EQ(LogitsOf(*cold, lane_, tokens_.back()), expected);
}

using LlamaContextDeathTest = LlamaContextTest;

TEST_F(LlamaContextDeathTest, MisuseEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto context = MakeLaneContext({});
  Prefill(*context, lane_, std::span(tokens_).first(64));
  EXPECT_DEATH(context->CopyPrefix(lane_, lane_, 10), "empty");
  const Segment segment = Export(*context, lane_, 0, 64);
  EXPECT_DEATH((void)context->ImportRows(lane_, segment.bytes, {0, 64, 64}), "CHECK|have");
  EXPECT_DEATH((void)context->ImportRows(NthLane(1), segment.bytes, {32, 32, 64}), "CHECK|have");
  const std::vector<BatchToken> too_many(513, {NthLane(2), 500, false});
  EXPECT_DEATH((void)context->Decode(too_many), "batch");
}

}  // namespace
}  // namespace skippy
