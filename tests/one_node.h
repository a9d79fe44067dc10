// Runs one node on any device, and computes the reference values of its outputs.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "backend/backend.h"
#include "base/error.h"
#include "ops/op.h"
#include "ops/stored.h"

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

inline Array floats(const Shape &shape, const std::vector<double> &values) {
  return Array::from_doubles({DType::f32, shape}, values);
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

// Returns the types of all outputs that the node's operator has, including outputs that the case leaves out.
inline std::vector<Type> types_of_all_outputs(const OneNode &one) {
  const ops::Op *op = ops::find(one.op);
  require(op != nullptr, Code::graph, one.op, "no such operator");
  const graph::Node node = node_of(one);
  ops::NodeTypes types{node, {}};
  for (const Array &input : one.inputs) types.inputs.push_back(input.dtype() == DType::none ? nullptr : &input.type());
  return ops::infer(types);
}

inline std::vector<Type> infer(const OneNode &one) {
  std::vector<Type> outputs = types_of_all_outputs(one);
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
  return ops::evaluate(node, inputs, infer(all));
}

// A device and its arena.
struct Machine {
  explicit Machine(std::unique_ptr<backend::Device> opened, std::uint64_t bytes = 1 << 30, bool is_reachable = true)
      : device(std::move(opened)),
        arena_bytes(bytes),
        reachable(is_reachable),
        arena(static_cast<std::byte *>(device->allocate_arena(bytes))) {}

  std::unique_ptr<backend::Device> device;
  std::uint64_t arena_bytes;  // bytes of address space; only used parts become memory
  bool reachable;             // this process can access the arena, so a sanitizer can watch it
  std::byte *arena;
};

// Runs a node's kernel on operands that lie in a device's arena, and reads the results. Guard bytes after every operand
// show whether a kernel writes too far. Operands start at the same place in each bench, so an arena serves one
// NodeBench at a time.
class NodeBench {
 public:
  NodeBench(const OneNode &one, Machine &machine, std::size_t shift = 0, int variant = 0)
      : device_(machine.device.get()), arena_(machine.arena), reachable_(machine.reachable) {
    const graph::Node node = node_of(one);
    backend::KernelRequest request{node, {}, infer(one)};
    for (const Array &input : one.inputs) request.inputs.push_back(input.type());
    outputs_ = request.outputs;
    kernel_ = device_->compile(request);
    if (variant > 0) kernel_->use_variant(variant);
    std::uint64_t total = shift;
    for (const Type &type : request.inputs) inputs_at_.push_back(place(total, byte_count(type.dtype, type.shape)));
    for (const Type &type : outputs_) outputs_at_.push_back(place(total, byte_count(type.dtype, type.shape)));
    const std::uint64_t scratch_at = place(total, kernel_->scratch_bytes);
    require(total <= machine.arena_bytes, Code::arg, one.op, "{} bytes are more than a test's arena", total);
    const std::vector<std::byte> nothing(total, std::byte{0xFF});  // NaNs until something is written
    device_->write(arena_, nothing.data(), total);
    for (std::size_t i = 0; i < one.inputs.size(); ++i) {
      if (request.inputs[i].dtype != DType::none) put(one.inputs[i], arena_ + inputs_at_[i]);
      inputs_.push_back(request.inputs[i].dtype == DType::none ? nullptr : arena_ + inputs_at_[i]);
    }
    for (std::size_t i = 0; i < outputs_.size(); ++i)
      results_.push_back(outputs_[i].dtype == DType::none ? nullptr : arena_ + outputs_at_[i]);
    scratch_.at = arena_ + scratch_at;
    scratch_.end = scratch_at + kernel_->scratch_bytes;
  }

  void run(const backend::StepScalars &scalars = {}) {
    scalars_ = scalars;
    watch(true);
    auto issue = [](void *self) { static_cast<NodeBench *>(self)->issue(); };
    try {
      device_->run_step(issue, this);
    } catch (...) {
      watch(false);
      throw;
    }
    watch(false);
  }
  int variant_count() const { return kernel_->variant_count(); }
  void issue() { device_->launch(Queue::compute, *kernel_, {inputs_, results_, scratch_.at, &scalars_}); }

  std::vector<Array> results() const {
    std::vector<Array> arrays;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      if (outputs_[i].dtype == DType::none) {
        arrays.emplace_back();
        continue;
      }
      arrays.push_back(
          Array::dense(outputs_[i], taken(outputs_at_[i], byte_count(outputs_[i].dtype, outputs_[i].shape))));
    }
    return arrays;
  }
  // Checks that no guard bytes behind outputs and scratch were written.
  void expect_guards() const {
    for (std::size_t i = 0; i < outputs_.size(); ++i)
      expect_guard(outputs_at_[i] + byte_count(outputs_[i].dtype, outputs_[i].shape));
    expect_guard(scratch_.end);
  }

 private:
  static constexpr std::uint64_t kGuard = 64;
  std::uint64_t place(std::uint64_t &total, std::uint64_t bytes) {
    const std::uint64_t at = total;
    total = round_up(at + bytes + kGuard, kAlignment);
    gaps_.emplace_back(at + bytes, total);
    return at;
  }
  void put(const Array &array, std::byte *to) const {
    std::vector<std::byte> bytes(byte_count(array.dtype(), array.shape()));
    array.write_dense(bytes.data());
    device_->write(to, bytes.data(), bytes.size());
  }
  std::vector<std::byte> taken(std::uint64_t at, std::uint64_t bytes) const {
    std::vector<std::byte> out(bytes);
    device_->read(out.data(), arena_ + at, bytes);
    return out;
  }
  void expect_guard(std::uint64_t end) const {
    const std::vector<std::byte> guard = taken(end, kGuard);
    for (std::size_t i = 0; i < guard.size(); ++i)
      ASSERT_EQ(guard[i], std::byte{0xFF}) << "byte " << i << " behind an operand was written";
  }

  // Makes the address sanitizer report accesses to the gaps between operands if `on` is true. Otherwise allows these
  // accesses again.
  void watch([[maybe_unused]] bool on) const {
#if defined(__SANITIZE_ADDRESS__)
    if (!reachable_) return;
    for (const auto &[begin, end] : gaps_) {
      if (on)
        ASAN_POISON_MEMORY_REGION(arena_ + begin, end - begin);
      else
        ASAN_UNPOISON_MEMORY_REGION(arena_ + begin, end - begin);
    }
#endif
  }

  backend::Device *device_;
  std::unique_ptr<backend::Kernel> kernel_;
  std::vector<Type> outputs_;
  std::vector<std::uint64_t> inputs_at_, outputs_at_;
  std::vector<void *> inputs_, results_;
  std::byte *arena_;
  bool reachable_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> gaps_;  // offsets of the guard bytes
  struct {
    void *at = nullptr;
    std::uint64_t end = 0;
  } scratch_;
  backend::StepScalars scalars_;
};

// The largest |a - b| relative to the larger of 1 and |b|. NaN and infinity must agree.
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

}  // namespace protrain::test
