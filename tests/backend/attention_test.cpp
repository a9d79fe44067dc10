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

// The rows [begin, begin + count) of an array (1, S, ...).
Array rows_of(const Array &array, std::int64_t begin, std::int64_t count) {
  Shape shape = array.shape();
  const std::int64_t width = element_count(shape) / shape[1];
  const std::vector<double> all = array.doubles();
  shape[1] = count;
  return Array::from_doubles({array.dtype(), shape},
                             {all.begin() + begin * width, all.begin() + (begin + count) * width});
}

// Makes the sequence consist of documents of these lengths, one after the other. For this it adds an input that holds,
// for each query, the index of the first key of the query's document.
OneNode of_documents(OneNode node, const std::vector<std::int64_t> &lengths) {
  std::vector<std::int64_t> first;
  for (std::int64_t length : lengths) {
    const auto begin = static_cast<std::int64_t>(first.size());
    first.insert(first.end(), static_cast<std::size_t>(length), begin);
  }
  node.inputs.resize(node.op == "FusedAttention" ? 4 : 7);
  node.inputs.push_back(Array::from_integers({DType::i64, {1, static_cast<std::int64_t>(first.size())}}, first));
  return node;
}

TEST(FusedAttentionKernel, DocumentsHaveTheSameBitsWhereverTheyLie) {
  const OneNode node = forward({1, 300, 300, 4, 2, 16, 16}, form(1), 21), grad = backward(node, 22);
  const std::vector<std::int64_t> lengths = {70, 1, 129, 100}, other_order = {100, 129, 1, 70};
  const std::vector<std::int64_t> begins = {0, 70, 71, 200}, others = {230, 229, 100, 0};
  const auto moved = [&](OneNode one) {
    for (Array &input : one.inputs) {
      if (input.shape().size() != 4) continue;
      std::vector<double> values;
      for (std::size_t d : {3, 2, 1, 0}) {
        const std::vector<double> own = rows_of(input, begins[d], lengths[d]).doubles();
        values.insert(values.end(), own.begin(), own.end());
      }
      input = Array::from_doubles(input.type(), values);
    }
    return one;
  };
  const OneNode here = of_documents(node, lengths), there = of_documents(moved(node), other_order);
  const std::vector<Array> out = run_on_cpu(here, 2), out_there = run_on_cpu(there, 3);
  OneNode grad_here = of_documents(grad, lengths), grad_there = of_documents(moved(grad), other_order);
  for (OneNode *one : {&grad_here, &grad_there}) {
    const std::vector<Array> &made = one == &grad_here ? out : out_there;
    one->inputs[4] = made[0];
    one->inputs[5] = made[1];
  }
  const std::vector<Array> slopes = run_on_cpu(grad_here, 2), slopes_there = run_on_cpu(grad_there, 3);
  for (std::size_t d = 0; d < lengths.size(); ++d) {
    const auto same = [&](const Array &a, const Array &b) {
      return rows_of(a, begins[d], lengths[d]).same_as(rows_of(b, others[d], lengths[d]));
    };
    EXPECT_TRUE(same(out[0], out_there[0])) << d;
    for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(same(slopes[i], slopes_there[i])) << d << ", input " << i;
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
