// Places whose values only weigh the loss, or only add to it. Initializers that meet data nowhere else are no
// parameters.
#include <algorithm>
#include <set>
#include <vector>

#include "base/text.h"
#include "passes/parameters/places.h"

namespace protrain::passes {

using graph::Node;
using graph::NodeId;
using graph::ValueId;

// True if the place only adds a constant number to the loss, such as a weight decay term that the exporter computed.
// Training cannot change such a number, so the initializers that it is computed from are no parameters. But one of
// these initializers may be a weight: at another place, a node may combine data with several numbers that come from it.
// Returns false in this case.
bool Places::is_inert(const Place &place) const {
  std::set<ValueId> met;
  for (std::vector<ValueId> pending = {place.value}; !pending.empty();) {
    const ValueId at = pending.back();
    pending.pop_back();
    if (at == ValueId::none || kind(at) != Kind::stored || !met.insert(at).second) continue;
    if (const Node *node = maker(at)) {
      pending.insert(pending.end(), node->inputs.begin(), node->inputs.end());
    } else if (std::ranges::any_of(of(at, Naming::unknown), [&](const Place &other) {
                 return element_count(graph_.value(other.value).type.shape) != 1;
               })) {
      return false;
    }
  }
  return one_of(graph_.node(place.node).op, {"Add", "Sub"}) && only_weighs_the_loss(graph_.node(place.node));
}

// True if the nodes after this one only move, sum or scale its result, as in a loss with weights of classes or
// elements.
bool Places::only_weighs_the_loss(const Node &node) const {
  std::set<ValueId> met = {node.outputs.at(0)};
  std::vector<ValueId> pending(met.begin(), met.end());
  std::vector<const Node *> products;
  while (!pending.empty()) {
    const ValueId at = pending.back();
    pending.pop_back();
    if (readers_[index(at)].empty() && element_count(graph_.value(at).type.shape) != 1) return false;
    for (NodeId reader : readers_[index(at)]) {
      const Node &next = graph_.node(reader);
      if (!one_of(next.op, {"Add", "Sub", "Neg", "Mul", "Div", "Where", "Cast", "Reshape", "Transpose", "Expand",
                            "Slice", "ReduceSum", "ReduceMean"}))
        return false;
      if (one_of(next.op, {"Mul", "Div"})) products.push_back(&next);
      if (met.insert(next.outputs.at(0)).second) pending.push_back(next.outputs[0]);
    }
  }
  // Refuses a product of two values that both depend on the node. Such a product is a square, as in a squared distance
  // from labels.
  return std::ranges::none_of(products, [&](const Node *product) {
    return met.contains(product->inputs[0]) && met.contains(product->inputs[1]);
  });
}

}  // namespace protrain::passes
