// Runs one node on the cpu device and compares every output with the operator's reference values.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"
#include "ops/op.h"

namespace protrain::test {

using graph::Array;
using graph::Attributes;
using graph::Type;

// One node and its operands. An Array of dtype none is an absent input.
struct OneNode {
  std::string op;
  Attributes attributes;
  std::vector<Array> inputs;
  std::vector<bool> outputs = {true};  // false: not wanted
};

inline Array random_floats(const Shape &shape, unsigned seed, double low = -1, double high = 1) {
  std::mt19937 bits(seed);
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  for (double &v : values) v = low + (high - low) * (static_cast<double>(bits()) / 4294967296.0);
  return Array::from_doubles({DType::f32, shape}, values);
}

inline Array random_integers(const Shape &shape, unsigned seed, std::int64_t low, std::int64_t high,
                             DType dtype = DType::i64) {  // in [low, high)
  std::mt19937 bits(seed);
  std::vector<std::int64_t> values(static_cast<std::size_t>(element_count(shape)));
  for (std::int64_t &v : values) v = low + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(high - low));
  return Array::from_integers({dtype, shape}, values);
}

inline graph::Node node_of(const OneNode &one) {
  graph::Node node;
  node.op = one.op;
  node.attributes = one.attributes;
  std::int32_t id = 0;
  for (const Array &input : one.inputs)
    node.inputs.push_back(input.dtype() == DType::none ? graph::ValueId::none : graph::ValueId{id++});
  for (bool wanted : one.outputs) node.outputs.push_back(wanted ? graph::ValueId{id++} : graph::ValueId::none);
  return node;
}

inline std::vector<Type> infer(const OneNode &one) {
  const ops::Op *op = ops::find(one.op);
  require(op != nullptr, Code::graph, one.op, "no such operator");
  const graph::Node node = node_of(one);
  ops::NodeTypes types{node, {}};
  for (const Array &input : one.inputs) types.inputs.push_back(input.dtype() == DType::none ? nullptr : &input.type());
  std::vector<Type> outputs = op->infer(types);
  outputs.resize(one.outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (!one.outputs[i]) outputs[i] = Type{};
  return outputs;
}

inline std::vector<Array> reference(const OneNode &one) {
  const graph::Node node = node_of(one);
  std::vector<const Array *> inputs;
  for (const Array &input : one.inputs) inputs.push_back(input.dtype() == DType::none ? nullptr : &input);
  OneNode all = one;  // the reference computes every output
  all.outputs.assign(one.outputs.size(), true);
  return ops::find(one.op)->evaluate(node, inputs, infer(all));
}

// A device for each team size, kept for all tests, and its arena.
struct Machine {
  static constexpr std::uint64_t kArenaBytes = 1 << 30;  // of addresses; only what is used becomes memory

  static Machine &of(int threads) {
    static std::map<int, Machine> machines;
    Machine &machine = machines[threads];
    if (!machine.device) {
      machine.device = backend::open("cpu", threads);
      machine.arena = static_cast<std::byte *>(machine.device->allocate_arena(kArenaBytes));
    }
    return machine;
  }
  std::unique_ptr<backend::Device> device;
  std::byte *arena = nullptr;
};

// Operands in a device's arena, one bench at a time; every operand is followed by guard bytes.
class Bench {
 public:
  Bench(const OneNode &one, int threads, std::size_t shift = 0)
      : device_(Machine::of(threads).device.get()), arena_(Machine::of(threads).arena) {
    const graph::Node node = node_of(one);
    backend::KernelRequest request{node, {}, infer(one)};
    for (const Array &input : one.inputs) request.inputs.push_back(input.type());
    outputs_ = request.outputs;
    kernel_ = device_->compile(request);
    std::uint64_t total = shift;
    for (const Type &type : request.inputs) inputs_at_.push_back(place(total, byte_count(type.dtype, type.shape)));
    for (const Type &type : outputs_) outputs_at_.push_back(place(total, byte_count(type.dtype, type.shape)));
    const std::uint64_t scratch_at = place(total, kernel_->scratch_bytes);
    require(total <= Machine::kArenaBytes, Code::arg, one.op, "{} bytes are more than a test's arena", total);
    std::memset(arena_, 0xFF, total);  // not a number, wherever nothing was written
    for (std::size_t i = 0; i < one.inputs.size(); ++i) {
      if (request.inputs[i].dtype != DType::none) one.inputs[i].write_dense(arena_ + inputs_at_[i]);
      inputs_.push_back(request.inputs[i].dtype == DType::none ? nullptr : arena_ + inputs_at_[i]);
    }
    for (std::size_t i = 0; i < outputs_.size(); ++i)
      results_.push_back(outputs_[i].dtype == DType::none ? nullptr : arena_ + outputs_at_[i]);
    scratch_ = arena_ + scratch_at;
    scratch_end_ = scratch_at + kernel_->scratch_bytes;
  }

  void run(const backend::StepScalars &scalars = {}) {
    scalars_ = scalars;
    auto issue = [](void *self) { static_cast<Bench *>(self)->issue(); };
    device_->run_step(issue, this);
  }
  void issue() { device_->launch(Queue::compute, *kernel_, {inputs_, results_, scratch_, &scalars_}); }

  std::vector<Array> results() const {
    std::vector<Array> arrays;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      if (outputs_[i].dtype == DType::none) {
        arrays.emplace_back();
        continue;
      }
      const std::byte *at = arena_ + outputs_at_[i];
      arrays.push_back(Array::dense(outputs_[i], {at, at + byte_count(outputs_[i].dtype, outputs_[i].shape)}));
    }
    return arrays;
  }
  // Nothing between and behind the operands was touched.
  void expect_guards() const {
    for (std::size_t i = 0; i < outputs_.size(); ++i)
      expect_guard(outputs_at_[i] + byte_count(outputs_[i].dtype, outputs_[i].shape));
    expect_guard(scratch_end_);
  }

 private:
  static constexpr std::uint64_t kGuard = 64;
  static std::uint64_t place(std::uint64_t &total, std::uint64_t bytes) {
    const std::uint64_t at = total;
    total = round_up(at + bytes + kGuard, kAlignment);
    return at;
  }
  void expect_guard(std::uint64_t end) const {
    for (std::uint64_t i = end; i < end + kGuard; ++i)
      ASSERT_EQ(arena_[i], std::byte{0xFF}) << "byte " << i - end << " behind an operand was written";
  }

  backend::Device *device_;
  std::unique_ptr<backend::Kernel> kernel_;
  std::vector<Type> outputs_;
  std::vector<std::uint64_t> inputs_at_, outputs_at_;
  std::vector<void *> inputs_, results_;
  std::byte *arena_;
  void *scratch_ = nullptr;
  std::uint64_t scratch_end_ = 0;
  backend::StepScalars scalars_;
};

inline std::vector<Array> run_on_cpu(const OneNode &one, int threads, std::size_t shift = 0) {
  Bench bench(one, threads, shift);
  bench.run();
  bench.expect_guards();
  return bench.results();
}

// |a - b| over the larger of 1 and |b|, at its largest; not-a-number and infinity must agree.
inline double largest_error(const Array &found, const Array &expected) {
  const std::vector<double> a = found.doubles(), b = expected.doubles();
  double largest = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    if (std::isfinite(a[i]) && std::isfinite(b[i]))
      largest = std::max(largest, std::abs(a[i] - b[i]) / std::max(1.0, std::abs(b[i])));
    else if (!(std::isnan(a[i]) && std::isnan(b[i])) && a[i] != b[i])
      return HUGE_VAL;
  }
  return largest;
}

// Teams of 1, 2 and 3 members give the reference within `tolerance` (integers and bools: exactly), twice the same bits.
inline void expect_reference(const OneNode &one, double tolerance = 1e-5) {
  const std::vector<Array> expected = reference(one);
  for (int threads : {1, 2, 3}) {
    SCOPED_TRACE(one.op + " on " + std::to_string(threads) + " threads, attributes " + one.attributes.print());
    const std::vector<Array> first = run_on_cpu(one, threads), second = run_on_cpu(one, threads, 64);
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (!one.outputs[i]) continue;
      EXPECT_EQ(first[i].type(), expected[i].type()) << "output " << i;
      const bool exact = !is_float(expected[i].dtype());
      EXPECT_LE(largest_error(first[i], expected[i]), exact ? 0 : tolerance) << "output " << i;
      EXPECT_TRUE(first[i].same_as(second[i])) << "output " << i << " changes with the address or from run to run";
    }
  }
}

}  // namespace protrain::test
