#include "session/nonfinite_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "grad/targets.h"
#include "ops/op.h"

namespace protrain::session {

namespace {

using graph::Array;
using graph::Node;
using graph::NodeId;
using graph::Type;
using graph::ValueId;

// Returns the loss as the model computes it. If the graph has the node CountedLoss, which turns the mean over no
// targets into 0, this is the input of CountedLoss.
ValueId loss_of_batch(const draft::ShapeVariant &variant) {
  const NodeId producer = variant.forward.value(variant.loss).producer;
  if (producer == NodeId::none) return variant.loss;
  const Node &node = variant.forward.node(producer);
  return node.op == "CountedLoss" ? node.inputs[0] : variant.loss;
}

}  // namespace

NonfiniteTrace::Watched NonfiniteTrace::step(const draft::ShapeVariant &variant, const program::Program &program) {
  const grad::Training &training = variant.training;
  return {variant, program, training.graph, training.loss, training.squared_norms};
}

NonfiniteTrace::Watched NonfiniteTrace::evaluation(const draft::ShapeVariant &variant, const program::Program &program,
                                                   const graph::Graph &graph) {
  return {variant, program, graph, variant.loss, {}};
}

// Finds the inputs of the loss that say which targets count. Looks for them in the forward graph, because the training
// graph may have one node for the loss and its gradient. A value has the same id in both graphs.
NonfiniteTrace::NonfiniteTrace(const Watched &watched, run::Store &store)
    : watched_(watched),
      graph_(watched.graph),
      program_(watched.program),
      store_(store),
      holds_(graph_.value_count(), Holds::unknown) {
  if (const auto count = grad::target_count(watched.variant.forward, loss_of_batch(watched.variant))) {
    target_ids_ = count->inputs;
    target_attributes_ = count->attributes;
    targets_.resize(target_ids_.size());
  }
}

// Looks for NaN and infinity in the values that a node is about to read. after() looks only at the results of nodes, so
// inputs, parameters and constants are looked at only here.
void NonfiniteTrace::before(std::size_t i) {
  const program::Instruction &instruction = program_.instructions[i];
  if (instruction.node == NodeId::none) return;
  const Node &node = graph_.node(instruction.node);
  for (std::size_t k = 0; k < node.inputs.size(); ++k) {
    look_at(node.inputs[k], instruction.inputs[k]);
    keep_target(node.inputs[k], instruction.inputs[k]);
  }
}

void NonfiniteTrace::after(std::size_t i) {
  const program::Instruction &instruction = program_.instructions[i];
  if (instruction.node == NodeId::none) return;
  const Node &node = graph_.node(instruction.node);
  for (std::size_t k = 0; k < node.outputs.size(); ++k) look_at(node.outputs[k], instruction.outputs[k]);
}

// Notes the worst number that a value holds, unless the value has been looked at before.
//   An accumulator holds the sum of gradients over the step's earlier batches. That sum cannot be read, because the
// step has already run once, and that run has added the present batch to it in place. So an accumulator counts as
// finite. The sum can hold a NaN or infinity all the same, because gradients are checked only in the step's last batch.
// adds_finite_numbers() finds this case.
void NonfiniteTrace::look_at(ValueId id, const program::Operand &at) {
  if (id == ValueId::none || holds(id) != Holds::unknown || at.buffer == program::BufferId::none) return;
  const graph::Value &value = graph_.value(id);
  holds_[index(id)] = value.origin == graph::Origin::accumulator ? Holds::finite : read(at, value.type);
}

void NonfiniteTrace::keep_target(ValueId id, const program::Operand &at) {
  const auto found = std::ranges::find(target_ids_, id);
  if (found == target_ids_.end()) return;
  Array &target = targets_[static_cast<std::size_t>(found - target_ids_.begin())];
  if (target.dtype() != DType::none) return;
  const Type &type = graph_.value(id).type;
  std::vector<std::byte> bytes(byte_count(type.dtype, type.shape));
  store_.read(program_.buffers[index(at.buffer)], at.offset, bytes.data(), bytes.size());
  target = Array(type, type.shape, std::move(bytes));
}

// Returns the worst kind of number that a value holds. Reads the value in small parts, because memory may be short.
NonfiniteTrace::Holds NonfiniteTrace::read(const program::Operand &at, const Type &type) const {
  if (!is_float(type.dtype)) return Holds::finite;
  constexpr std::int64_t kPart = 1 << 14;  // elements
  const auto element = static_cast<std::int64_t>(size_of(type.dtype));
  std::vector<std::byte> bytes(static_cast<std::size_t>(kPart * element));
  std::vector<double> values(kPart);
  Holds worst = Holds::finite;
  for (std::int64_t begin = 0, end = element_count(type.shape); begin < end && worst != Holds::nan; begin += kPart) {
    const std::int64_t count = std::min(kPart, end - begin);
    store_.read(program_.buffers[index(at.buffer)], at.offset + static_cast<std::uint64_t>(begin * element),
                bytes.data(), static_cast<std::uint64_t>(count * element));
    graph::load(type.dtype, bytes.data(), 1, count, values.data());
    for (std::int64_t i = 0; i < count; ++i)
      if (const double value = values[static_cast<std::size_t>(i)]; std::isnan(value))
        worst = Holds::nan;
      else if (std::isinf(value))
        worst = std::max(worst, Holds::infinity);
  }
  return worst;
}

// Returns the node's first input that holds a NaN. If there is none, returns the first input that holds an infinity.
// Leaves out inputs whose worst number (Holds) is below `at_least`. Returns ValueId::none if no input is left.
ValueId NonfiniteTrace::worst_input(const Node &node, Holds at_least) const {
  ValueId worst = ValueId::none;
  for (const ValueId in : node.inputs) {
    if (in == ValueId::none || holds(in) < at_least) continue;
    if (worst == ValueId::none || holds(in) > holds(worst)) worst = in;
  }
  return worst;
}

// Goes back from `at` to the value where its NaN or infinity began, and returns that value. From a NaN the walk goes
// only to NaNs, because many models hold infinities on purpose, in masks.
ValueId NonfiniteTrace::walk_back(ValueId at) const {
  const Holds sought = holds(at);
  for (;;) {
    const NodeId producer = graph_.value(at).producer;
    if (producer == NodeId::none) return at;
    const Node &node = graph_.node(producer);
    ValueId next = worst_input(node, sought);
    // If the producer is an alias or an exchange between ranks, it has no kernel, and in most cases its inputs were not
    // looked at. So the search goes on to the input at the same place as the output `at`, unless that input was found
    // to be finite.
    if (next == ValueId::none && !ops::has_kernel(node)) {
      const auto place = static_cast<std::size_t>(std::ranges::find(node.outputs, at) - node.outputs.begin());
      next = node.inputs[std::min(place, node.inputs.size() - 1)];
      if (holds(next) == Holds::finite) return at;
    }
    if (next == ValueId::none) return at;
    at = next;
  }
}

// True if the node adds only finite numbers to an accumulator. So if the node's result is not finite, the NaN or
// infinity came from an earlier batch.
bool NonfiniteTrace::adds_finite_numbers(const Node &node) const {
  const bool adds = std::ranges::any_of(node.inputs, [&](ValueId in) {
    return in != ValueId::none && graph_.value(in).origin == graph::Origin::accumulator;
  });
  return adds && worst_input(node, Holds::infinity) == ValueId::none;
}

std::string NonfiniteTrace::describe(ValueId at) const {
  const graph::Value &value = graph_.value(at);
  const char *what = holds(at) == Holds::infinity ? "infinity" : "NaN";
  if (value.producer == NodeId::none) {
    const char *kind = value.origin == graph::Origin::input       ? "the input"
                       : value.origin == graph::Origin::parameter ? "the parameter"
                                                                  : "the constant";
    return fmt::format("{} {} holds {} {} itself", kind, value.name, holds(at) == Holds::infinity ? "an" : "a", what);
  }
  const Node &node = graph_.node(value.producer);
  if (ops::is_between_ranks(node)) return "it came from another rank, which names its operator";
  if (adds_finite_numbers(node))
    return fmt::format("the {} in {} came from an earlier batch of the step; what this batch adds is finite", what,
                       value.name);
  const bool backward = node.phase == graph::Phase::backward;
  return fmt::format("{} ({}){} made the first {}, in {}", node.op, node.name, backward ? " of backward" : "", what,
                     value.name);
}

bool NonfiniteTrace::counts_no_target() const {
  std::vector<const Array *> inputs;
  for (const Array &target : targets_) {
    if (target.dtype() == DType::none) return false;
    inputs.push_back(&target);
  }
  if (inputs.empty()) return false;
  const Node node{
      .op = "CountTargets", .name = "", .attributes = target_attributes_, .inputs = target_ids_, .outputs = {}};
  const Type type{DType::f64, {}};
  return ops::find(node.op)->evaluate(node, inputs, {&type, 1}).at(0).stored_double(0) == 0;
}

std::optional<NonfiniteTrace::Origin> NonfiniteTrace::origin(program::StatusWord status) const {
  if (status.names_loss() && counts_no_target())
    return Origin{graph_.value(target_ids_[0]).name,
                  "no target counts: every label of the batch is ignored, or has the weight zero"};
  const ValueId found = status.names_loss() ? watched_.loss : watched_.squared_norms[status.parameter()];
  // An alias has no kernel, so it was not looked at.
  ValueId last = found;
  while (holds(last) == Holds::unknown && graph_.value(last).producer != NodeId::none &&
         ops::is_alias(graph_.node(graph_.value(last).producer)))
    last = graph_.node(graph_.value(last).producer).inputs.at(0);
  if (holds(last) < Holds::infinity) return std::nullopt;
  const ValueId at = walk_back(last);
  const NodeId producer = graph_.value(at).producer;
  Origin origin{producer == NodeId::none ? graph_.value(at).name : graph_.node(producer).name, describe(at)};
  if (producer == NodeId::none) return origin;
  const Node &node = graph_.node(producer);
  if (ops::is_between_ranks(node) || adds_finite_numbers(node)) return origin;
  const ValueId infinite = worst_input(node, Holds::infinity);
  origin.sentence +=
      infinite == ValueId::none
          ? ", from finite numbers"
          : fmt::format(", from an infinity in {}: {}", graph_.value(infinite).name, describe(walk_back(infinite)));
  return origin;
}

}  // namespace protrain::session
