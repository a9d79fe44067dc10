#include "passes/canonical/node_description.h"

#include "passes/canonical/canonical.h"

namespace protrain::passes {

namespace {

constexpr std::int64_t kMostElements = 64;

NodeDescription look_at(const Graph &graph, const Node &node) {
  NodeDescription seen;
  seen.op = node.op;
  seen.name = node.subject();
  seen.attributes = node.attributes;
  for (ValueId in : node.inputs) {
    if (in == ValueId::none) continue;
    const graph::Value &value = graph.value(in);
    NodeDescription::Input &input = seen.inputs.emplace_back();
    input.name = value.name;
    input.type = value.type;
    if (value.origin == graph::Origin::constant && is_integer(value.type.dtype) &&
        element_count(value.type.shape) <= kMostElements)
      input.values = value.array.integers();
  }
  return seen;
}

// Thrown to end the walk at the described node.
struct WalkEnd {
  NodeDescription seen;
};

}  // namespace

NodeDescription describe_node(Graph graph, const graph::Bodies &bodies, std::size_t until) {
  graph.drop_dead_nodes();
  FoldBudget budget(graph);
  const double work = budget.work;
  Rewriter rewriter(graph);
  Canonical canonical(rewriter, budget, &bodies);
  std::size_t position = 0;
  NodeDescription seen;
  try {
    rewriter.walk([&](Node &node) {
      const Node as_it_stands = node;
      if (position == until) throw WalkEnd{look_at(graph, as_it_stands)};
      try {
        canonical.visit(node);
      } catch (const Error &error) {
        if (error.code == Code::nomem) throw;
        WalkEnd reached{look_at(graph, as_it_stands)};
        reached.seen.error = error;
        throw reached;
      }
      ++position;
    });
  } catch (WalkEnd &reached) {
    seen = std::move(reached.seen);
  }
  seen.position = position;
  seen.work = work - budget.work;
  seen.inserted = kMostUnrolled - budget.nodes;
  return seen;
}

}  // namespace protrain::passes
