// Goal: what an idle cell costs is measured in every shape that can be served, and rent moves a
// sequence when it has paid as much as its restore takes, not before. Method: the library's own
// operation for the first; numbers chosen by hand for the second.
#include "engine/idle_cost.h"

#include <ggml.h>
#include <gtest/gtest.h>

namespace skippy {
namespace {

AttentionShape SmallShape() {
  AttentionShape shape;
  shape.layers = 30;
  shape.heads = 9;
  shape.kv_heads = 3;
  shape.key_width = shape.value_width = 64;
  shape.k_type = shape.v_type = GGML_TYPE_F16;
  shape.flash = true;
  shape.threads = 2;
  return shape;
}

TEST(IdleCostTest, IsMeasuredInEveryShape) {
  for (const bool flash : {true, false}) {
    for (const int type : {GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_F32}) {
      AttentionShape shape = SmallShape();
      shape.flash = flash;
      shape.k_type = type;
      shape.v_type = flash ? type : GGML_TYPE_F16;
      const Result<IdleCellCost> cost = MeasureIdleCellCost(shape);
      ASSERT_TRUE(cost) << cost.error().text;
      EXPECT_GT(cost->decode_ms, 0) << "flash " << flash << " type " << type;
      EXPECT_GT(cost->prefill_ms, 0) << "flash " << flash << " type " << type;
      EXPECT_LT(cost->decode_ms, 1) << "a cell costs microseconds";
    }
  }
}

TEST(IdleCostTest, OddShapesAreServedOrRefused) {
  AttentionShape wide = SmallShape();
  wide.key_width = 192;
  wide.value_width = 128;
  wide.kv_heads = 1;
  EXPECT_TRUE(MeasureIdleCellCost(wide));
  AttentionShape broken = SmallShape();
  broken.key_width = 40;
  broken.k_type = GGML_TYPE_Q8_0;
  const Result<IdleCellCost> refused = MeasureIdleCellCost(broken);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
}

TEST(IdleCostTest, ARowIsKAndVOfAllLayers) {
  EXPECT_EQ(SmallShape().row_bytes(), 30U * 2 * 3 * 64 * 2);
}

TEST(IdleRentTest, IsDueAfterAFewTokensAndCountsEachOnce) {
  IdleRent rent({.decode_ms = 1, .prefill_ms = 2}, 1024);
  rent.AddDecode(10);
  EXPECT_EQ(rent.TakeDue(), 0);
  rent.AddPrefill(10);
  EXPECT_DOUBLE_EQ(rent.TakeDue(), 30);
  EXPECT_EQ(rent.TakeDue(), 0);
}

TEST(IdleRentTest, ExpectsRestoresToTakeWhatTheyTook) {
  IdleRent rent({.decode_ms = 1, .prefill_ms = 1}, 1 << 20);
  const double before = rent.RestoreMs(100);
  for (int i = 0; i < 40; ++i) rent.AddRestore(10 << 20, 100);
  EXPECT_GT(rent.RestoreMs(100), before);
  EXPECT_NEAR(rent.RestoreMs(100), 1000, 10);
  EXPECT_GT(rent.RestoreMs(0), 0) << "a restore is never free";
}

TEST(IdleRentTest, LearnsHowLongRepliesAre) {
  IdleRent rent({.decode_ms = 1, .prefill_ms = 1}, 1024);
  EXPECT_EQ(rent.LikelyReply(5), 5) << "no more than asked for";
  for (int i = 0; i < 40; ++i) rent.AddReply(400);
  EXPECT_NEAR(rent.LikelyReply(-1), 400, 1);
}

TEST(IdleRentTest, IsUnknownWithoutAMeasurement) { EXPECT_FALSE(IdleRent().is_known()); }

}  // namespace
}  // namespace skippy
