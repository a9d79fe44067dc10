#include <gtest/gtest.h>

#include "ops/gradient_check.h"

namespace protrain::test::attention_test {
namespace {

// Returns q (2, queries, 4, 3), k (2, keys, kv_heads, 3) and v (2, keys, kv_heads, 5).
std::vector<Array> operands(std::int64_t queries, std::int64_t keys, std::int64_t kv_heads) {
  return {random_doubles({2, queries, 4, 3}, 1, -2, 2), random_doubles({2, keys, kv_heads, 3}, 2, -2, 2),
          random_doubles({2, keys, kv_heads, 5}, 3, -2, 2)};
}

void expect_attention_gradient(const Attributes &attributes, std::vector<Array> inputs) {
  expect_gradient({.op = "FusedAttention",
                   .attributes = attributes,
                   .inputs = std::move(inputs),
                   .outputs = 2,
                   .weighted = {0},
                   .fixed = {3, 4}});
}

constexpr std::int64_t kOn = 1;

TEST(FusedAttentionOp, GradientMatchesFiniteDifferences) {
  expect_attention_gradient({}, operands(3, 3, 4));
  expect_attention_gradient({{"scale", 0.3}}, operands(2, 5, 4));
}

TEST(FusedAttentionOp, GradientMatchesFiniteDifferencesWithGroupedHeads) {
  expect_attention_gradient({{"causal", kOn}}, operands(3, 3, 2));
  expect_attention_gradient({}, operands(3, 4, 1));
}

TEST(FusedAttentionOp, GradientMatchesFiniteDifferencesWithMasks) {
  expect_attention_gradient({{"causal", kOn}}, operands(2, 5, 4));
  expect_attention_gradient({{"causal", kOn}, {"window", std::int64_t{2}}}, operands(5, 5, 4));
  expect_attention_gradient({{"softcap", 0.7}, {"causal", kOn}}, operands(3, 3, 4));
  auto biased = operands(3, 4, 2);
  biased.push_back(random_doubles({1, 4, 1, 4}, 4));
  expect_attention_gradient({}, biased);
}

// The bias hides all keys of the first sample, and some of the second.
TEST(FusedAttentionOp, GradientMatchesFiniteDifferencesWhereAFiniteBiasHidesEveryKey) {
  constexpr double kLowest = -3.4028234663852886e+38;
  auto inputs = operands(4, 4, 2);
  inputs.push_back(
      Array::from_doubles({DType::f64, {2, 1, 1, 4}}, {kLowest, kLowest, kLowest, kLowest, kLowest, 0, kLowest, 0.5}));
  expect_attention_gradient({}, inputs);
  expect_attention_gradient({{"softcap", 0.7}, {"causal", kOn}}, inputs);
}

TEST(FusedAttentionOp, GradientMatchesFiniteDifferencesWithinDocuments) {
  auto inputs = operands(5, 5, 2);
  inputs.resize(4);
  inputs.push_back(Array::from_integers({DType::i64, {2, 5}}, {0, 0, 2, 2, 2, 0, 1, 1, 1, 4}));
  expect_attention_gradient({{"causal", kOn}}, inputs);
}

TEST(FusedAttentionOp, AveragesTheValuesThatAQuerySees) {
  const Array q = Array::filled({DType::f64, {1, 3, 1, 1}}, 0), k = q;
  const Array v = Array::from_doubles({DType::f64, {1, 3, 1, 1}}, {1, 3, 8});
  EXPECT_EQ(evaluate("FusedAttention", {{"causal", kOn}}, {q, k, v}, 2)[0].doubles(), (std::vector<double>{1, 2, 4}));
  EXPECT_EQ(evaluate("FusedAttention", {{"causal", kOn}, {"window", kOn}}, {q, k, v}, 2)[0].doubles(),
            (std::vector<double>{1, 3, 8}));
  const Array first = Array::from_integers({DType::i64, {1, 3}}, {0, 1, 1});
  EXPECT_EQ(evaluate("FusedAttention", {{"causal", kOn}}, {q, k, v, Array(), first}, 2)[0].doubles(),
            (std::vector<double>{1, 3, 5.5}));
}

TEST(FusedAttentionOp, GivesNothingToAQueryThatSeesNothing) {
  const Array q = Array::filled({DType::f64, {1, 3, 1, 1}}, 1), k = Array::filled({DType::f64, {1, 2, 1, 1}}, 1);
  const auto made = evaluate("FusedAttention", {{"causal", kOn}}, {q, k, k}, 2);
  EXPECT_EQ(made[0].doubles(), (std::vector<double>{0, 1, 1}));
  EXPECT_EQ(made[1].doubles()[0], -INFINITY);
}

TEST(FusedAttentionOp, RefusesHeadsThatDoNotDivide) {
  EXPECT_EQ(code_of([] { evaluate("FusedAttention", {}, operands(3, 3, 3), 2); }), Code::shape);
}

}  // namespace
}  // namespace protrain::test::attention_test
