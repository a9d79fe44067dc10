// Drops nodes that do nothing, and moves Transposes up and Reshapes down so that they meet and cancel.
#include <fmt/format.h>
#include <algorithm>
#include <numeric>

#include "passes/passes.h"
#include "passes/pattern.h"

namespace protrain::passes {

namespace {

using Integers = std::vector<std::int64_t>;
using Simplify = bool (*)(Rewriter &, const Node &);

constexpr int kMostRounds = 12;

bool forward_input(Rewriter &r, const Node &node) { return r.forward(node.outputs[0], node.inputs[0]); }

bool keeps_type(const Rewriter &r, const Node &node, std::size_t input) {
  return r.type(node.inputs[input]) == r.type(node.outputs[0]);
}

bool simplify_reshape(Rewriter &r, const Node &node) {
  if (keeps_type(r, node, 0) && forward_input(r, node)) return true;
  const Node *before = made_by(r, node.inputs[0], "Reshape");
  if (before == nullptr) return false;
  r.become(node, "Reshape", {before->inputs[0]}, node.attributes);
  return true;
}

bool simplify_same_type(Rewriter &r, const Node &node) { return keeps_type(r, node, 0) && forward_input(r, node); }

bool simplify_slice(Rewriter &r, const Node &node) {
  const Integers steps = node.attributes.integers("steps");
  return std::ranges::all_of(steps, [](std::int64_t step) { return step == 1; }) && simplify_same_type(r, node);
}

bool simplify_single(Rewriter &r, const Node &node) { return node.inputs.size() == 1 && simplify_same_type(r, node); }

// Drops an operator whose right operand is the neutral element, as in x + 0. With `either_side`, also drops one whose
// left operand is the neutral element, as in 0 + x.
bool drop_neutral(Rewriter &r, const Node &node, double neutral, bool either_side) {
  for (std::size_t i = 0; i < (either_side ? 2 : 1); ++i)
    if (uniform(r, node.inputs[1 - i]) == neutral && keeps_type(r, node, i) &&
        r.forward(node.outputs[0], node.inputs[i]))
      return true;
  return false;
}
bool simplify_sum(Rewriter &r, const Node &node) { return drop_neutral(r, node, 0, node.op == "Add"); }
bool simplify_product(Rewriter &r, const Node &node) { return drop_neutral(r, node, 1, node.op == "Mul"); }

bool simplify_where(Rewriter &r, const Node &node) {
  const auto condition = uniform(r, node.inputs[0]);
  if (!condition) return false;
  const std::size_t chosen = *condition != 0 ? 1 : 2;
  return keeps_type(r, node, chosen) && r.forward(node.outputs[0], node.inputs[chosen]);
}

// Returns for each axis of `to` the axes of `from` that were merged into it. Returns an empty optional if an axis of
// `from` was split.
std::optional<std::vector<Integers>> merged_axes(const Shape &from, const Shape &to) {
  std::vector<Integers> groups(to.size());
  std::size_t at = 0;
  for (std::size_t i = 0; i < to.size(); ++i) {
    std::int64_t product = 1;
    while (product != to[i] && at < from.size()) {
      product *= from[at];
      groups[i].push_back(static_cast<std::int64_t>(at++));
    }
    if (product != to[i]) return std::nullopt;
  }
  for (; at < from.size(); ++at) {
    if (from[at] != 1 || groups.empty()) return std::nullopt;
    groups.back().push_back(static_cast<std::int64_t>(at));
  }
  return groups;
}

// Turns Transpose(Reshape(x)) into Reshape(Transpose(x)) if the Reshape only merges axes.
bool transpose_before_reshape(Rewriter &r, const Node &node, const Node &reshape) {
  const Shape from = r.shape(reshape.inputs[0]);
  const bool empty = std::ranges::find(from, 0) != from.end();
  const auto groups = empty ? std::nullopt : merged_axes(from, r.shape(reshape.outputs[0]));
  if (!groups) return false;
  Integers perm;
  for (std::int64_t axis : node.attributes.integers("perm")) {
    const Integers &group = (*groups)[static_cast<std::size_t>(axis)];
    perm.insert(perm.end(), group.begin(), group.end());
  }
  const Shape shape = r.shape(node.outputs[0]);
  r.become(node, "Reshape", {r.emit("Transpose", {reshape.inputs[0]}, {{"perm", perm}})}, {{"shape", shape}});
  return true;
}

// True if a Transpose moves only axes of length 1. Such a Transpose leaves the elements in memory where they are.
bool moves_nothing(const Shape &shape, const Integers &perm) {
  std::int64_t last = -1;
  for (std::int64_t axis : perm) {
    if (shape[static_cast<std::size_t>(axis)] == 1) continue;
    if (axis < last) return false;
    last = axis;
  }
  return true;
}

bool simplify_transpose(Rewriter &r, const Node &node) {
  const Integers perm = node.attributes.integers("perm");
  const ValueId x = node.inputs[0];
  if (std::ranges::is_sorted(perm) && forward_input(r, node)) return true;
  if (moves_nothing(r.shape(x), perm)) {
    r.become(node, "Reshape", {x}, {{"shape", r.shape(node.outputs[0])}});
    return true;
  }
  if (const Node *before = made_by(r, x, "Transpose")) {
    const Integers first = before->attributes.integers("perm");
    Integers both;
    for (std::int64_t axis : perm) both.push_back(first.at(static_cast<std::size_t>(axis)));
    r.become(node, "Transpose", {before->inputs[0]}, {{"perm", both}});
    return true;
  }
  if (const Node *reshape = made_by(r, x, "Reshape")) return transpose_before_reshape(r, node, *reshape);
  const Node *expand = made_for_one(r, x, "Expand");
  if (expand == nullptr || r.shape(expand->inputs[0]).size() != perm.size()) return false;
  const Shape shape = r.shape(node.outputs[0]);
  r.become(node, "Expand", {r.emit("Transpose", {expand->inputs[0]}, {{"perm", perm}})}, {{"shape", shape}});
  return true;
}

using Simplifications = std::map<std::string_view, Simplify>;

// The table is never destroyed, because a thread may still make a session while the process exits.
const Simplifications &kSimplifications = *new const Simplifications{
    {"Add", simplify_sum},
    {"Cast", simplify_same_type},
    {"Concat", simplify_single},
    {"Div", simplify_product},
    {"Expand", simplify_same_type},
    {"Mul", simplify_product},
    {"Pow", simplify_product},
    {"Reshape", simplify_reshape},
    {"Slice", simplify_slice},
    {"Split", [](Rewriter &r, const Node &node) { return node.outputs.size() == 1 && simplify_same_type(r, node); }},
    {"Sub", simplify_sum},
    {"Transpose", simplify_transpose},
    {"Where", simplify_where},
};

// Eliminates common subexpressions: finds nodes that have the same operator, attributes and inputs as an earlier node.
class EqualNodes {
 public:
  // Makes the readers of the node's outputs read the outputs of an equal node instead. Returns false if there is no
  // equal node.
  bool replace(Rewriter &r, const Node &node) {
    std::string key = fmt::format("{}({})", node.op, node.attributes.print());
    for (const auto &[name, attribute] : node.attributes.items())
      if (std::holds_alternative<graph::Array>(attribute)) return false;
    for (ValueId in : node.inputs) key += fmt::format(" {}", static_cast<std::int32_t>(in));
    const auto [at, fresh] = met_.try_emplace(std::move(key), node.outputs);
    if (fresh) return false;
    const std::vector<ValueId> twin = at->second;
    if (twin.size() != node.outputs.size() || !stands_for(r, twin, node.outputs)) {
      at->second = node.outputs;
      return false;
    }
    for (std::size_t i = 0; i < twin.size(); ++i)
      if (r.is_read(node, i)) r.forward(node.outputs[i], twin[i]);
    return true;
  }

 private:
  // `twin` holds the outputs of an earlier node that is equal to the node with `outputs`. True if the readers of
  // `outputs` can read `twin` instead. False if the earlier node has been dropped since, or if one of `outputs` is an
  // output of the graph.
  static bool stands_for(const Rewriter &r, const std::vector<ValueId> &twin, const std::vector<ValueId> &outputs) {
    for (std::size_t i = 0; i < twin.size(); ++i) {
      const bool unread = outputs[i] == ValueId::none || r.uses(outputs[i]) == 0;
      if (!unread && (r.producer(twin[i]) == nullptr || r.is_output(outputs[i]))) return false;
    }
    return true;
  }

  std::map<std::string, std::vector<ValueId>> met_;
};

bool one_round(Graph &graph) {
  Rewriter rewriter(graph);
  EqualNodes equals;
  rewriter.walk([&](Node &node) {
    const auto found = kSimplifications.find(node.op);
    if (found != kSimplifications.end() && found->second(rewriter, node)) return;
    if (!equals.replace(rewriter, node)) rewriter.keep(std::move(node));
  });
  return rewriter.changed();
}

}  // namespace

void clean_up(Graph &graph) {
  for (int round = 0; round < kMostRounds && one_round(graph); ++round) {
  }
}

}  // namespace protrain::passes
