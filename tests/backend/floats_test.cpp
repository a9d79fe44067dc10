// Kernels in bfloat16 and float16 must give float32's results for the same numbers, rounded once.
#include <bit>
#include <limits>

#include "activations.h"
#include "arith/bf16.h"
#include "backend/kernel_check.h"
#include "kernel_nodes.h"

namespace protrain::test::floats_test {
namespace {

using Axes = std::vector<std::int64_t>;

Array rounded(const Array &array, DType dtype) { return Array::from_doubles({dtype, array.shape()}, array.doubles()); }
Array widened(const Array &array) { return Array::from_doubles({DType::f32, array.shape()}, array.doubles()); }

void expect_float32_rounded_once(OneNode narrow, const std::vector<std::size_t> &wide, DType dtype) {
  SCOPED_TRACE(fmt::format("{} {} in {}", narrow.op, narrow.attributes.print(), name_of(dtype)));
  OneNode exact = narrow;
  for (std::size_t i = 0; i < narrow.inputs.size(); ++i) {
    if (narrow.inputs[i].dtype() != DType::f32 || std::ranges::find(wide, i) != wide.end()) continue;
    narrow.inputs[i] = rounded(narrow.inputs[i], dtype);
    exact.inputs[i] = widened(narrow.inputs[i]);
  }
  for (int threads : {1, 3}) {
    const std::vector<Array> found = run_on_cpu(narrow, threads), expected = run_on_cpu(exact, threads);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const bool was_rounded = found[i].dtype() == dtype;
      EXPECT_TRUE(found[i].same_as(was_rounded ? rounded(expected[i], dtype) : expected[i])) << "output " << i;
    }
  }
}

// Expects that the node on rounded operands gives the results of the float32 node on the same numbers, rounded once.
// `wide` lists the operands that stay float32, by index.
void expect_float32_rounded_once(const OneNode &node, const std::vector<std::size_t> &wide = {}) {
  for (DType dtype : {DType::bf16, DType::f16}) expect_float32_rounded_once(node, wide, dtype);
}

const Array kX = random_floats({37, 1031}, 1, -3, 3), kY = random_floats({37, 1031}, 2, -3, 3),
            kZ = random_floats({37, 1031}, 18, -3, 3);
const Array kScale = random_floats({1031}, 3), kBias = random_floats({1031}, 4);
const Array kMean = random_floats({37, 1}, 5), kInverse = random_floats({37, 1}, 6, 0.5, 1.5);

TEST(NarrowKernels, RoundElementsOnce) {
  for (const char *op : {"Neg", "Exp", "Sigmoid", "Gelu", "Silu", "Tanh", "Softplus", "Sin"})
    expect_float32_rounded_once({op, {}, {kX}});
  for (const char *op : {"ReluGrad", "GeluGrad", "SiluGrad", "TanhGrad"})
    expect_float32_rounded_once({op, {}, {kX, kY}});
  for (const Attributes &activation : kActivations) {
    expect_float32_rounded_once({"Gated", activation, {kX, kY}});
    expect_float32_rounded_once({"GatedGrad", activation, {kY, kX, kZ}, {true, true}});
  }
  for (const char *op : {"Add", "Sub", "Mul", "Div", "Max", "Less", "Equal"}) {
    expect_float32_rounded_once({op, {}, {kX, kY}});
    expect_float32_rounded_once({op, {}, {kX, kBias}});
    expect_float32_rounded_once({op, {}, {kX, random_floats({37, 1}, 7)}});
    expect_float32_rounded_once({op, {}, {random_floats({}, 8), kX}});
  }
  expect_float32_rounded_once({"Dropout", {{"ratio", 0.3}, {"samples", std::int64_t{37}}}, {kX}, {true, true}});
  for (std::int64_t interleaved : {0, 1})
    expect_float32_rounded_once(rotary({{2, 5, 3, 80}, 64, false}, interleaved, 1));
}

TEST(NarrowKernels, TakeAWideExponent) {
  for (double exponent : {2.0, 3.0, 0.7})
    expect_float32_rounded_once({"Pow", {}, {random_floats({5, 301}, 9, 0, 3), floats({}, {exponent})}}, {1});
}

TEST(NarrowKernels, KeepSumsInFloat32) {
  for (const char *op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"})
    for (const Axes &axes : {Axes{0}, Axes{1}, Axes{0, 1}}) expect_float32_rounded_once({op, {{"axes", axes}}, {kX}});
  expect_float32_rounded_once({"ReduceSum", {{"axes", Axes{0}}}, {random_floats({9001, 3}, 10, 0, 1)}});
  expect_float32_rounded_once({"CumSum", {{"axis", std::int64_t{1}}}, {kX}});
  expect_float32_rounded_once({"SquaredNorm", {}, {kX}});
  const Array few = random_integers({37}, 11, 0, 3);  // each index occurs many times
  expect_float32_rounded_once({"GatherGrad", {{"shape", Shape{4, 1031}}}, {kX, few}});
  expect_float32_rounded_once({"GatherElementsGrad",
                               {{"axis", std::int64_t{1}}, {"shape", Shape{37, 7}}},
                               {kX, random_integers({37, 1031}, 12, 0, 7)}});
}

TEST(NarrowKernels, KeepStatisticsAndLossesInFloat32) {
  expect_float32_rounded_once({"LayerNormalization", {}, {kX, kScale, kBias}, {true, true, true}});
  expect_float32_rounded_once({"RMSNormalization", {}, {kX, kScale}, {true, true}});
  expect_float32_rounded_once({"LayerNormalizationGrad", {}, {kY, kX, kScale, kMean, kInverse}, {true, true, true}},
                              {3, 4});
  expect_float32_rounded_once({"LayerNormalizationGrad", {}, {kY, kX, kScale, kMean, kInverse}, {false, true, true}},
                              {3, 4});
  expect_float32_rounded_once({"RMSNormalizationGrad", {}, {kY, kX, kScale, kInverse}, {true, true}}, {3});
  for (std::int64_t axis : {0, 1}) {
    for (const char *op : {"Softmax", "LogSoftmax"}) expect_float32_rounded_once({op, {{"axis", axis}}, {kX}});
    for (const char *op : {"SoftmaxGrad", "LogSoftmaxGrad"})
      expect_float32_rounded_once({op, {{"axis", axis}}, {kX, kY}});
  }
  const Array labels = random_integers({37}, 13, 0, 1031), lse = random_floats({37}, 14, 6, 8);
  expect_float32_rounded_once({"CrossEntropy", {}, {kX, labels}, {true, true}});
  expect_float32_rounded_once({"CrossEntropyGrad", {}, {floats({}, {0.7}), kX, labels, lse}}, {0, 3});
}

TEST(NarrowKernels, OperandsOfTwoTypesAreRefused) {
  const Array wide = random_floats({3, 4}, 15), brain = rounded(wide, DType::bf16), half = rounded(wide, DType::f16);
  for (const char *op : {"Add", "TanhGrad", "SoftmaxGrad"})
    for (const auto &[left, right] : {std::pair{brain, wide}, {wide, brain}, {half, wide}, {half, brain}})
      EXPECT_THROW(CpuBench({op, {}, {left, right}}, 1), Error) << op;
}

TEST(NarrowAccumulateKernel, AddsToAFloat32Sum) {
  const Array sum = random_floats({1001}, 16), x = random_floats({1001}, 17), weight = Array::scalar(DType::f64, 0.3);
  expect_float32_rounded_once({"Accumulate", {}, {sum, x, weight}}, {0});
}

TEST(BFloat16, TiesGoToEvenAndNotANumberStaysOne) {
  const auto bits = [](std::uint32_t of) { return arith::to_bf16(std::bit_cast<float>(of)).bits; };
  EXPECT_EQ(bits(0x3F808000), 0x3F80);  // half-way: down to even
  EXPECT_EQ(bits(0x3F818000), 0x3F82);  // half-way: up to even
  EXPECT_EQ(bits(0x3F808001), 0x3F81);
  EXPECT_EQ(bits(0x7F7FFFFF), 0x7F80);  // above the largest number
  EXPECT_EQ(bits(0x80000001), 0x8000);  // below half of the smallest
  EXPECT_EQ(bits(0x00008001), 0x0001);  // the smallest
  EXPECT_EQ(bits(0x7FFFFFFF), 0x7FFF);
  EXPECT_EQ(bits(0xFF800001), 0xFFC0);  // a signalling NaN becomes quiet
}

}  // namespace
}  // namespace protrain::test::floats_test
