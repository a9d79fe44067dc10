// Compares updates with the formulas of PyTorch, ONNX and Hugging Face in double, and tests the check that scalars are
// finite.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "arith/planes.h"
#include "backend/optimizer_numbers.h"
#include "base/error.h"

namespace protrain::backend::optimizer_test {
namespace {

constexpr std::int64_t kElements = 1003;

struct State {
  std::vector<float> weights;
  std::vector<std::vector<std::byte>> arrays;  // the optimizer's

  std::vector<float> floats(std::size_t array) const {
    std::vector<float> values(arrays[array].size() / sizeof(float));
    std::memcpy(values.data(), arrays[array].data(), arrays[array].size());
    return values;
  }
};

// The arrays of the optimizer before the first step.
std::vector<std::vector<std::byte>> zeros(const Optimizer &optimizer) {
  std::vector<std::vector<std::byte>> arrays;
  for (const graph::OptimizerArray &array : optimizer.state()) arrays.emplace_back(array.bytes(kElements));
  return arrays;
}

std::vector<float> wave(double frequency) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < kElements; ++i)
    values.push_back(static_cast<float>(std::sin(frequency * double(i + 1))));
  return values;
}

struct Job {
  Device &device;
  Kernel &kernel;
  Launch launch;
};

void run(Device &device, Kernel &kernel, const Launch &launch) {
  Job job{device, kernel, launch};
  device.run_step(
      [](void *at) {
        Job &j = *static_cast<Job *>(at);
        j.device.launch(Queue::host, j.kernel, j.launch);
      },
      &job);
}

// Runs `steps` updates, each with its own gradient. Returns weights and moments.
State trained(const Optimizer &optimizer, int steps, int threads, std::uint32_t status = 0,
              const float *scale = nullptr) {
  const auto device = open("cpu", threads);
  const auto kernel = device->compile_update({.optimizer = optimizer, .elements = {kElements}});
  State s{wave(0.7), zeros(optimizer)};
  for (int t = 1; t <= steps; ++t) {
    std::vector<float> gradient = wave(0.3 * t);
    const StepScalars scalars = {.update = {numbers_of(optimizer, 0.01, t)}};
    std::vector<void *> inputs = {gradient.data(), &status};
    if (scale != nullptr) inputs.push_back(const_cast<float *>(scale));
    std::vector<void *> outputs = {s.weights.data()};
    for (std::vector<std::byte> &array : s.arrays) outputs.push_back(array.data());
    run(*device, *kernel, {inputs, outputs, nullptr, &scalars});
  }
  return s;
}

void adam_step(const Optimizer &o, int step, double g, double &w, double &m, double &v) {
  using Correction = Optimizer::Correction;
  const double t = step + double(o.earlier_steps), decay = o.decoupled ? 1 - 0.01 * o.weight_decay : 1;
  const bool corrected = o.correction != Correction::none && t > 0;
  const double first = corrected ? 1 - std::pow(o.beta1, t) : 1, second = corrected ? 1 - std::pow(o.beta2, t) : 1;
  m = o.beta1 * m + (1 - o.beta1) * g;
  v = o.beta2 * v + (1 - o.beta2) * g * g;
  if (!o.decays_after) w *= decay;
  if (o.correction == Correction::rate)
    w -= 0.01 * std::sqrt(second) / first * m / (std::sqrt(v) + o.epsilon);
  else
    w -= 0.01 * (m / first) / (std::sqrt(v / second) + o.epsilon);
  if (o.decays_after) w *= decay;
}

// The weights after `steps` updates by the formulas of PyTorch, ONNX and Hugging Face, in double.
std::vector<double> expected(const Optimizer &o, int steps) {
  const std::vector<float> start = wave(0.7);
  std::vector<double> weights(start.begin(), start.end()), m(kElements), v(kElements);
  for (int t = 1; t <= steps; ++t) {
    const std::vector<float> gradient = wave(0.3 * t);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      double g = double(gradient[i]), &w = weights[i];
      const bool decoupled = o.kind == Optimizer::Kind::lion || (o.kind == Optimizer::Kind::adamw && o.decoupled);
      if (!decoupled) g += o.weight_decay * w;
      if (o.kind == Optimizer::Kind::sgd) {
        m[i] = t == 1 ? g : o.momentum * m[i] + (1 - o.dampening) * g;
        w -= 0.01 * (o.momentum == 0 ? g : o.nesterov ? g + o.momentum * m[i] : m[i]);
      } else if (o.kind == Optimizer::Kind::adagrad) {
        m[i] += g * g;
        w -= 0.01 / (1 + (t - 1) * o.rate_decay) * g / (std::sqrt(m[i]) + o.epsilon);
      } else if (o.kind == Optimizer::Kind::lion) {
        const double mean = o.beta1 * m[i] + (1 - o.beta1) * g;
        w -= 0.01 * ((mean > 0 ? 1 : mean < 0 ? -1 : 0) + o.weight_decay * w);
        m[i] = o.beta2 * m[i] + (1 - o.beta2) * g;
      } else {
        adam_step(o, t, g, w, m[i], v[i]);
      }
    }
  }
  return weights;
}

const std::vector<Optimizer> kOptimizers = {
    {},
    {.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.1},
    {.kind = Optimizer::Kind::sgd, .weight_decay = 0},
    {.kind = Optimizer::Kind::sgd, .weight_decay = 0.1},
    {.kind = Optimizer::Kind::sgd, .weight_decay = 0.01, .momentum = 0.9},
    {.kind = Optimizer::Kind::sgd, .nesterov = true, .weight_decay = 0.01, .momentum = 0.9},
    {.kind = Optimizer::Kind::sgd, .weight_decay = 0, .momentum = 0.9, .dampening = 0.7},
    {.kind = Optimizer::Kind::adagrad, .epsilon = 1e-6, .weight_decay = 0.1, .rate_decay = 0.05},
    {.kind = Optimizer::Kind::lion, .beta2 = 0.99, .weight_decay = 0.1},
    {.decoupled = false, .weight_decay = 0.1},
    {.correction = Optimizer::Correction::rate, .epsilon = 1e-3, .weight_decay = 0},
    {.correction = Optimizer::Correction::rate, .decays_after = true, .epsilon = 1e-3, .weight_decay = 0.1},
    {.correction = Optimizer::Correction::none, .decays_after = true},
    {.correction = Optimizer::Correction::rate,
     .decoupled = false,
     .epsilon = 1e-3,
     .weight_decay = 0.1,
     .earlier_steps = -1},
    {.weight_decay = 0.1, .earlier_steps = 7},
    {.average = 0.9},
};
const Optimizer kCoded = {.coded = true, .weight_decay = 0.1, .average = 0.9};

TEST(Update, ReplacesStateByItsNewValue) {
  const Optimizer assign{.kind = Optimizer::Kind::assign};
  EXPECT_EQ(trained(assign, 1, 2).weights, wave(0.3));
  EXPECT_EQ(trained(assign, 1, 2, 5).weights, wave(0.7)) << "the status is not finite";
}

TEST(Update, FollowsTheFormulas) {
  for (const Optimizer &optimizer : kOptimizers) {
    const State state = trained(optimizer, 20, 2);
    const std::vector<double> right = expected(optimizer, 20);
    for (std::size_t i = 0; i < right.size(); ++i) ASSERT_NEAR(double(state.weights[i]), right[i], 2e-6) << i;
  }
}

// One element from ONNX's node tests of Adam, Momentum and Adagrad. In all these tests the update count T is 0 and the
// learning rate is 0.1.
struct OnnxElement {
  Optimizer optimizer;
  float x, g, v, h;  // weight, gradient, moments
  float x_new, v_new, h_new;
};

TEST(Update, FollowsOnnxsNodeTests) {
  const Optimizer adam{.correction = Optimizer::Correction::rate,
                       .decoupled = false,
                       .beta1 = 0.95,
                       .beta2 = 0.1,
                       .epsilon = 1e-7,
                       .weight_decay = 0.001,
                       .earlier_steps = -1};
  const Optimizer momentum{.kind = Optimizer::Kind::sgd, .weight_decay = 0.001, .momentum = 0.95, .dampening = 0.9};
  const Optimizer nesterov{.kind = Optimizer::Kind::sgd, .nesterov = true, .weight_decay = 0.01, .momentum = 0.95};
  const Optimizer adagrad{.kind = Optimizer::Kind::adagrad, .epsilon = 1e-5, .weight_decay = 0.001, .rate_decay = 0.1};
  for (const OnnxElement &e : {OnnxElement{adam, 1.2F, -0.94F, 1.7F, 0.1F, 1.0250363F, 1.5680600F, 0.8032108F},
                               OnnxElement{adam, 2.8F, -2.5F, 3.6F, 0.1F, 2.6610327F, 3.2951398F, 5.6224070F},
                               OnnxElement{momentum, 1.2F, -0.94F, 1.7F, 0, 1.1323800F, 0.6762000F, 0},
                               OnnxElement{nesterov, 2.8F, -2.5F, 3.6F, 0, 2.9571400F, 0.9480000F, 0},
                               OnnxElement{adagrad, 1.0F, -1.0F, 2.0F, 0, 1.0576962F, 2.9980011F, 0},
                               OnnxElement{adagrad, 2.0F, -3.0F, 1.0F, 0, 2.0948617F, 9.9880037F, 0}}) {
    const auto device = open("cpu", 1);
    const auto kernel = device->compile_update({.optimizer = e.optimizer, .elements = {1}});
    const StepScalars scalars = {.update = {numbers_of(e.optimizer, 0.1, 1)}};
    float x = e.x, g = e.g, v = e.v, h = e.h;
    std::uint32_t status = 0;
    std::vector<void *> inputs = {&g, &status}, outputs = {&x, &v, &h};
    outputs.resize(1 + static_cast<std::size_t>(e.optimizer.state_count()));
    run(*device, *kernel, {inputs, outputs, nullptr, &scalars});
    EXPECT_NEAR(x, e.x_new, 2e-6);
    EXPECT_NEAR(v, e.v_new, 2e-6);
    EXPECT_NEAR(h, e.h_new, 2e-6);
  }
}

TEST(Update, BitsDoNotDependOnTheTeam) {
  for (const Optimizer &optimizer : kOptimizers) {
    const State alone = trained(optimizer, 3, 1);
    for (int threads : {2, 3, 4}) {
      const State state = trained(optimizer, 3, threads);
      EXPECT_EQ(state.weights, alone.weights);
      EXPECT_EQ(state.arrays, alone.arrays);
    }
  }
}

// The average begins with the weights after the first step, as PyTorch's AveragedModel does.
TEST(Update, KeepsAMovingAverageOfWeights) {
  for (Optimizer optimizer : kOptimizers) {
    optimizer.average = 0.9;
    std::vector<double> average;
    for (int steps = 1; steps <= 5; ++steps) {
      const State state = trained(optimizer, steps, 2);
      if (steps == 1) average.assign(state.weights.begin(), state.weights.end());
      const std::vector<float> found = state.floats(0);
      for (std::size_t i = 0; i < average.size(); ++i) {
        average[i] = 0.9 * average[i] + 0.1 * double(state.weights[i]);
        ASSERT_NEAR(double(found[i]), average[i], 1e-6) << i << " after " << steps;
      }
      optimizer.average = 0;
      EXPECT_EQ(trained(optimizer, steps, 2).weights, state.weights) << "the average changed the weights";
      optimizer.average = 0.9;
    }
  }
}

// Between steps, moments are stored in codes of 8 bits, which rounds them. The first step starts from moments of zero
// and updates the weights before it rounds the new moments. So after this step the weights must equal those of training
// with float32 moments. After 20 steps the weights of both trainings must still be near each other.
TEST(CodedUpdate, StaysNearFloat32) {
  Optimizer exact = kCoded;
  exact.coded = false;
  EXPECT_EQ(trained(kCoded, 1, 2).weights, trained(exact, 1, 2).weights);
  const State coded = trained(kCoded, 20, 2), right = trained(exact, 20, 2);
  const std::vector<float> start = wave(0.7);
  double apart = 0, moved = 0;
  for (std::size_t i = 0; i < start.size(); ++i) {
    apart += std::abs(double(coded.weights[i]) - double(right.weights[i]));
    moved += std::abs(double(right.weights[i]) - double(start[i]));
  }
  EXPECT_LT(apart, 0.05 * moved);
  EXPECT_GT(apart, 0);
}

TEST(CodedUpdate, HasTheSameBitsForEveryTeam) {
  const State alone = trained(kCoded, 5, 1);
  for (int threads : {2, 3, 4, 7}) {
    const State state = trained(kCoded, 5, threads);
    EXPECT_EQ(state.weights, alone.weights);
    EXPECT_EQ(state.arrays, alone.arrays);
  }
}

// Each block of 256 numbers has a scale of its own. So if an update is split into pieces that consist of whole blocks,
// it must give the same bits as one update of all elements.
TEST(CodedUpdate, OfPiecesIsThatOfTheWhole) {
  const State whole = trained(kCoded, 1, 1);
  const auto device = open("cpu", 1);
  State s{wave(0.7), zeros(kCoded)};
  std::vector<float> gradient = wave(0.3);
  std::uint32_t status = 0;
  const StepScalars scalars = {.update = {numbers_of(kCoded, 0.01, 1)}};
  for (std::int64_t begin = 0; begin < kElements; begin += 512) {
    const std::int64_t count = std::min<std::int64_t>(512, kElements - begin);
    const auto kernel = device->compile_update({.optimizer = kCoded, .elements = {count}});
    std::vector<void *> inputs = {gradient.data() + begin, &status}, outputs = {s.weights.data() + begin};
    const auto arrays = kCoded.state();
    for (std::size_t a = 0; a < arrays.size(); ++a)
      outputs.push_back(s.arrays[a].data() + arrays[a].bytes(static_cast<std::uint64_t>(begin)));
    run(*device, *kernel, {inputs, outputs, nullptr, &scalars});
  }
  EXPECT_EQ(s.weights, whole.weights);
  EXPECT_EQ(s.arrays, whole.arrays);
}

TEST(Update, DoesNothingOnceTheStepIsMarkedBad) {
  const State state = trained({}, 3, 2, 5);
  EXPECT_EQ(state.weights, wave(0.7));
  EXPECT_EQ(state.arrays, zeros({}));
  EXPECT_EQ(trained(kCoded, 3, 2, 5).arrays, zeros(kCoded));
}

TEST(Update, ScalesGradientsAndThenCutsThem) {
  const float half = 0.5F, one = 1;
  const Optimizer plain{.kind = Optimizer::Kind::sgd, .weight_decay = 0};
  Optimizer cut = plain, never = plain;
  cut.clip_value = 0.3;
  never.clip_value = 10;
  const State state = trained(cut, 1, 2, 0, &half);
  const std::vector<float> start = wave(0.7), gradient = wave(0.3);
  for (std::size_t i = 0; i < start.size(); ++i) {
    const double g = std::clamp(0.5 * double(gradient[i]), -0.3, 0.3);
    ASSERT_NEAR(double(state.weights[i]), double(start[i]) - 0.01 * g, 1e-7) << i;
  }
  EXPECT_EQ(trained(never, 3, 2, 0, &one).weights, trained(plain, 3, 2).weights);
}

// Updates the same weights twice: once stored as float32, once stored in two planes (arith/planes.h). Expects the same
// bits from both.
template <typename T, typename Gradient>
void expect_masters_step(const Optimizer &optimizer, DType weights_type, DType gradient_type) {
  const auto device = open("cpu", 2);
  const StepScalars scalars = {.update = {numbers_of(optimizer, 0.01, 1)}};
  std::uint32_t status = 0;
  std::vector<Gradient> gradient;
  std::vector<float> masters = wave(0.7), widened;
  std::vector<T> high;
  std::vector<arith::LowPlane<T>> low;
  for (float master : masters) {
    const auto planes = arith::split<T>(master);
    high.push_back(planes.high), low.push_back(planes.low);
  }
  for (float g : wave(0.3)) {
    gradient.push_back(arith::narrowed<Gradient>(g));
    widened.push_back(arith::widened(gradient.back()));
  }
  auto arrays = zeros(optimizer), others = zeros(optimizer);
  const auto whole = device->compile_update({.optimizer = optimizer, .elements = {kElements}});
  const auto split = device->compile_update(
      {.optimizer = optimizer, .elements = {kElements}, .weights = weights_type, .gradient = gradient_type});
  std::vector<void *> inputs = {widened.data(), &status}, outputs = {masters.data()};
  std::vector<void *> of_split = {gradient.data(), &status};
  std::vector<void *> planes = {high.data(), low.data()};
  for (std::vector<std::byte> &array : arrays) outputs.push_back(array.data());
  for (std::vector<std::byte> &array : others) planes.push_back(array.data());
  for (int t = 0; t < 3; ++t) {
    run(*device, *whole, {inputs, outputs, nullptr, &scalars});
    run(*device, *split, {of_split, planes, nullptr, &scalars});
  }
  for (std::size_t i = 0; i < masters.size(); ++i) {
    ASSERT_EQ(arith::joined(high[i], low[i]), masters[i]) << i;
    ASSERT_EQ(high[i].bits, arith::split<T>(masters[i]).high.bits) << i;
  }
  EXPECT_EQ(arrays, others);
  EXPECT_NE(masters, wave(0.7));
}

TEST(Update, OfWeightsInTwoPlanesIsThatOfTheirMasters) {
  std::vector<Optimizer> optimizers = kOptimizers;
  optimizers.push_back(kCoded);
  for (const Optimizer &optimizer : optimizers) {
    expect_masters_step<arith::bf16, float>(optimizer, DType::bf16, DType::f32);
    expect_masters_step<arith::bf16, arith::bf16>(optimizer, DType::bf16, DType::bf16);
    expect_masters_step<arith::f16, float>(optimizer, DType::f16, DType::f32);
    expect_masters_step<arith::f16, arith::f16>(optimizer, DType::f16, DType::f16);
  }
}

TEST(Update, OfWeightsOfOtherTypesIsRefused) {
  EXPECT_THROW(open("cpu", 1)->compile_update({.optimizer = {}, .elements = {1}, .weights = DType::f64}), Error);
  EXPECT_THROW(open("cpu", 1)->compile_update({.optimizer = {}, .elements = {1}, .gradient = DType::bf16}), Error);
  EXPECT_THROW(open("cpu", 1)->compile_update(
                   {.optimizer = {}, .elements = {1}, .weights = DType::bf16, .gradient = DType::f16}),
               Error);
}

std::uint32_t checked(double value, DType dtype, std::uint32_t status) {
  const auto device = open("cpu", 2);
  const auto kernel = device->compile_check(dtype, {3});
  auto narrow = static_cast<float>(value);
  std::vector<void *> inputs = {dtype == DType::f32 ? static_cast<void *>(&narrow) : &value}, outputs = {&status};
  run(*device, *kernel, {inputs, outputs});
  return status;
}

TEST(Check, MarksTheFirstScalarThatIsNotFinite) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (DType dtype : {DType::f32, DType::f64}) {
    EXPECT_EQ(checked(1.5, dtype, 0), 0U);
    EXPECT_EQ(checked(std::nan(""), dtype, 0), 3U);
    EXPECT_EQ(checked(infinity, dtype, 0), 3U);
    EXPECT_EQ(checked(-infinity, dtype, 0), 3U);
    EXPECT_EQ(checked(-infinity, dtype, 2), 2U);
  }
  EXPECT_EQ(checked(1e300, DType::f64, 0), 0U);
  EXPECT_THROW(open("cpu", 1)->compile_check(DType::i32, {1}), Error);
}

}  // namespace
}  // namespace protrain::backend::optimizer_test
