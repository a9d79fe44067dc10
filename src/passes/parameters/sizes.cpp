#include "passes/parameters/sizes.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>

#include "base/error.h"
#include "passes/parameters/load.h"

namespace protrain::passes {

namespace {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Origin;
using graph::ValueId;

constexpr std::int64_t kMostSizes = 1 << 10;  // elements; weights are mostly larger

struct Sized {
  std::string_view op;
  std::size_t first, last;  // inputs that give sizes, places, numbers of iterations or conditions
};
constexpr auto kSized = std::to_array<Sized>({{"ConstantOfShape", 0, 0},
                                              {"Dropout", 1, 1},
                                              {"Expand", 1, 1},
                                              {"If", 0, 0},
                                              {"Loop", 0, 1},
                                              {"OneHot", 1, 1},
                                              {"Pad", 1, 1},
                                              {"Range", 0, 2},
                                              {"Reshape", 1, 1},
                                              {"Resize", 1, 3},
                                              {"Slice", 1, 4},
                                              {"Split", 1, 1},
                                              {"Tile", 1, 1},
                                              {"TopK", 1, 1}});

// Operators with which exporters compute sizes and conditions.
constexpr auto kArithmetic = std::to_array<std::string_view>({"Add",
                                                              "And",
                                                              "Cast",
                                                              "CastLike",
                                                              "Ceil",
                                                              "Concat",
                                                              "DequantizeLinear",
                                                              "Div",
                                                              "Equal",
                                                              "Floor",
                                                              "Gather",
                                                              "Greater",
                                                              "GreaterOrEqual",
                                                              "Identity",
                                                              "Less",
                                                              "LessOrEqual",
                                                              "Max",
                                                              "Min",
                                                              "Mul",
                                                              "Neg",
                                                              "Not",
                                                              "Or",
                                                              "QuantizeLinear",
                                                              "Round",
                                                              "Slice",
                                                              "Sqrt",
                                                              "Squeeze",
                                                              "Sub",
                                                              "Unsqueeze"});
static_assert(std::ranges::is_sorted(kArithmetic));

// Follows sizes back to the initializers that they come from.
class Sizes {
 public:
  explicit Sizes(const Graph &graph) : graph_(graph) {
    for (const Node &node : graph.nodes())
      for (const Sized &sized : kSized)
        if (node.op == sized.op)
          for (std::size_t i = sized.first; i <= sized.last && i < node.inputs.size(); ++i)
            follow(node.inputs[i], node);
  }

  // Returns the initializers that sizes are computed from, each with the node that reads such a size.
  const std::map<ValueId, NodeId> &found() const { return found_; }

 private:
  void follow(ValueId id, const Node &sized);

  const Graph &graph_;
  std::set<ValueId> seen_;
  std::map<ValueId, NodeId> found_;
};

void Sizes::follow(ValueId id, const Node &sized) {
  std::vector<ValueId> pending = {id};
  while (!pending.empty()) {
    const ValueId at = pending.back();
    pending.pop_back();
    if (at == ValueId::none || !seen_.insert(at).second) continue;
    const graph::Value &value = graph_.value(at);
    if (value.origin == Origin::initializer && element_count(value.type.shape) <= kMostSizes)
      found_.emplace(at, graph_.value(sized.outputs.at(0)).producer);
    if (value.producer == NodeId::none) continue;
    const Node &maker = graph_.node(value.producer);
    if (std::ranges::binary_search(kArithmetic, maker.op))
      pending.insert(pending.end(), maker.inputs.begin(), maker.inputs.end());
  }
}

}  // namespace

std::vector<Finding> settle_sizes(Graph &graph, const LoadInitializer &load) {
  std::vector<Finding> findings;
  const Sizes sizes(graph);
  for (const auto &[id, sized] : sizes.found()) {
    const Node &node = graph.node(sized);
    graph::Value &value = graph.value(id);
    const graph::Array array = load_if_there(load, value.name);
    if (array.dtype() == DType::none) continue;
    value.array = array.compact();
    value.origin = Origin::constant;
    findings.push_back({.initializer = value.name, .reason = "is a size, a place or a condition for " + node.place()});
  }
  return findings;
}

}  // namespace protrain::passes
