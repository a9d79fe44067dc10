// The reference of CtcLoss. The loss must follow from the probabilities of all paths, added one by one. The gradient
// must match finite differences.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/gradient_check.h"

namespace protrain::test::ctc_test {
namespace {

using Integers = std::vector<std::int64_t>;

Attributes with_blank(std::int64_t blank) { return {{"blank", blank}, {"ignore_index", std::int64_t{-100}}}; }

Array rows(const Shape &shape, const Integers &values) { return Array::from_integers({DType::i64, shape}, values); }

double loss_of(const Attributes &attributes, const std::vector<Array> &inputs) {
  return evaluate("CtcLoss", attributes, inputs, 1)[0].doubles()[0];
}

// The labels that a path spells: equal neighbours are joined, and blanks removed.
Integers spelt(const Integers &path, std::int64_t blank) {
  Integers labels;
  for (std::size_t t = 0; t < path.size(); ++t)
    if (path[t] != blank && (t == 0 || path[t] != path[t - 1])) labels.push_back(path[t]);
  return labels;
}

// The probability of all paths of `length` classes that spell the labels. `logits`: (length, classes).
double probability(const std::vector<double> &logits, std::size_t length, std::int64_t classes, const Integers &labels,
                   std::int64_t blank) {
  double sum = 0;
  Integers path(length, 0);
  for (bool more = true; more;) {
    double p = 1;
    for (std::size_t t = 0; t < length; ++t) {
      const double *row = logits.data() + t * static_cast<std::size_t>(classes);
      double all = 0;
      for (std::int64_t i = 0; i < classes; ++i) all += std::exp(row[i]);
      p *= std::exp(row[path[t]]) / all;
    }
    if (spelt(path, blank) == labels) sum += p;
    more = false;
    for (std::size_t t = 0; t < length && !more; ++t) {
      more = ++path[t] < classes;
      if (!more) path[t] = 0;
    }
  }
  return sum;
}

TEST(CtcLossOp, IsMinusTheLogOfTheProbabilityOfAllPaths) {
  const Array logits = random_doubles({1, 5, 4}, 1, -2, 2);
  for (const std::int64_t blank : {0, 3})
    for (const Integers &labels : {Integers{1}, {2, 1}, {1, 1}, {2, 2, 1}, {1, 2, 1}, {1, 1, 1}})
      EXPECT_NEAR(loss_of(with_blank(blank), {logits, rows({1, static_cast<std::int64_t>(labels.size())}, labels)}),
                  -std::log(probability(logits.doubles(), 5, 4, labels, blank)) / static_cast<double>(labels.size()),
                  1e-13);
}

TEST(CtcLossOp, OfNoLabelsIsThatOfBlanksAlone) {
  const Array logits = random_doubles({1, 4, 3}, 2, -2, 2);
  EXPECT_NEAR(loss_of(with_blank(1), {logits, rows({1, 2}, {-100, -100})}),
              -std::log(probability(logits.doubles(), 4, 3, {}, 1)), 1e-13);
}

TEST(CtcLossOp, IsTheMeanOfSamplesEachDividedByItsLabels) {
  const Array logits = random_doubles({2, 4, 3}, 3, -2, 2);
  const std::vector<double> values = logits.doubles();
  const double first = -std::log(probability(values, 4, 3, {1, 2}, 0)),
               second = -std::log(probability({values.begin() + 12, values.end()}, 2, 3, {2}, 0));
  EXPECT_NEAR(loss_of(with_blank(0), {logits, rows({2, 3}, {1, -100, 2, 2, -100, -100}), rows({2}, {4, 2})}),
              (first / 2 + second) / 2, 1e-13);
}

// A path needs a blank between two equal labels, so the first sample's labels, 1 and 1, need three time steps. The
// sample has only two, so its loss counts as 0 and its gradient is 0.
TEST(CtcLossOp, LeavesOutASampleThatNoPathSpells) {
  const Array logits = random_doubles({2, 2, 3}, 4, -2, 2);
  const std::vector<double> values = logits.doubles();
  const double second = -std::log(probability({values.begin() + 6, values.end()}, 2, 3, {1, 2}, 0));
  const std::vector<Array> inputs = {logits, rows({2, 2}, {1, 1, 1, 2})};
  EXPECT_NEAR(loss_of(with_blank(0), inputs), second / 2 / 2, 1e-13);
  const std::vector<double> gradient =
      evaluate("CtcLossGrad", with_blank(0), {Array::scalar(DType::f64, 1), inputs[0], inputs[1]}, 1)[0].doubles();
  for (std::size_t i = 0; i < gradient.size(); ++i) EXPECT_EQ(gradient[i] == 0, i < 6) << i;
}

TEST(CtcLossOp, GradientMatchesFiniteDifferences) {
  const Integers labels = {1, 1, 2, -100, 3, -100, -100, -100, -100, -100, -100, -100, 2, 1, 2, 1};
  for (const std::int64_t blank : {0, 4})
    expect_gradient({.op = "CtcLoss",
                     .attributes = with_blank(blank),
                     .inputs = {random_doubles({4, 6, 5}, 5, -2, 2), rows({4, 4}, labels)}});
  expect_gradient({.op = "CtcLoss",
                   .attributes = with_blank(0),
                   .inputs = {random_doubles({4, 6, 5}, 5, -2, 2), rows({4, 4}, labels), rows({4}, {6, 1, 0, 5})}});
}

TEST(CtcLossOp, RefusesWhatIsNoLabelAndNoLength) {
  const Array logits = random_doubles({2, 4, 3}, 1), labels = rows({2, 1}, {1, 2});
  const auto code = [&](const Attributes &attributes, const std::vector<Array> &inputs) {
    return code_of([&] { evaluate("CtcLoss", attributes, inputs, 1); });
  };
  EXPECT_EQ(code(with_blank(0), {logits, labels}), Code::ok);
  EXPECT_EQ(code(with_blank(2), {logits, labels}), Code::arg);  // label 2 is the blank
  EXPECT_EQ(code(with_blank(3), {logits, labels}), Code::arg);
  for (const std::int64_t label : {-1, 3})
    EXPECT_EQ(code(with_blank(0), {logits, rows({2, 1}, {1, label})}), Code::arg) << label;
  for (const std::int64_t length : {-1, 5})
    EXPECT_EQ(code(with_blank(0), {logits, labels, rows({2}, {4, length})}), Code::arg) << length;
  EXPECT_EQ(code(with_blank(0), {logits, rows({1, 2}, {1, 2})}), Code::shape);
  EXPECT_EQ(code(with_blank(0), {logits, labels, rows({1}, {4})}), Code::shape);
  EXPECT_EQ(code(with_blank(0), {random_doubles({2, 4}, 1), labels}), Code::shape);
}

}  // namespace
}  // namespace protrain::test::ctc_test
