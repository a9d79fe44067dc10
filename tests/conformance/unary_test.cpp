#include <cmath>
#include <limits>

#include "conformance/contest.h"

namespace protrain::test::unary_test {
namespace {

PROTRAIN_FAMILY(UnaryKernel);

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
const Shape kShapes[] = {{}, {0}, {1}, {7}, {3, 0, 5}, {5, 1031}};

struct Operator {
  const char *name;
  double low = -4, high = 4;
  Attributes attributes = {};
  bool differentiable = true;
};
const Operator kOperators[] = {
    {"Neg"},
    {"Abs"},
    {"Exp"},
    {"Log", 0.01, 9},
    {"Sqrt", 0.01, 9},
    {"Reciprocal", 0.3, 9},
    {"Erf"},
    {"Tanh"},
    {"Sigmoid", -20, 20},
    {"Relu"},
    {"LeakyRelu"},
    {"LeakyRelu", -4, 4, {{"alpha", 0.3}}},
    {"Elu"},
    {"Elu", -4, 4, {{"alpha", 0.5}}},
    {"Celu"},
    {"Celu", -4, 4, {{"alpha", 2.0}}},
    {"Selu"},
    {"Selu", -4, 4, {{"alpha", 1.5}, {"gamma", 2.0}}},
    {"Softplus", -30, 30},
    {"Softsign"},
    {"HardSigmoid"},
    {"HardSigmoid", -4, 4, {{"alpha", 0.25}, {"beta", 0.4}}},
    {"HardSwish"},
    {"Mish", -30, 30},
    {"Sin", -50, 50},
    {"Cos", -50, 50},
    {"Tan", -1.4, 1.4},
    {"Asin", -0.99, 0.99},
    {"Acos", -0.99, 0.99},
    {"Atan"},
    {"Sinh"},
    {"Cosh"},
    {"Asinh", -50, 50},
    {"Acosh", 1.01, 50},
    {"Atanh", -0.99, 0.99},
    {"Gelu"},
    {"Gelu", -6, 6, {{"approximate", std::string("tanh")}}},
    {"Silu", -30, 30},
    {"Clip"},
    {"Clip", -4, 4, {{"min", -1.0}}},
    {"Clip", -4, 4, {{"max", 1.5}}},
    {"Clip", -4, 4, {{"min", -0.5}, {"max", 2.0}}},
    {"ThresholdedRelu"},
    {"ThresholdedRelu", -4, 4, {{"alpha", 0.25}}},
    {"Floor", -4, 4, {}, false},
    {"Ceil", -4, 4, {}, false},
    {"Round", -4, 4, {}, false},
    {"Sign", -4, 4, {}, false},
};

TEST_P(UnaryKernel, ValuesMatchTheReference) {
  for (const Operator &op : kOperators)
    for (const Shape &shape : {Shape{}, Shape{5, 1031}})
      expect_reference({op.name, op.attributes, {random_floats(shape, 1, op.low, op.high)}});
}

TEST_P(UnaryKernel, GradientsMatchTheReference) {
  for (const Operator &op : kOperators)
    if (op.differentiable)
      expect_reference({std::string(op.name) + "Grad",
                        op.attributes,
                        {random_floats({5, 1031}, 2), random_floats({5, 1031}, 3, op.low, op.high)}});
}

// Small results must be as accurate as large ones: |error| <= step * |value|, where `step` is the distance from 1 to
// the next number of the type. Other tests allow errors relative to max(1, |value|), which hides errors in small
// results.
TEST_P(UnaryKernel, ActivationsInNarrowTypesKeepTheirTails) {
  const Attributes tanh = {{"approximate", std::string("tanh")}};
  const Contender::Way &way = GetParam()->ways[0];
  const std::vector<std::pair<std::string, Attributes>> activations = {
      {"Gelu", {}}, {"Gelu", tanh}, {"Silu", {}}, {"Sigmoid", {}}, {"Tanh", {}}, {"SigmoidGrad", {}}, {"TanhGrad", {}}};
  for (const auto &[op, attributes] : activations)
    for (DType dtype : GetParam()->narrow()) {
      OneNode one{op, attributes, {Array::from_doubles({dtype, {8192}}, random_floats({8192}, 8, -4, 4).doubles())}};
      if (op.ends_with("Grad"))
        one.inputs.insert(one.inputs.begin(), Array::from_doubles({dtype, {8192}}, std::vector<double>(8192, 1)));
      if (way.prepare != nullptr) way.prepare();
      NodeBench bench(one, *way.machine);
      bench.run();
      const std::vector<double> found = bench.results()[0].doubles(), expected = reference(one)[0].doubles();
      const double step = dtype == DType::bf16 ? 0x1p-7 : 0x1p-10;
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_LE(std::abs(found[i] - expected[i]), step * std::abs(expected[i]))
            << op << " " << one.inputs.back().doubles()[i];
    }
}

TEST_P(UnaryKernel, AnyShapeIsTaken) {
  for (const Shape &shape : kShapes) {
    expect_reference({"Tanh", {}, {random_floats(shape, 4)}});
    expect_reference({"TanhGrad", {}, {random_floats(shape, 5), random_floats(shape, 6)}});
    expect_reference({"Not", {}, {random_integers(shape, 7, 0, 2, DType::boolean)}});
  }
}

TEST_P(UnaryKernel, SpecialValues) {
  const Array x = floats({6}, {kNaN, kInfinity, -kInfinity, 0, 3e38, -0.5});
  for (const char *op : {"Relu", "IsNaN", "IsInf"}) expect_reference({op, {}, {x}});
  expect_reference({"IsInf", {{"detect_positive", std::int64_t{0}}}, {x}});
  const Array ends = floats({4}, {kNaN, kInfinity, 3e38, -3e38});
  for (const char *op : {"Gelu", "Silu", "Sigmoid", "Tanh"}) expect_reference({op, {}, {ends}});
  expect_reference({"Gelu", {{"approximate", std::string("tanh")}}, {ends}});
  for (const char *op : {"GeluGrad", "SiluGrad", "SigmoidGrad", "TanhGrad"})
    expect_reference({op, {}, {floats({1}, {1}), floats({1}, {kNaN})}});
}

}  // namespace
}  // namespace protrain::test::unary_test
