#include <gtest/gtest.h>

#include "ops/gradient_check.h"

namespace protrain::test::loss_test {
namespace {

const std::int64_t kIgnored = -100;

Attributes reduced(const std::string &reduction) { return {{"reduction", reduction}, {"ignore_index", kIgnored}}; }

Array labels(const std::vector<std::int64_t> &values) { return Array::integers(values); }

TEST(CrossEntropyOp, GradientMatchesFiniteDifferences) {
  for (const char *reduction : {"mean", "sum", "none"})
    expect_gradient({.op = "CrossEntropy",
                     .attributes = reduced(reduction),
                     .inputs = {random_doubles({4, 5}, 1, -2, 2), labels({0, kIgnored, 4, 2})},
                     .outputs = 2});
}

Attributes mixed(const std::string &reduction) {
  Attributes attributes = reduced(reduction);
  attributes.set("label_smoothing", 0.3);
  attributes.set("z_loss", 0.05);
  return attributes;
}

TEST(CrossEntropyOp, OfSmoothedLabelsAndWeighedRowsHasThatGradientToo) {
  for (const char *reduction : {"mean", "sum", "none"})
    expect_gradient({.op = "CrossEntropy",
                     .attributes = mixed(reduction),
                     .inputs = {random_doubles({4, 5}, 1, -2, 2), labels({0, kIgnored, 4, 2}),
                                Array::from_doubles({DType::f64, {4}}, {0.5, 1, 2, 0})},
                     .outputs = 2,
                     .fixed = {2}});
}

TEST(CrossEntropyOp, OfRowsThatAreHardHasThatGradientToo) {
  for (const char *op : {"CrossEntropy", "LinearCrossEntropy"})
    for (const double focal : {0.5, 2.0}) {
      Attributes attributes = reduced("mean");
      attributes.set("focal", focal);
      std::vector<Array> inputs = {random_doubles({4, 5}, 1, -2, 2), labels({0, kIgnored, 4, 2})};
      if (std::string_view(op) == "LinearCrossEntropy") inputs.insert(inputs.begin() + 1, random_doubles({6, 5}, 2));
      expect_gradient({.op = op, .attributes = attributes, .inputs = inputs, .outputs = inputs.size() == 2 ? 2u : 1u});
    }
}

// Each row's loss is multiplied by the row's weight, and the mean divides by the sum of the weights.
TEST(CrossEntropyOp, WeighsRows) {
  const Array logits = random_doubles({3, 4}, 1), targets = labels({1, 0, 3});
  const std::vector<double> rows = evaluate("CrossEntropy", reduced("none"), {logits, targets}, 2)[0].doubles();
  const Array weights = Array::from_doubles({DType::f64, {3}}, {2, 0, 0.5});
  EXPECT_NEAR(evaluate("CrossEntropy", reduced("mean"), {logits, targets, weights}, 2)[0].doubles()[0],
              (2 * rows[0] + 0.5 * rows[2]) / 2.5, 1e-14);
}

TEST(CrossEntropyOp, IsTheMeanOverCountedRows) {
  const Array logits = Array::filled({DType::f64, {3, 4}}, 0);
  EXPECT_NEAR(evaluate("CrossEntropy", reduced("mean"), {logits, labels({1, kIgnored, 3})}, 2)[0].doubles()[0],
              std::log(4.0), 1e-15);
  EXPECT_TRUE(std::isnan(
      evaluate("CrossEntropy", reduced("mean"), {logits, labels({kIgnored, kIgnored, kIgnored})}, 2)[0].doubles()[0]));
}

TEST(CrossEntropyOp, RefusesALabelOutsideTheClasses) {
  EXPECT_EQ(code_of([] {
              evaluate("CrossEntropy", reduced("mean"), {random_doubles({1, 3}, 1), labels({3})}, 2);
            }),
            Code::arg);
}

// Operands of LinearCrossEntropy with 3 rows, width 4 and 5 classes.
std::vector<Array> linear_operands(bool by_rows, bool with_bias) {
  std::vector<Array> inputs = {random_doubles({3, 4}, 1), random_doubles(by_rows ? Shape{5, 4} : Shape{4, 5}, 2),
                               labels({4, kIgnored, 0})};
  if (with_bias) inputs.push_back(random_doubles({5}, 3));
  return inputs;
}

TEST(LinearCrossEntropyOp, GradientMatchesFiniteDifferencesAsTheLossAndWithinOne) {
  for (const bool by_rows : {true, false})
    for (const bool with_bias : {true, false})
      for (const bool is_loss : {true, false})
        for (const char *reduction : {"mean", "sum"}) {
          Attributes attributes = reduced(reduction);
          attributes.set("trans_w", std::int64_t{by_rows});
          expect_gradient({.op = "LinearCrossEntropy",
                           .attributes = attributes,
                           .inputs = linear_operands(by_rows, with_bias),
                           .is_loss = is_loss});
        }
}

TEST(LinearCrossEntropyOp, OfSmoothedLabelsAndWeighedRowsHasThatGradientToo) {
  for (const bool is_loss : {true, false}) {
    std::vector<Array> inputs = linear_operands(true, true);
    inputs.push_back(Array::from_doubles({DType::f64, {3}}, {0.5, 1, 2}));
    Attributes attributes = mixed("mean");
    attributes.set("trans_w", std::int64_t{1});
    expect_gradient(
        {.op = "LinearCrossEntropy", .attributes = attributes, .inputs = inputs, .fixed = {4}, .is_loss = is_loss});
  }
}

TEST(LinearCrossEntropyOp, OfSingleRowsHasAGradientForEach) {
  expect_gradient({.op = "LinearCrossEntropy", .attributes = reduced("none"), .inputs = linear_operands(true, true)});
  const auto inputs = linear_operands(true, false);
  EXPECT_EQ(evaluate("LinearCrossEntropy", reduced("none"), inputs)[0].shape(), (Shape{3}));
}

TEST(LinearCrossEntropyOp, ReplacesTheLossByThatOfItsGradient) {
  OneNodeGraph one({.op = "LinearCrossEntropy",
                    .attributes = reduced("mean"),
                    .inputs = linear_operands(true, false),
                    .is_loss = true});
  one.differentiate();
  EXPECT_NE(one.replacement, ValueId::none);
  EXPECT_EQ(one.graph.nodes().back().op, "LinearCrossEntropyGrad") << "no product with dL/dloss = 1";
}

TEST(LinearCrossEntropyOp, EqualsCrossEntropyOfTheProduct) {
  const auto inputs = linear_operands(true, true);
  const Array logits = evaluate("MatMul", {{"trans_b", std::int64_t{1}}}, {inputs[0], inputs[1], inputs[3]})[0];
  EXPECT_NEAR(evaluate("LinearCrossEntropy", reduced("mean"), inputs)[0].doubles()[0],
              evaluate("CrossEntropy", reduced("mean"), {logits, inputs[2]}, 2)[0].doubles()[0], 1e-14);
}

Attributes taught(const std::string &reduction, double temperature) {
  return {{"reduction", reduction}, {"temperature", temperature}};
}

TEST(CrossEntropyOp, AgainstATeacherHasThatGradientToo) {
  for (const char *reduction : {"mean", "sum", "none"})
    for (const double temperature : {1.0, 2.5})
      expect_gradient({.op = "CrossEntropy",
                       .attributes = taught(reduction, temperature),
                       .inputs = {random_doubles({4, 5}, 1, -2, 2), random_doubles({4, 5}, 2, -3, 3)},
                       .outputs = 2,
                       .fixed = {1}});
}

TEST(LinearCrossEntropyOp, AgainstATeacherHasThatGradientAsTheLossAndWithinOne) {
  for (const bool by_rows : {true, false})
    for (const bool is_loss : {true, false})
      for (const char *reduction : {"mean", "sum", "none"}) {
        if (is_loss && std::string_view(reduction) == "none") continue;
        std::vector<Array> inputs = linear_operands(by_rows, true);
        inputs[2] = random_doubles({3, 5}, 7, -3, 3);
        Attributes attributes = taught(reduction, 2.5);
        attributes.set("trans_w", std::int64_t{by_rows});
        expect_gradient(
            {.op = "LinearCrossEntropy", .attributes = attributes, .inputs = inputs, .fixed = {2}, .is_loss = is_loss});
      }
}

// The loss must be T^2 sum(p (log p - log q)), where p is the teacher's distribution and q the student's, both at
// temperature T.
TEST(CrossEntropyOp, AgainstATeacherIsTheDivergence) {
  const double temperature = 2;
  const std::vector<double> x = {0.5, -1, 2}, t = {1, 0, -2};
  const auto shares = [&](const std::vector<double> &logits) {
    std::vector<double> all;
    double sum = 0;
    for (double z : logits) all.push_back(std::exp(z / temperature)), sum += all.back();
    for (double &share : all) share /= sum;
    return all;
  };
  const std::vector<double> p = shares(t), q = shares(x);
  double divergence = 0;
  for (std::size_t i = 0; i < 3; ++i) divergence += p[i] * std::log(p[i] / q[i]);
  const auto loss = [&](const std::vector<double> &student, const std::vector<double> &teacher) {
    const Array a = Array::from_doubles({DType::f64, {1, 3}}, student), b = Array::from_doubles(a.type(), teacher);
    return evaluate("CrossEntropy", taught("mean", temperature), {a, b}, 2)[0].doubles()[0];
  };
  EXPECT_NEAR(loss(x, t), temperature * temperature * divergence, 1e-14);
  EXPECT_NEAR(loss(t, t), 0, 1e-15);
  EXPECT_NEAR(loss({1, 0, -3}, {1, 0, -HUGE_VAL}), loss({1, 0, -3}, {1, 0, -1e6}), 1e-14) << "a class that is excluded";
}

TEST(CrossEntropyOp, AgainstATeacherTakesNothingThatIsForLabels) {
  const Array logits = random_doubles({4, 5}, 1), teacher = random_doubles({4, 5}, 2), rows = random_doubles({4}, 3);
  const auto refused = [](const Attributes &attributes, const std::vector<Array> &inputs) {
    return code_of([&] { evaluate("CrossEntropy", attributes, inputs, 2); });
  };
  for (const char *name : {"label_smoothing", "z_loss", "focal"}) {
    Attributes attributes = taught("mean", 1);
    attributes.set(name, 0.1);
    EXPECT_EQ(refused(attributes, {logits, teacher}), Code::unsupported) << name;
  }
  EXPECT_EQ(refused(reduced("mean"), {logits, teacher}), Code::unsupported) << "an ignored label";
  EXPECT_EQ(refused(taught("mean", 1), {logits, teacher, rows}), Code::unsupported) << "weights";
  EXPECT_EQ(refused(taught("mean", 1), {logits, rows}), Code::shape);
  EXPECT_EQ(refused(taught("mean", 0), {logits, teacher}), Code::arg);
}

TEST(CrossEntropyOp, RefusesATeacherThatIsTrained) {
  for (const char *op : {"CrossEntropy", "LinearCrossEntropy"}) {
    std::vector<Array> inputs = {random_doubles({4, 5}, 1), random_doubles({4, 5}, 2)};
    if (std::string_view(op) == "LinearCrossEntropy") inputs.insert(inputs.begin() + 1, random_doubles({5, 5}, 3));
    OneNodeGraph one(
        {.op = op, .attributes = taught("mean", 1), .inputs = inputs, .outputs = inputs.size() == 2 ? 2u : 1u});
    EXPECT_EQ(code_of([&] { one.differentiate(); }), Code::unsupported) << op;
  }
}

// The gradient of a model's head, in bfloat16.
struct HeadGradient {
  explicit HeadGradient(std::int64_t classes) {
    const auto value = [&](DType dtype, Shape shape) {
      return graph.add_value({.name = "value", .type = {dtype, std::move(shape)}});
    };
    node.inputs = {value(DType::bf16, {64, 16}), value(DType::bf16, {classes, 16}), value(DType::i64, {64})};
    node.outputs = {value(DType::f32, {}), value(DType::bf16, {64, 16}), value(DType::bf16, {classes, 16})};
  }

  graph::Graph graph;
  graph::Node node{.op = "LinearCrossEntropyGrad", .name = "head"};
};

// Returns the scratch that a plan assumes for the gradient of a head.
std::uint64_t scratch_of_head(std::int64_t classes, bool on_gpu) {
  const HeadGradient head(classes);
  return ops::assumed_scratch(head.graph, head.node, on_gpu);
}

TEST(LinearCrossEntropy, CountsAProductForTheLogitsAndOneForEachGradientThatIsWanted) {
  constexpr double kProduct = 2.0 * 64 * 16 * 100;
  for (const bool of_rows : {false, true})
    for (const bool of_table : {false, true}) {
      HeadGradient head(100);
      if (!of_rows) head.node.outputs[1] = graph::ValueId::none;
      if (!of_table) head.node.outputs[2] = graph::ValueId::none;
      const int products = 1 + (of_rows ? 1 : 0) + (of_table ? 1 : 0);
      EXPECT_EQ(ops::cost(head.graph, head.node).flops, products * kProduct) << of_rows << of_table;
    }
  HeadGradient short_one(100);
  short_one.node.outputs.resize(2);
  EXPECT_EQ(ops::cost(short_one.graph, short_one.node).flops, 2 * kProduct) << "as if dw were absent";
}

TEST(LinearCrossEntropy, OfAnOddVocabularyTakesACopyOfItsTableOnAGpu) {
  constexpr std::uint64_t kLogits = 64 * (4 + 2), kSums = 16 * 4;  // bytes of one class
  EXPECT_EQ(scratch_of_head(1000, true) - scratch_of_head(997, true), 3 * kLogits - 1000 * 16 * 2);
  EXPECT_EQ(scratch_of_head(1000, false) - scratch_of_head(997, false), 3 * kLogits);
  EXPECT_EQ(scratch_of_head(1000, true) - scratch_of_head(992, true), 8 * (kLogits + kSums));
}

}  // namespace
}  // namespace protrain::test::loss_test
