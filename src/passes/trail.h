// Trail: the node that computes a value's elements, called the maker, and the nodes between the maker and the value,
// which only move or cast elements. If the maker is a Softmax or Sigmoid, copies of these nodes bring its logits to the
// value's shape, so that a loss can read logits instead of probabilities.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "graph/graph.h"

namespace protrain::passes {

struct Trail {
  std::optional<graph::Node> maker;  // none: the elements come from an input or a parameter
  std::vector<graph::Node> moves;    // the last one first; each has one input
  std::optional<std::size_t> axis;   // the axis of the maker's output that becomes the given axis of the value
  // True if `maker` is a Softmax or LogSoftmax along `axis`.
  bool normalizes_axis = false;
};

// Walks back from `end` through nodes that only move or cast elements, until it meets the maker. Also follows `axis`,
// an axis of `end`, back to the maker. `producer` returns the node that computes a value, or nullptr.
Trail trail_to(const graph::Graph &graph, graph::ValueId end, std::optional<std::size_t> axis,
               const std::function<const graph::Node *(graph::ValueId)> &producer);

}  // namespace protrain::passes
