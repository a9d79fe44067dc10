#include "session/index_checks.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "ops/op.h"

namespace protrain::session {

namespace {

using graph::Array;
using graph::Graph;
using graph::Node;
using graph::Type;
using graph::ValueId;

// Limits on the number of elements that Trace follows: in one value, and in all values and checks of a graph together.
// A hostile file can have any number of values. Indices beyond the limits are checked only by kernels.
constexpr std::int64_t kMostElements = 1 << 20, kMostOfAll = 1 << 24;
// The unit of the codes by which Trace tells the elements of the inputs apart. An element's code is kInput times the
// number of its input, counted from 1, plus the element's place in the input. Elements of constants and of padding have
// the code 0, whatever their values are.
constexpr std::int64_t kInput = std::int64_t{1} << 40;

bool is_index(DType dtype) { return dtype == DType::i64 || dtype == DType::i32; }

// True for nodes that only copy elements to other places, and for casts to int64, which keep every index.
bool only_moves(const Graph &graph, const Node &node) {
  if (node.op == "Cast")
    return is_index(graph.value(node.inputs[0]).type.dtype) && graph.value(node.outputs[0]).type.dtype == DType::i64;
  return ops::is_alias(node) || one_of(node.op, {"Slice", "Transpose", "Expand", "Concat", "Split", "Pad"});
}

// Returns element `i` of the values at `data`, which may be unaligned.
template <typename T>
T index_at(const void *data, std::size_t i) {
  T value;
  std::memcpy(&value, static_cast<const std::byte *>(data) + i * sizeof value, sizeof value);
  return value;
}

}  // namespace

// An operand that holds a node's indices, labels or lengths.
struct IndexChecks::Operand {
  std::size_t at;
  What what;
  std::int64_t extent;
};

// Trace follows the elements of inputs through the graph. For each value, Trace knows which elements of the inputs the
// value holds.
class IndexChecks::Trace {
 public:
  Trace(const Graph &graph, const std::vector<ValueId> &inputs) : graph_(graph) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Type &type = graph.value(inputs[i]).type;
      if (!is_index(type.dtype) || !takes(element_count(type.shape))) continue;
      std::vector<std::int64_t> places(static_cast<std::size_t>(element_count(type.shape)));
      for (std::size_t e = 0; e < places.size(); ++e)
        places[e] = static_cast<std::int64_t>(i + 1) * kInput + static_cast<std::int64_t>(e);
      elements_[inputs[i]] = Array::from_integers({DType::i64, type.shape}, places);
    }
  }

  // Follows elements through a node that only moves them. Each element is represented by its code (see kInput).
  // Evaluating the node on these codes moves them in the same way as it moves the elements.
  void pass(const Node &node) {
    if (node.inputs.empty() || !elements_.contains(node.inputs[0]) || !only_moves(graph_, node)) return;
    std::vector<Array> constants(node.inputs.size());
    std::vector<const Array *> in;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      const bool constant = id != ValueId::none && graph_.value(id).origin == graph::Origin::constant;
      if (constant && is_index(graph_.value(id).type.dtype))
        constants[i] = Array::filled({DType::i64, graph_.value(id).type.shape}, 0);
      if (id == ValueId::none)
        in.push_back(nullptr);
      else if (constants[i].dtype() == DType::i64)
        in.push_back(&constants[i]);
      else if (elements_.contains(id))
        in.push_back(&elements_.at(id));
      else
        return;
    }
    std::vector<Type> out;
    for (const ValueId id : node.outputs) {
      if (id == ValueId::none || !takes(element_count(graph_.value(id).type.shape))) return;
      out.push_back({DType::i64, graph_.value(id).type.shape});
    }
    if (node.op == "Cast") {
      elements_[node.outputs[0]] = *in[0];
      return;
    }
    Node mover = node;
    mover.attributes.erase("value");  // Pad fills with 0 then
    const std::vector<Array> moved = ops::find(node.op)->evaluate(mover, in, out);
    for (std::size_t i = 0; i < moved.size(); ++i) elements_[node.outputs[i]] = moved[i];
  }

  // Returns the codes (see kInput) of a value's elements: each code says which element of an input the value's element
  // is a copy of. The result is empty if Trace did not follow the value, or has followed too many elements already.
  std::vector<std::int64_t> elements_of(ValueId id) {
    const auto found = elements_.find(id);
    const bool taken = found != elements_.end() && takes(element_count(found->second.shape()));
    return taken ? found->second.integers() : std::vector<std::int64_t>();
  }

 private:
  // Takes `elements` from the number of elements that Trace may still keep, and returns true. Returns false, and takes
  // nothing, if they are too many.
  bool takes(std::int64_t elements) {
    if (elements > std::min(kMostElements, left_)) return false;
    left_ -= elements;
    return true;
  }

  const Graph &graph_;
  std::int64_t left_ = kMostOfAll;
  std::map<ValueId, Array> elements_;
};

std::vector<IndexChecks::Operand> IndexChecks::operands_of(const Graph &graph, const Node &node) {
  const auto shape = [&](std::size_t i) -> const Shape & { return graph.value(node.inputs[i]).type.shape; };
  if (one_of(node.op, {"Gather", "GatherElements"})) {
    const std::size_t axis = resolve_axis(node.attributes.integer("axis", 0), shape(0).size(), node.name);
    return {{1, What::index, shape(0)[axis]}};
  }
  if (node.op == "CrossEntropy") return {{1, What::label, shape(0)[1]}};
  if (one_of(node.op, {"LinearCrossEntropy", "LinearCrossEntropyGrad"}))
    return {{2, What::label, shape(1)[node.attributes.integer("trans_w", 1) != 0 ? 0 : 1]}};
  if (node.op != "CtcLoss") return {};
  std::vector<Operand> operands = {{1, What::label, shape(0)[2]}};
  if (node.inputs.size() > 2 && node.inputs[2] != ValueId::none) operands.push_back({2, What::length, shape(0)[1] + 1});
  return operands;
}

IndexChecks::IndexChecks(const Graph &graph, std::vector<ValueId> inputs) : graph_(graph), inputs_(std::move(inputs)) {
  Trace trace(graph, inputs_);
  for (const Node &node : graph.nodes()) {
    trace.pass(node);
    for (const Operand &operand : operands_of(graph, node)) add_check(trace, node, operand);
  }
}

void IndexChecks::add_check(Trace &trace, const Node &node, const Operand &operand) {
  const bool labels = operand.what == What::label;
  const std::vector<std::int64_t> elements = trace.elements_of(node.inputs.at(operand.at));
  for (std::size_t input = 0; input < inputs_.size(); ++input) {
    Check check{.input = input,
                .read_from = graph_.value(node.inputs[0]).name,
                .what = operand.what,
                .lowest = operand.what == What::index ? -operand.extent : 0,
                .beyond = operand.extent,
                .ignored = {},
                .blank = {},
                .elements = {},
                .rows = {}};
    if (labels && node.attributes.has("ignore_index")) check.ignored = node.attributes.integer("ignore_index", 0);
    if (labels && node.op == "CtcLoss") check.blank = node.attributes.integer("blank", 0);
    for (std::size_t row = 0; row < elements.size(); ++row) {
      if (elements[row] / kInput != static_cast<std::int64_t>(input + 1)) continue;
      check.elements.push_back(static_cast<std::uint32_t>(elements[row] % kInput));
      check.rows.push_back(static_cast<std::uint32_t>(row));
    }
    if (!check.elements.empty()) checks_.push_back(std::move(check));
  }
}

std::optional<IndexChecks::Fault> IndexChecks::fault_in(std::size_t input, const void *data) const {
  const bool wide = graph_.value(inputs_[input]).type.dtype == DType::i64;
  for (std::size_t c = 0; c < checks_.size(); ++c) {
    const Check &check = checks_[c];
    if (check.input != input) continue;
    for (std::size_t i = 0; i < check.elements.size(); ++i) {
      const std::int64_t value =
          wide ? index_at<std::int64_t>(data, check.elements[i]) : index_at<std::int32_t>(data, check.elements[i]);
      const bool legal = value >= check.lowest && value < check.beyond && value != check.blank;
      if (!legal && value != check.ignored) return Fault{c, value, check.rows[i]};
    }
  }
  return std::nullopt;
}

void IndexChecks::refuse(const Fault &fault) const {
  const Check &check = checks_[fault.check];
  const std::string &input = graph_.value(inputs_[check.input]).name;
  const std::int64_t most = check.beyond - 1;
  if (check.what == What::length)
    fail(Code::arg, input, "input {} holds length {} for sample {}, which is outside 0..{}", input, fault.value,
         fault.row, most);
  if (check.what == What::index)
    fail(Code::arg, input, "input {} holds {}, but {} has {} entries: index {} is outside 0..{}", input, fault.value,
         check.read_from, check.beyond, fault.value, most);
  const std::string label = fmt::format("input {} holds label {} of row {}", input, fault.value, fault.row);
  if (fault.value == check.blank) fail(Code::arg, input, "{}, which is the blank", label);
  if (check.ignored && (*check.ignored < 0 || *check.ignored > most))
    fail(Code::arg, input, "{}, which is outside 0..{} and not {}, the label to ignore", label, most, *check.ignored);
  fail(Code::arg, input, "{}, which is outside 0..{}", label, most);
}

}  // namespace protrain::session
