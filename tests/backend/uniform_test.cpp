// Uniform has no reference values. The tests check properties that its numbers must have.
#include <cmath>

#include "backend/kernel_check.h"

namespace protrain::test::uniform_test {
namespace {

struct Draw {
  Shape shape = {6, 1031};
  std::int64_t key = 7, samples = 6;
  backend::StepScalars scalars = {.step = 3, .seed = 11};
  int threads = 1;
};

Array drawn(const Draw &draw) {
  CpuBench bench({"Uniform", {{"key", draw.key}, {"samples", draw.samples}, {"shape", draw.shape}}, {}}, draw.threads);
  bench.run(draw.scalars);
  bench.expect_guards();
  return bench.results()[0];
}

TEST(UniformKernel, FillsTheIntervalEvenly) {
  Draw draw;
  draw.shape = {4, 250'000};
  draw.samples = 4;
  const std::vector<double> values = drawn(draw).doubles();
  double sum = 0, squares = 0, neighbours = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_GT(values[i], 0);
    ASSERT_LT(values[i], 1);
    sum += values[i];
    squares += values[i] * values[i];
    if (i > 0) neighbours += (values[i] - 0.5) * (values[i - 1] - 0.5);
  }
  const double count = 1e6, root = std::sqrt(count);
  EXPECT_NEAR(sum / count, 0.5, 5 * std::sqrt(1.0 / 12) / root);
  EXPECT_NEAR(squares / count, 1.0 / 3, 5 * std::sqrt(4.0 / 45) / root);
  EXPECT_NEAR(neighbours / count, 0, 5.0 / 12 / root);
}

TEST(UniformKernel, TeamsDoNotChangeABit) {
  for (const auto &[shape, samples] :
       {std::pair<Shape, std::int64_t>{{6, 1031}, 2}, {{6, 1031}, 0}, {{30'000, 1}, 30'000}, {{}, 0}, {{0, 4}, 0}}) {
    Draw draw{.shape = shape, .samples = samples};
    const Array alone = drawn(draw);
    for (draw.threads = 2; draw.threads <= 3; ++draw.threads)
      EXPECT_TRUE(drawn(draw).same_as(alone)) << to_text(shape) << " on " << draw.threads << " threads";
  }
}

TEST(UniformKernel, MicroBatchesDrawWhatTheWholeBatchDraws) {
  const std::vector<double> all = drawn({}).doubles();
  Draw half{.shape = {3, 1031}, .samples = 3};
  std::vector<double> joined = drawn(half).doubles();
  half.scalars.first_sample = 3;
  std::ranges::copy(drawn(half).doubles(), std::back_inserter(joined));
  EXPECT_EQ(joined, all);
}

TEST(UniformKernel, OtherSeedsStepsAndKeysGiveOtherNumbers) {
  const Array one = drawn({});
  Draw seed, step, key;
  seed.scalars.seed += 1;
  step.scalars.step += 1;
  key.key = -7;
  for (const Draw &other : {seed, step, key}) EXPECT_FALSE(drawn(other).same_as(one));
}

}  // namespace
}  // namespace protrain::test::uniform_test
