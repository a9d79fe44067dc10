// Models that draw noise: the numbers have the distribution that the operator promises, in training and in evaluation,
// and depend only on the seed and the step.
#include <gtest/gtest.h>

#include <cmath>

#include "onnx_import/wire.h"
#include "session/session.h"

namespace protrain::session::noise_test {
namespace {

using test::attribute;
using test::field;

constexpr std::int64_t kRows = 8, kColumns = 512;

std::string real(const std::string &name, float value) {
  return attribute(name, 1, test::tag(2, 5) + test::raw<float>({value}));
}

// A model whose result y is the mean square of n + b. A node with the operator `op` draws n. The parameter b has 512
// elements and begins as 0.
std::string model_of(const test::Scratch &scratch, const std::string &op, const test::Names &inputs,
                     const test::Names &attributes) {
  test::Wire wire;
  wire.nodes = {test::node(op, inputs, {"drawn"}, attributes),
                test::node("Cast", {"drawn"}, {"n"}, {test::int_attribute("to", test::kFloat)}),
                test::node("Add", {"n", "b"}, {"moved"}), test::node("Mul", {"moved", "moved"}, {"square"}),
                test::node("ReduceMean", {"square"}, {"y"}, {test::int_attribute("keepdims", 0)})};
  wire.initializers = {test::floats("b", {kColumns}, std::vector<float>(kColumns))};
  wire.inputs = {test::value("x", test::kFloat, {std::to_string(kRows), std::to_string(kColumns)})};
  wire.outputs = {test::value("y", test::kFloat, {})};
  return scratch.put("model.onnx", wire.bytes());
}

struct Noise {
  std::string op;
  test::Names inputs, attributes;
  std::vector<float> row;  // the first elements of x; all others equal the last of these
  double mean_square, tolerance;
};

class NoiseSession : public testing::TestWithParam<Noise> {
 protected:
  std::unique_ptr<Session> session(const char *seed) {
    draft::Options options;
    for (const auto &[key, value] : {std::pair{"threads", "2"}, {"learning_rate", "0"}, {"optimizer", "sgd"}})
      options.set(key, value);
    options.set("seed", seed);
    const Noise &noise = GetParam();
    auto made = Session::create(options, model_of(scratch_, noise.op, noise.inputs, noise.attributes), nullptr);
    std::vector<float> x;
    for (std::int64_t i = 0; i < kRows * kColumns; ++i)
      x.push_back(noise.row[std::min(static_cast<std::size_t>(i % kColumns), noise.row.size() - 1)]);
    if (made->input_count() > 0) made->set_input("x", DType::f32, {kRows, kColumns}, x.data());
    return made;
  }

  test::Scratch scratch_;
};

TEST_P(NoiseSession, HasTheDistributionAndDependsOnSeedAndStep) {
  const auto one = session("1"), same = session("1"), other = session("2");
  const float first = one->step().loss, second = one->step().loss;
  for (float loss : {first, second, other->step().loss, one->evaluate()})
    EXPECT_NEAR(loss, GetParam().mean_square, GetParam().tolerance);
  EXPECT_NE(first, second);
  EXPECT_EQ(same->step().loss, first);
  EXPECT_EQ(same->step().loss, second);
  EXPECT_NE(other->step().loss, second);
}

std::string shape_attribute() { return attribute("shape", 7, field(8, kRows) + field(8, kColumns)); }

// The tolerances are five standard deviations of a mean of 4096 squares.
INSTANTIATE_TEST_SUITE_P(
    Operators, NoiseSession,
    testing::Values(Noise{"RandomNormalLike", {"x"}, {real("mean", 1), real("scale", 2)}, {0}, 5, 0.55},
                    Noise{"RandomNormal", {}, {shape_attribute(), real("seed", 3)}, {0}, 1, 0.12},
                    Noise{"RandomUniformLike", {"x"}, {real("low", -1), real("high", 3)}, {0}, 7.0 / 3, 0.2},
                    Noise{"RandomUniform", {}, {shape_attribute()}, {0}, 1.0 / 3, 0.03},
                    Noise{"Bernoulli", {"x"}, {}, {0.25f}, 0.25, 0.04},
                    Noise{"Multinomial",
                          {"x"},
                          {test::int_attribute("sample_size", kColumns)},
                          {0, std::log(3.f), -100},
                          0.75,
                          0.04}),
    [](const auto &info) { return info.param.op; });

}  // namespace
}  // namespace protrain::session::noise_test
