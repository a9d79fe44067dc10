#include <limits>

#include "backend/kernel_check.h"

namespace protrain::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
<<<<<<< HEAD
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
=======
>>>>>>> cuda

TEST(UnaryKernel, NotANumberAndInfinityComeThroughRelu) {
  const OneNode relu{"Relu", {}, {floats({4}, {kNaN, kInfinity, -kInfinity, -0.5})}};
  const std::vector<double> y = run_on_cpu(relu, 1)[0].doubles();
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], kInfinity);
  EXPECT_EQ(y[2], 0);
}

TEST(UnaryKernel, IsNaNAndIsInfTellSpecialValuesApart) {
  const Array x = floats({5}, {kNaN, kInfinity, -kInfinity, 0, 3e38});
  const OneNode only_negative{"IsInf", {{"detect_positive", std::int64_t{0}}}, {x}};
  EXPECT_EQ(run_on_cpu(only_negative, 1)[0].integers(), (std::vector<std::int64_t>{0, 0, 1, 0, 0}));
}

TEST(UnaryKernel, OtherTypesAreRefused) {
  EXPECT_THROW(CpuBench({"Exp", {}, {Array::filled({DType::f64, {3}}, 1)}}, 1), Error);
}

}  // namespace
}  // namespace protrain::test
