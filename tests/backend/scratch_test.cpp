// Kernels take scratch only for those members of the team that get work, and for the outputs that a node has.
#include "backend/kernel_check.h"
#include "kernel_nodes.h"

namespace protrain::test::scratch_test {
namespace {

constexpr int kItems = 8, kManyThreads = 64;

Array in_bf16(const Array &array) { return Array::from_doubles({DType::bf16, array.shape()}, array.doubles()); }

// Normalizations and their gradients, which take 32 rows as one item.
std::vector<OneNode> normalizations() {
  const Array x = in_bf16(random_floats({kItems, 37}, 1)), scale = in_bf16(random_floats({37}, 2));
  const Array many = in_bf16(random_floats({32 * kItems, 37}, 3)), dy = in_bf16(random_floats({32 * kItems, 37}, 4));
  const Array mean = random_floats({32 * kItems, 1}, 5), inverse = random_floats({32 * kItems, 1}, 6, 0.5, 1.5);
  return {{"LayerNormalization", {}, {x, scale, scale}, {true, true, true}},
          {"RMSNormalization", {}, {x, scale}, {true, true}},
          {"LayerNormalizationGrad", {}, {dy, many, scale, mean, inverse}, {true, true, true}},
          {"RMSNormalizationGrad", {}, {dy, many, scale, inverse}, {true, true}}};
}

// Returns nodes with eight items of work each.
std::vector<OneNode> nodes() {
  const Attributes rows = {{"axis", std::int64_t{1}}}, columns = {{"axis", std::int64_t{0}}};
  const Array lines = in_bf16(random_floats({kItems, 37}, 7)), across = random_floats({37, kItems}, 8);
  const OneNode attention = forward({2, 16, 16, 4, 4, 8, 8}, form(1), 9);
  const Attributes windows = {
      {"kernel_shape", Shape{2, 2}}, {"strides", Shape{2, 2}}, {"dilations", Shape{1, 1}}, {"pads", Shape{0, 0, 0, 0}}};
  const Array planes = in_bf16(random_floats({2, 4, 2, 6}, 12)), dy = in_bf16(random_floats({2, 4, 1, 3}, 13));
  std::vector<OneNode> all = {
      {"Softmax", rows, {lines}},
      {"LogSoftmax", columns, {across}},
      {"SoftmaxGrad", columns, {across, across}},
      {"LogSoftmaxGrad", rows, {lines, lines}},
      {"TopK", {{"axis", std::int64_t{1}}, {"k", std::int64_t{5}}}, {random_floats({kItems, 37}, 10)}, {true, true}},
      {"GatherElementsGrad",
       {{"axis", std::int64_t{1}}, {"shape", Shape{kItems, 7}}},
       {lines, random_integers({kItems, 37}, 11, 0, 7)}},
      attention,
      backward(attention, 14),
      {"MaxPool", windows, {planes}, {true, true}},
      {"MaxPoolGrad", windows, {dy, planes}}};
  for (OneNode &one : normalizations()) all.push_back(std::move(one));
  return all;
}

std::uint64_t scratch_of(const OneNode &one, int threads) {
  const graph::Node node = node_of(one);
  backend::KernelRequest request{node, {}, infer(one)};
  for (const Array &input : one.inputs) request.inputs.push_back(input.type());
  return cpu(threads).device->compile(request)->scratch_bytes;
}

TEST(MembersWithoutWork, TakeNoScratch) {
  for (const OneNode &one : nodes()) {
    EXPECT_GT(scratch_of(one, kItems), 0U) << one.op;
    EXPECT_LT(scratch_of(one, 1), scratch_of(one, kItems)) << one.op;
    EXPECT_EQ(scratch_of(one, kManyThreads), scratch_of(one, kItems)) << one.op;
  }
}

TEST(MembersWithoutWork, ChangeNoBits) {
  for (const OneNode &one : nodes()) {
    const std::vector<Array> alone = run_on_cpu(one, 1), together = run_on_cpu(one, kManyThreads);
    for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(together[i].same_as(alone[i])) << one.op << ", " << i;
  }
}

TEST(LinearCrossEntropyGrad, TakesNoScratchForTheGradientOfAFrozenHead) {
  const Attributes mean = {{"reduction", std::string("mean")}, {"trans_w", std::int64_t{1}}};
  const Array x = random_floats({512, 300}, 1), head = random_floats({200, 300}, 2);
  OneNode one{"LinearCrossEntropyGrad", mean, {x, head, random_integers({512}, 3, 0, 200)}, {true, true, true}};
  const std::uint64_t trained = scratch_of(one, 2);
  one.outputs = {true, true, false};
  EXPECT_LT(scratch_of(one, 2), trained);
}

}  // namespace
}  // namespace protrain::test::scratch_test
