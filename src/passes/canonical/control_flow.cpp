// Rules for If, Loop and Scan. They replace such a node by copies of the nodes of its bodies. An If becomes its taken
// branch, or both branches if its condition depends on data. A Loop or Scan becomes one copy of its body for each
// iteration. So the three operators need no gradients of their own.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "passes/canonical/canonical.h"

namespace protrain::passes {

namespace {

using graph::Body;
using Integers = std::vector<std::int64_t>;
using ValueIds = std::vector<ValueId>;

const Body &body_of(const Canonical &c, const Node &node, const char *attribute) {
  require(node.attributes.has(attribute), Code::graph, node.name, "{} without {}", node.op, attribute);
  return c.bodies()->at(static_cast<std::size_t>(node.attributes.integer(attribute, 0)));
}

std::size_t captured_count(const Body &body) { return body.graph.inputs.size() - body.own; }

// Returns the one number that a value holds. `what` names the value in the error if the number depends on data.
std::int64_t known_number(const Canonical &c, ValueId id, const char *what) {
  const graph::Array *array = c.constant_of(id);
  const graph::Value &value = c.rewriter().value(id);
  require(array != nullptr || value.origin != graph::Origin::input, Code::unsupported, "",
          "the {} is the input {}; bind it with constant={}=VALUE", what, value.name, value.name);
  require(array != nullptr, Code::unsupported, "", "the {} depends on data; it must be known before the first step",
          what);
  require(element_count(array->shape()) == 1, Code::shape, "", "the {} is {}; expected one element", what,
          to_text(array->type()));
  return array->integers()[0];
}

// Replaces the outputs of `node` by `results`. Leaves an output alone if its result is ValueId::none.
void give(Canonical &c, const Node &node, const ValueIds &results) {
  require(node.outputs.size() <= results.size(), Code::graph, node.name, "{} outputs, and its body gives {}",
          node.outputs.size(), results.size());
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == ValueId::none || results[i] == ValueId::none) continue;
    c.pass(with_output(node, i), c.rewriter().resolve(results[i]));  // an earlier pass() may have replaced it
  }
}

// Computes both branches and chooses between their results, which must have the same types.
ValueIds either(Canonical &c, const Node &node, const ValueIds &yes, const ValueIds &no) {
  require(element_count(c.shape(node.inputs[0])) == 1, Code::shape, "", "the condition is {}; expected one element",
          to_text(c.type(node.inputs[0])));
  const ValueId condition = c.reshape(node.inputs[0], {});
  ValueIds results;
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId one = c.rewriter().resolve(yes.at(i)), other = c.rewriter().resolve(no.at(i));
    const Type left = c.type(one), right = c.type(other);
    require(left == right && left.dtype != DType::none, Code::unsupported, "",
            "the condition depends on data, and its branches give {} and {}; it must be known before the first step",
            to_text(left), to_text(right));
    results.push_back(c.add("Where", {condition, one, other}));
  }
  return results;
}

bool if_then_else(Canonical &c, Node &node) {
  if (c.bodies() == nullptr) return false;
  const Body &no = body_of(c, node, "else_branch"), &yes = body_of(c, node, "then_branch");
  require(no.own == 0 && yes.own == 0, Code::graph, node.name, "a branch of If has inputs; it may only read values");
  const auto begin = node.inputs.begin() + 1, middle = begin + static_cast<std::ptrdiff_t>(captured_count(no));
  const std::string &name = node.subject();
  const ValueIds of_no(begin, middle), of_yes(middle, node.inputs.end());
  const bool computed = c.rewriter().value(node.inputs.at(0)).origin == graph::Origin::node;
  if (computed && c.constant_of(node.inputs[0]) == nullptr) {
    const ValueIds left = c.insert(yes, of_yes, name + "/then");
    give(c, node, either(c, node, left, c.insert(no, of_no, name + "/else")));
    return true;
  }
  const bool condition = known_number(c, node.inputs[0], "condition") != 0;
  give(c, node, c.insert(condition ? yes : no, condition ? of_yes : of_no, name));
  return true;
}

// Returns element i of the node's attribute `list`, such as scan_output_axes. Returns 0 if the attribute is absent, as
// in a Loop.
std::int64_t setting(const Node &node, const char *list, std::size_t i) {
  const Integers values = node.attributes.integers(list);
  require(values.empty() || i < values.size(), Code::graph, node.name, "{} has {} elements", list, values.size());
  return values.empty() ? 0 : values[i];
}

// Joins the results of all iterations along a new axis, in reverse order if `backward`.
ValueId stacked(Canonical &c, const Node &node, ValueIds parts, std::int64_t axis, bool backward) {
  require(!parts.empty(), Code::unsupported, "", "it has no iteration, so the shape of what it stacks is not known");
  if (backward) std::ranges::reverse(parts);
  Integers shape = c.shape(parts[0]);
  const std::size_t at = resolve_axis(axis, shape.size() + 1, node.name);
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(at), 1);
  for (ValueId &part : parts) {
    require(c.type(part).dtype != DType::none, Code::unsupported, "",
            "the type of what its body computes is not known");
    part = c.reshape(part, shape);
  }
  return parts.size() == 1 ? parts[0] : c.add("Concat", parts, {{"axis", static_cast<std::int64_t>(at)}});
}

// The progress of unrolling a Loop or Scan, whose iterations are emitted one by one.
struct Unrolled {
  const Node &node;
  const Body &body;
  ValueIds carried;              // the values that an iteration hands to the next
  std::vector<ValueIds> stacks;  // for each stacked output, its part from each iteration so far
};

// Emits the nodes of iteration number `iteration`. The inputs of the body are `first`, the carried values and `last`,
// in this order. The outputs of the body are the next condition (only in a Loop), the new carried values and the values
// to stack, in this order. Returns the list of what comes before the new carried values: the condition, or nothing.
ValueIds iterate(Canonical &c, Unrolled &loop, const ValueIds &first, const ValueIds &last, std::int64_t iteration) {
  ValueIds inputs = first;
  inputs.insert(inputs.end(), loop.carried.begin(), loop.carried.end());
  inputs.insert(inputs.end(), last.begin(), last.end());
  const std::string &name = loop.node.subject();
  const ValueIds results = c.insert(loop.body, inputs, fmt::format("{}/{}", name, iteration));
  const std::size_t ahead = results.size() - loop.carried.size() - loop.stacks.size();
  const auto begin = results.begin() + static_cast<std::ptrdiff_t>(ahead);
  const auto behind = begin + static_cast<std::ptrdiff_t>(loop.carried.size());
  loop.carried.assign(begin, behind);
  for (std::size_t i = 0; i < loop.stacks.size(); ++i) loop.stacks[i].push_back(behind[static_cast<std::ptrdiff_t>(i)]);
  return {results.begin(), begin};
}

// Replaces the outputs of the node by the carried values and the stacked values. Does not stack values that nothing
// reads.
void give_all(Canonical &c, const Unrolled &loop) {
  const Node &node = loop.node;
  ValueIds results = loop.carried;
  for (std::size_t i = 0; i < loop.stacks.size(); ++i) {
    const bool is_read = c.rewriter().is_read(node, results.size());
    results.push_back(!is_read ? ValueId::none
                               : stacked(c, node, loop.stacks[i], setting(node, "scan_output_axes", i),
                                         setting(node, "scan_output_directions", i) != 0));
  }
  give(c, node, results);
}

// Unrolls a Loop. Its inputs are a limit for the iterations, a condition, and the carried values. The body's inputs are
// the iteration's number, the condition and the carried values. The body's outputs are the next condition, the carried
// values and the values to stack.
bool loop(Canonical &c, Node &node) {
  if (c.bodies() == nullptr) return false;
  const Body &body = body_of(c, node, "body");
  const std::size_t captured = captured_count(body), outputs = body.graph.outputs.size();
  node.inputs.resize(std::max(node.inputs.size(), body.own), ValueId::none);
  require(body.own >= 2 && node.inputs.size() == body.own + captured && outputs + 1 >= body.own, Code::graph, node.name,
          "a Loop with {} inputs, whose body has {} inputs and {} outputs", node.inputs.size() - captured, body.own,
          outputs);
  const auto carried = node.inputs.begin() + 2, outside = node.inputs.end() - static_cast<std::ptrdiff_t>(captured);
  Unrolled all{node, body, {carried, outside}, std::vector<ValueIds>(outputs + 1 - body.own)};
  const std::int64_t most =
      has(node, 0) ? known_number(c, node.inputs[0], "number of iterations") : std::numeric_limits<std::int64_t>::max();
  bool goes_on = !has(node, 1) || known_number(c, node.inputs[1], "condition") != 0;
  const ValueId yes = c.rewriter().constant(graph::Array::from_integers({DType::boolean, {}}, {1}));
  for (std::int64_t i = 0; goes_on && i < most; ++i) {
    const ValueId number = c.rewriter().constant(graph::Array::from_integers({DType::i64, {}}, {i}));
    const ValueIds next = iterate(c, all, {number, yes}, {outside, node.inputs.end()}, i);
    goes_on = i + 1 < most && known_number(c, next.at(0), "condition for a further iteration") != 0;
  }
  give_all(c, all);
  return true;
}

// Cuts the scan input `x` into one value for each iteration.
ValueIds slices_of(Canonical &c, const Node &node, ValueId x, std::size_t i) {
  Shape shape = c.shape(x);
  const std::size_t axis = resolve_axis(setting(node, "scan_input_axes", i), shape.size(), node.name);
  require(shape[axis] <= static_cast<std::int64_t>(kMostUnrolled), Code::limit, node.name,
          "{} iterations; at most {} nodes can take its place", shape[axis], kMostUnrolled);
  const auto count = static_cast<std::size_t>(shape[axis]);
  ValueIds parts = {x};
  if (count != 1)
    parts = c.add_all("Split", {x}, {{"axis", static_cast<std::int64_t>(axis)}, {"split", Integers(count, 1)}}, count);
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
  for (ValueId &part : parts) part = c.reshape(part, shape);
  if (setting(node, "scan_input_directions", i) != 0) std::ranges::reverse(parts);
  return parts;
}

// Unrolls a Scan. Its inputs are the carried values and the scan inputs. Each iteration gets one slice of each scan
// input.
bool scan(Canonical &c, Node &node) {
  if (c.bodies() == nullptr) return false;
  const Body &body = body_of(c, node, "body");
  const std::size_t captured = captured_count(body), outputs = body.graph.outputs.size();
  const std::int64_t scanned = node.attributes.integer("num_scan_inputs", 0);
  require(scanned >= 1 && static_cast<std::uint64_t>(scanned) <= body.own && node.inputs.size() == body.own + captured,
          Code::graph, node.name, "a Scan with {} inputs, of which it scans {}, whose body has {} inputs",
          node.inputs.size() - captured, scanned, body.own);
  const std::size_t kept = body.own - static_cast<std::size_t>(scanned);
  require(outputs >= kept, Code::graph, node.name, "{} values are carried, and the body has {} outputs", kept, outputs);
  const auto begin = node.inputs.begin(), outside = node.inputs.end() - static_cast<std::ptrdiff_t>(captured);
  Unrolled all{node, body, {begin, begin + static_cast<std::ptrdiff_t>(kept)}, std::vector<ValueIds>(outputs - kept)};
  std::vector<ValueIds> slices;
  for (auto x = begin + static_cast<std::ptrdiff_t>(kept); x != outside; ++x)
    slices.push_back(slices_of(c, node, *x, slices.size()));
  require(std::ranges::all_of(slices, [&](const ValueIds &of) { return of.size() == slices[0].size(); }), Code::shape,
          node.name, "the scanned inputs have different lengths");
  for (std::size_t i = 0; i < slices[0].size(); ++i) {
    ValueIds last;
    for (const ValueIds &of : slices) last.push_back(of[i]);
    last.insert(last.end(), outside, node.inputs.end());
    iterate(c, all, {}, last, static_cast<std::int64_t>(i));
  }
  give_all(c, all);
  return true;
}

}  // namespace

Rules control_flow_rules() { return {{"If", if_then_else}, {"Loop", loop}, {"Scan", scan}}; }

}  // namespace protrain::passes
