// Compares FusedAttention and its gradient with their references. Largest error allowed: 5e-6 forward, 2e-5 backward.
#include "backend/kernel_check.h"
#include "kernel_nodes.h"

namespace protrain::test::attention_test {
namespace {

TEST(FusedAttentionKernel, RowsWithoutKeysAreZeroAndTheirLseIsMinusInfinity) {
  const OneNode node = forward({1, 5, 2, 1, 1, 4, 4}, form(1), 1);  // queries 0, 1 and 2 come before the first key
  const std::vector<Array> results = run_on_cpu(node, 2);
  const std::vector<double> out = results[0].doubles(), lse = results[1].doubles();
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(lse[i], -HUGE_VAL);
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(out[i], 0);
  EXPECT_NE(out[12], 0);
}

TEST(FusedAttentionKernel, BitsDoNotDependOnTheTeam) {
  const OneNode node = forward({2, 150, 150, 4, 2, 16, 16}, form(1, 90), 11);
  const OneNode grad = backward(node, 12);
  for (const OneNode &one : {node, grad}) {
    const std::vector<Array> alone = run_on_cpu(one, 1);
    for (int threads : {2, 3, 4}) {
      const std::vector<Array> together = run_on_cpu(one, threads);
      for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(together[i].same_as(alone[i])) << i;
    }
  }
}

TEST(FusedAttentionKernel, ScratchDoesNotGrowWithTheSquareOfTheSequence) {
  auto scratch = [](std::int64_t keys) {
    const Type q{DType::f32, {1, keys, 2, 16}}, lse{DType::f32, {1, 2, keys}};
    graph::Node node;
    node.op = "FusedAttention";
    return backend::open("cpu", 1)->compile({node, {q, q, q}, {q, lse}})->scratch_bytes;
  };
  EXPECT_LT(scratch(4096), 5 * scratch(1024));
}

}  // namespace
}  // namespace protrain::test::attention_test
