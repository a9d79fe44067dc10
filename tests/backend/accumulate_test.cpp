// The kernels of Accumulate, CountedLoss and GradientScale.
#include <cmath>

#include "backend/kernel_check.h"

namespace protrain::test::accumulate_test {
namespace {

TEST(CountedLossKernel, IsZeroWhereNothingCounts) {
  const Array loss = Array::scalar(DType::f32, 2.5), nan = Array::scalar(DType::f32, std::nan(""));
  const Array none = Array::scalar(DType::f64, 0), some = Array::scalar(DType::f64, 7);
  EXPECT_EQ(run_on_cpu({"CountedLoss", {}, {loss, some}}, 2)[0].doubles()[0], 2.5);
  EXPECT_EQ(run_on_cpu({"CountedLoss", {}, {nan, none}}, 2)[0].doubles()[0], 0);
  for (const double weight : {7.0, -7.0, std::nan("")})
    EXPECT_TRUE(
        std::isnan(run_on_cpu({"CountedLoss", {}, {nan, Array::scalar(DType::f64, weight)}}, 2)[0].doubles()[0]))
        << weight;
}

TEST(GradientScaleKernel, LeavesSmallNormsAlone) {
  const Array norm = Array::scalar(DType::f64, 4);
  EXPECT_EQ(run_on_cpu({"GradientScale", {{"max_norm", 5.0}}, {norm}}, 1)[0].doubles()[0], 1);
}

// Runs Accumulate in place, once for each weight: each micro-batch is multiplied by its weight and added to the sum.
// Returns the sum.
std::vector<float> accumulated(int threads, const std::vector<double> &weights) {
  const auto device = backend::open("cpu", threads);
  constexpr std::int64_t kElements = 1001;
  const graph::Type vector{DType::f32, {kElements}}, scalar{DType::f64, {}};
  const graph::Node node{.op = "Accumulate", .name = "sum"};
  const auto kernel = device->compile({node, {vector, vector, scalar}, {vector}});
  std::vector<float> sum(kElements, NAN), x(kElements);
  for (std::size_t batch = 0; batch < weights.size(); ++batch) {
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(std::sin(0.1 * static_cast<double>(i + batch)));
    double weight = weights[batch];
    std::vector<void *> inputs = {sum.data(), x.data(), &weight}, outputs = {sum.data()};
    const backend::StepScalars scalars{.micro_batch = batch};
    struct Job {
      backend::Device &device;
      backend::Kernel &kernel;
      backend::Launch launch;
    } job{*device, *kernel, {inputs, outputs, nullptr, &scalars}};
    device->run_step(
        [](void *at) {
          Job &j = *static_cast<Job *>(at);
          j.device.launch(Queue::compute, j.kernel, j.launch);
        },
        &job);
  }
  return sum;
}

TEST(AccumulateKernel, StartsAnewAndAddsWithWeights) {
  const std::vector<float> sum = accumulated(2, {3, 0.5, 2});
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const auto x = [&](std::size_t batch) { return std::sin(0.1 * static_cast<double>(i + batch)); };
    EXPECT_NEAR(sum[i], 3 * x(0) + 0.5 * x(1) + 2 * x(2), 1e-6);
  }
}

TEST(AccumulateKernel, LeavesOutWhatWeighsNothing) {
  EXPECT_EQ(accumulated(2, {0, 0}), std::vector<float>(1001, 0.0F));
  for (float value : accumulated(2, {0, 1, 0})) EXPECT_TRUE(std::isfinite(value));
}

TEST(AccumulateKernel, BitsDoNotDependOnTheTeam) {
  for (int threads : {2, 3}) EXPECT_EQ(accumulated(threads, {3, 0.7, 2}), accumulated(1, {3, 0.7, 2}));
}

}  // namespace
}  // namespace protrain::test::accumulate_test
