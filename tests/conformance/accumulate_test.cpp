// The kernels of Accumulate, CountTargets, CountedLoss, GradientScale and ScaledNorm.
#include <cmath>

#include "conformance/arena.h"
#include "conformance/contest.h"

namespace protrain::test::accumulate_test {
namespace {

PROTRAIN_FAMILY(AccumulateKernel);
PROTRAIN_FAMILY(CountTargetsKernel);
PROTRAIN_FAMILY(CountedLossKernel);
PROTRAIN_FAMILY(GradientScaleKernel);
PROTRAIN_FAMILY(LossScaleKernel);

TEST_P(AccumulateKernel, StartsAnewAddsWithWeightsAndLeavesOutWhatWeighsNothing) {
  const Machine &machine = *GetParam()->ways[0].machine;
  const graph::Node node{.op = "Accumulate", .name = "sum"};
  const Type vector{DType::f32, {1003}}, scalar{DType::f64, {}};
  const auto kernel = machine.device->compile({node, {vector, vector, scalar}, {vector}});
  Arena arena(machine);
  float *sum = arena.put(std::vector<float>(1003, NAN));
  const double weights[] = {0, 3, 0, 0.5};
  for (std::uint64_t batch = 0; batch < 4; ++batch) {
    std::vector<float> x = weights[batch] == 0 ? std::vector<float>(1003, NAN) : wave(0.1 * double(batch));
    std::vector<void *> inputs = {sum, arena.put(x), arena.put(std::vector<double>{weights[batch]})}, outputs = {sum};
    const backend::StepScalars scalars{.micro_batch = batch};
    step(*machine.device, [&] {
      machine.device->launch(Queue::compute, *kernel, {inputs, outputs, nullptr, &scalars});
    });
  }
  const std::vector<float> found = arena.take(sum, 1003), first = wave(0.1), second = wave(0.1 * 3);
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], 3 * first[i] + 0.5 * second[i], 1e-6);
}

// A sum in a device's arena, to which launches of Accumulate add in place.
class SumInPlace {
 public:
  SumInPlace(const Machine &machine, const Array &sum) : device_(*machine.device), arena_(machine), sum_(sum) {
    at_ = arena_.put(bytes_of(sum));
  }

  // Adds x to the sum. An empty `weight` stands for an absent operand.
  void add(const Attributes &attributes, const Array &x, const Array &weight, std::uint64_t micro_batch) {
    const OneNode one{"Accumulate", attributes, {sum_, x, weight}};
    const graph::Node node = node_of(one);
    const auto kernel = device_.compile({node, {sum_.type(), x.type(), weight.type()}, infer(one)});
    const bool weighted = weight.dtype() != DType::none;
    std::vector<void *> inputs = {at_, arena_.put(bytes_of(x)), weighted ? arena_.put(bytes_of(weight)) : nullptr};
    std::vector<void *> outputs = {at_};
    const backend::StepScalars scalars{.micro_batch = micro_batch};
    step(device_, [&] { device_.launch(Queue::compute, *kernel, {inputs, outputs, nullptr, &scalars}); });
  }
  std::vector<std::byte> bytes() const { return arena_.take(at_, byte_count(sum_.dtype(), sum_.shape())); }

 private:
  static std::vector<std::byte> bytes_of(const Array &array) {
    std::vector<std::byte> bytes(byte_count(array.dtype(), array.shape()));
    array.write_dense(bytes.data());
    return bytes;
  }

  backend::Device &device_;
  Arena arena_;
  const Array sum_;
  std::byte *at_;
};

// Parts that are added to one sum. Each part is followed by padding and may have a weight.
struct PartsCase {
  DType dtype;
  std::int64_t elements, parts, padding;
  std::vector<double> weights;  // one for all parts or one for each; empty: no weights

  std::int64_t size() const { return elements + padding; }
  std::string print() const {
    return fmt::format("{} parts of {} {}, padded by {}, {} weights", parts, elements, name_of(dtype), padding,
                       weights.size());
  }
  // The weight of one part; absent if there is none.
  Array weight_of(std::int64_t part) const {
    if (weights.empty()) return {};
    return Array::scalar(DType::f64, weights[weights.size() > 1 ? static_cast<std::size_t>(part) : 0]);
  }
  // The weights as one operand, for a node that adds all parts.
  Array all_weights() const {
    return weights.size() > 1 ? Array::from_doubles({DType::f64, {parts}}, weights) : weight_of(0);
  }
  // The elements of one part, followed by padding. The padding is NaN, and so are all elements of a part with weight 0,
  // so a kernel that reads any of these makes the sum NaN. Every other part begins with -0. This tells two kinds of
  // kernels apart: copying the first part to the sum gives -0, adding the first part to 0 gives +0.
  std::vector<double> part(std::int64_t number) const {
    const bool counts = weights.empty() || weight_of(number).doubles()[0] != 0;
    std::vector<double> x = random_floats({elements}, static_cast<unsigned>(number)).doubles();
    if (!x.empty()) x[0] = -0.0;
    if (!counts) x.assign(x.size(), NAN);
    x.resize(static_cast<std::size_t>(size()), NAN);
    return x;
  }
};

// Expects that a single launch that adds all parts gives the same bits as one launch per part.
void expect_bits_of_single_parts(const Machine &machine, const PartsCase &of, std::uint64_t micro_batch) {
  const Shape shape = of.elements == 1 ? Shape{} : Shape{of.elements};
  const Type sum_type{ops::sum_dtype(of.dtype), shape};
  const Array sum = micro_batch == 0 ? Array::filled(sum_type, NAN)
                                     : Array::from_doubles(sum_type, random_floats(shape, 77).doubles());
  SumInPlace one_by_one(machine, sum);
  std::vector<double> all;
  for (std::int64_t part = 0; part < of.parts; ++part) {
    std::vector<double> x = of.part(part);
    all.insert(all.end(), x.begin(), x.end());
    x.resize(static_cast<std::size_t>(of.elements));
    one_by_one.add({}, Array::from_doubles({of.dtype, shape}, x), of.weight_of(part),
                   micro_batch + static_cast<std::uint64_t>(part));
  }
  const std::vector<std::byte> expected = one_by_one.bytes();
  SumInPlace at_once(machine, sum);
  const Array x = Array::from_doubles({of.dtype, {of.parts * of.size()}}, all);
  at_once.add({{"parts", of.parts}}, x, of.all_weights(), micro_batch);
  EXPECT_TRUE(at_once.bytes() == expected) << of.print() << " in micro-batch " << micro_batch;
}

TEST_P(AccumulateKernel, PartsAddedAtOnceHaveTheBitsOfPartsAddedOneAfterTheOther) {
  std::vector<DType> types = GetParam()->narrow();
  types.insert(types.end(), {DType::f32, DType::f64});
  const std::vector<double> each = {0.3, 0, 1.7, 3, 0.1, 2.3}, without_first = {0, 1.9, 0.3, 0, 0, 0.7};
  for (DType dtype : types)
    for (std::int64_t elements : {0, 1, 4095, 16385})
      for (std::int64_t parts : {1, 2, 6})
        for (std::vector<double> weights : {std::vector<double>{}, {0.7}, {0}, each, without_first}) {
          if (weights.size() > 1) weights.resize(static_cast<std::size_t>(parts));
          const PartsCase of{dtype, elements, parts, static_cast<std::int64_t>(weights.size()), weights};
          for (const Contender::Way &way : GetParam()->ways)
            for (std::uint64_t micro_batch : {0, 1}) {
              if (way.prepare != nullptr) way.prepare();
              expect_bits_of_single_parts(*way.machine, of, micro_batch);
            }
        }
}

TEST_P(CountTargetsKernel, CountsLabelsThatAreNotIgnored) {
  expect_reference({"CountTargets", {}, {random_integers({37}, 1, 0, 5)}}, 0);
  expect_reference({"CountTargets", {{"ignore_index", std::int64_t{2}}}, {random_integers({4, 9}, 2, 0, 5)}}, 0);
}

TEST_P(CountedLossKernel, IsZeroOnlyIfTheWeightIs) {
  for (double weight : {0.0, 2.0, -2.0})
    expect_reference({"CountedLoss", {}, {Array::scalar(DType::f32, 1.5), Array::scalar(DType::f64, weight)}}, 0);
}

TEST_P(GradientScaleKernel, DividesByTheWeightsAndCutsToTheNorm) {
  const Array norm = Array::scalar(DType::f64, 4), weights = Array::scalar(DType::f64, 16);
  for (double most : {0.0, 0.5, 3.9, 4.1}) {
    expect_reference({"GradientScale", {{"max_norm", most}}, {norm}}, 1e-7);
    expect_reference({"GradientScale", {{"max_norm", most}}, {norm, weights}}, 1e-7);
  }
  for (const double factor : {16.0, -16.0})  // weights of labels may be negative, a norm may not
    expect_reference({"ScaledNorm", {}, {norm, Array::scalar(DType::f64, factor)}}, 0);
}

TEST_P(LossScaleKernel, IsTheStepsOwn) {
  const OneNode node{"LossScale", {}, {}};
  expect_reference(node, 0);
  NodeBench bench(node, *GetParam()->ways[0].machine);
  bench.run({.loss_scale = 4096});
  EXPECT_EQ(bench.results()[0].doubles()[0], 4096);
}

}  // namespace
}  // namespace protrain::test::accumulate_test
