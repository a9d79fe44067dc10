// Dropout has no reference values. The tests check properties that its masks must have.
#include <cstring>
#include <numeric>
#include <set>

#include "backend/kernel_check.h"

namespace protrain::test::dropout_test {
namespace {

constexpr float kRatio = 0.3f;

struct Draw {
  Shape shape = {6, 1031};
  std::int64_t key = 7, samples = 6;
  float ratio = kRatio;
  backend::StepScalars scalars = {.step = 3, .seed = 11};
  int threads = 1;
};

std::vector<bool> mask_of(const Array &y) {
  std::vector<bool> mask;
  for (double value : y.doubles()) mask.push_back(value != 0);
  return mask;
}

// Returns Dropout's outputs {y, mask} for x.
std::vector<Array> dropped(const Draw &draw, const Array &x, std::vector<bool> outputs = {true, true}) {
  const OneNode one{"Dropout",
                    {{"key", draw.key}, {"ratio", static_cast<double>(draw.ratio)}, {"samples", draw.samples}},
                    {x},
                    std::move(outputs)};
  CpuBench bench(one, draw.threads);
  bench.run(draw.scalars);
  bench.expect_guards();
  return bench.results();
}

std::vector<bool> mask_of(const Draw &draw) {
  return mask_of(dropped(draw, Array::filled({DType::f32, draw.shape}, 1))[0]);
}

double share_of(const std::vector<bool> &mask) {
  return std::accumulate(mask.begin(), mask.end(), 0.0) / static_cast<double>(mask.size());
}

TEST(DropoutKernel, KeepsItsShareAndScalesIt) {
  Draw draw;
  draw.shape = {4, 250'000};
  draw.samples = 4;
  const std::vector<double> y = dropped(draw, Array::filled({DType::f32, draw.shape}, 3))[0].doubles();
  const double kept = 3 * static_cast<double>(static_cast<float>(1 / (1 - static_cast<double>(kRatio))));
  double sum = 0, neighbours = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    ASSERT_TRUE(y[i] == 0 || std::abs(y[i] - kept) < 1e-6) << y[i];
    sum += y[i];
    if (i > 0) neighbours += (y[i] - 3) * (y[i - 1] - 3);
  }
  const double count = 1e6, variance = 9 * kRatio / (1 - kRatio);  // the variance of one element, whose mean is 3
  EXPECT_NEAR(sum / count, 3, 5 * std::sqrt(variance / count));
  EXPECT_NEAR(neighbours / count, 0, 5 * variance / std::sqrt(count));
}

TEST(DropoutKernel, TheMaskSaysWhatIsKept) {
  const Draw draw;
  const Array x = random_floats(draw.shape, 1, 1, 2);
  const std::vector<Array> both = dropped(draw, x);
  EXPECT_EQ(both[1].dtype(), DType::boolean);
  const std::vector<std::int64_t> mask = both[1].integers();
  EXPECT_EQ(mask_of(both[0]), std::vector<bool>(mask.begin(), mask.end()));
  EXPECT_TRUE(dropped(draw, x, {true})[0].same_as(both[0]));
  EXPECT_TRUE(dropped(draw, x, {true, false})[0].same_as(both[0]));
  EXPECT_TRUE(dropped(draw, x, {false, true})[1].same_as(both[1]));
}

TEST(DropoutKernel, WhatIsDroppedIsZeroWhateverItWas) {
  const Draw draw;
  const std::vector<bool> mask = mask_of(draw);
  const std::vector<double> y =
      dropped(draw, Array::filled({DType::f32, draw.shape}, std::numeric_limits<double>::quiet_NaN()))[0].doubles();
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(std::isnan(y[i]), mask[i]);
}

TEST(DropoutKernel, NeitherTeamsNorRepetitionChangeABit) {
  for (const auto &[shape, samples] : {std::pair<Shape, std::int64_t>{{6, 1031}, 6},
                                       {{6, 1031}, 2},
                                       {{6, 1031}, 0},
                                       {{30'000, 1}, 30'000},
                                       {{2, 3, 5}, 2},
                                       {{}, 0},
                                       {{0, 4}, 0}}) {
    Draw draw;
    draw.shape = shape;
    draw.samples = samples;
    const Array x = random_floats(shape, 2);
    const std::vector<Array> alone = dropped(draw, x);
    for (draw.threads = 1; draw.threads <= 3; ++draw.threads) {
      const std::vector<Array> again = dropped(draw, x);
      EXPECT_TRUE(again[0].same_as(alone[0])) << to_text(shape) << " on " << draw.threads << " threads";
      EXPECT_TRUE(again[1].same_as(alone[1])) << to_text(shape) << " on " << draw.threads << " threads";
    }
  }
}

TEST(DropoutKernel, OtherSeedsStepsKeysAndSamplesGiveOtherMasks) {
  Draw draw;
  draw.shape = {4, 4096};
  draw.samples = 4;
  std::vector<Draw> draws(5, draw);
  draws[1].scalars.seed += std::uint64_t{1} << 40;
  draws[2].scalars.step += 1;
  draws[3].key = -7;
  draws[4].scalars.first_sample = 4;
  std::vector<std::vector<bool>> rows;  // every sample of every draw
  for (const Draw &one : draws) {
    const std::vector<bool> mask = mask_of(one);
    for (auto at = mask.begin(); at != mask.end(); at += 4096) rows.emplace_back(at, at + 4096);
  }
  const double agree = (1 - kRatio) * (1 - kRatio) + kRatio * kRatio;
  for (std::size_t a = 0; a < rows.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) {
      std::vector<bool> same;
      for (std::size_t i = 0; i < rows[a].size(); ++i) same.push_back(rows[a][i] == rows[b][i]);
      EXPECT_NEAR(share_of(same), agree, 0.05) << a << " and " << b;
    }
}

TEST(DropoutKernel, MicroBatchesDrawWhatTheWholeBatchDraws) {
  for (std::int64_t rows : {1, 5}) {  // the number of rows along axis 0 that one sample has
    Draw whole;
    whole.shape = {6 * rows, 1031};
    const std::vector<bool> all = mask_of(whole);
    Draw half = whole;
    half.shape[0] /= 2;
    half.samples = 3;
    std::vector<bool> joined = mask_of(half);
    half.scalars.first_sample = 3;
    std::ranges::copy(mask_of(half), std::back_inserter(joined));
    EXPECT_EQ(joined, all) << rows << " rows";
  }
}

TEST(DropoutKernel, WhatBelongsToNoSampleIsTheSameInEveryMicroBatch) {
  Draw draw;
  draw.samples = 0;
  const std::vector<bool> first = mask_of(draw);
  draw.scalars.first_sample = 8;
  EXPECT_EQ(mask_of(draw), first);
}

TEST(DropoutKernel, RatioZeroIsIdentity) {
  Draw draw;
  draw.ratio = 0;
  const Array x = random_floats(draw.shape, 3);
  const std::vector<Array> both = dropped(draw, x);
  EXPECT_TRUE(both[0].same_as(x));
  EXPECT_TRUE(both[1].same_as(Array::filled({DType::boolean, draw.shape}, 1).densified()));
}

TEST(DropoutKernel, OtherTypesAreRefused) {
  EXPECT_THROW(CpuBench({"Dropout", {}, {Array::filled({DType::f64, {3}}, 1)}}, 1), Error);
}

}  // namespace
}  // namespace protrain::test::dropout_test
