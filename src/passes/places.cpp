#include "passes/places.h"

#include <fmt/format.h>
#include <algorithm>
#include <set>

#include "base/text.h"

namespace protrain::passes {

namespace {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Origin;
using graph::ValueId;

constexpr ValueId kNone = ValueId::none;

// All axes but the last have one element, and the last more.
bool along_last_axis(const Shape &shape) {
  return !shape.empty() && shape.back() > 1 && element_count(shape) == shape.back();
}

// No gradient comes back through integers and truth values; what could not be typed may be anything.
bool may_train(DType dtype) { return is_float(dtype) || dtype == DType::none; }

std::string name_of_node(const Node &node) { return node.name.empty() ? node.op : node.op + " at " + node.name; }

}  // namespace

Places::Places(const Graph &graph) : graph_(graph), kinds_(graph.value_count()), readers_(graph.consumers()) {
  for (std::size_t i = 0; i < kinds_.size(); ++i) {
    const Origin origin = graph.values()[i].origin;
    kinds_[i] = origin == Origin::input ? Kind::data : origin == Origin::initializer ? Kind::stored : Kind::constant;
  }
  for (const Node &node : graph.nodes()) {
    Kind most = Kind::constant;
    for (ValueId in : node.inputs)
      if (in != kNone) most = std::max(most, kind(in));
    for (ValueId out : node.outputs)
      if (out != kNone) kinds_[index(out)] = most;
  }
}

// Whether the node brings the input together with data, or multiplies two stored matrices (both are weights then).
bool Places::meets(const Node &node, std::size_t input) const {
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (i == input || node.inputs[i] == kNone) continue;
    if (kind(node.inputs[i]) == Kind::data) return true;
    if (kind(node.inputs[i]) == Kind::stored && node.op == "MatMul") return true;
  }
  return false;
}

std::vector<Place> Places::of(ValueId initializer) const {
  const bool single = element_count(graph_.value(initializer).type.shape) == 1;
  std::vector<Place> places, pending = {{.value = initializer, .single = single}};
  std::set<ValueId> seen;
  while (!pending.empty()) {
    const Place at = pending.back();
    pending.pop_back();
    if (!seen.insert(at.value).second) continue;
    for (NodeId reader : readers_[index(at.value)]) {
      const Node &node = graph_.node(reader);
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] != at.value) continue;
        Place place = at;
        place.node = reader;
        place.input = i;
        if (meets(node, i)) {
          places.push_back(place);
          continue;
        }
        place.through_gather |= node.op == "Gather" && i == 0;
        place.through_angle |= one_of(node.op, {"Cos", "Sin"});
        for (ValueId out : node.outputs) {
          if (out == kNone || !may_train(graph_.value(out).type.dtype)) continue;
          place.value = out;
          pending.push_back(place);
        }
      }
    }
  }
  std::ranges::sort(places, {}, [](const Place &place) { return std::pair(place.node, place.input); });
  return places;
}

// A matrix, unless it is an outer product of many (angles from positions and frequencies).
bool Places::in_product(const Node &node, const Place &place) const {
  if (place.input == 2) return true;
  const Shape &shape = graph_.value(place.value).type.shape;
  const bool turned = node.attributes.integer(place.input == 0 ? "trans_a" : "trans_b", 0) != 0;
  if (shape.size() < 2) return false;
  const std::int64_t inner = (place.input == 0) != turned ? shape.back() : shape[shape.size() - 2];
  return shape.size() == 2 || inner > 1;
}

bool Places::feeds_only_softmax(const Node &node) const {
  bool found = false;
  std::vector<ValueId> pending = {node.outputs.at(0)};
  while (!pending.empty()) {
    const ValueId at = pending.back();
    pending.pop_back();
    for (NodeId reader : readers_[index(at)]) {
      const Node &next = graph_.node(reader);
      const bool bias = next.op == "FusedAttention" && std::ranges::find(next.inputs, at) == next.inputs.begin() + 3;
      if (next.op == "Softmax" || bias)
        found = true;
      else if (one_of(next.op, {"Add", "Max", "Where", "Reshape", "Transpose", "Cast", "Expand"}))
        pending.push_back(next.outputs.at(0));
      else
        return false;
    }
  }
  return found;
}

bool Places::in_sum(const Node &node, const Place &place, std::string &reason) const {
  if (feeds_only_softmax(node)) {
    reason = "is added to attention scores in " + name_of_node(node);
    return place.through_gather;
  }
  reason = "is added to data in " + name_of_node(node);
  return true;
}

// Weights of classes and elements: all the way to the loss there are but sums, and products with other things.
bool Places::only_weighs_the_loss(const Node &node) const {
  std::set<ValueId> met = {node.outputs.at(0)};
  std::vector<ValueId> pending(met.begin(), met.end());
  while (!pending.empty()) {
    const ValueId at = pending.back();
    pending.pop_back();
    if (readers_[index(at)].empty() && element_count(graph_.value(at).type.shape) != 1) return false;
    for (NodeId reader : readers_[index(at)]) {
      const Node &next = graph_.node(reader);
      const bool square = next.op == "Mul" && next.inputs[0] == next.inputs[1];
      if (square || !one_of(next.op, {"Add", "Sub", "Neg", "Mul", "Div", "Where", "Cast", "Reshape", "Transpose",
                                      "Expand", "Slice", "ReduceSum", "ReduceMean"}))
        return false;
      if (met.insert(next.outputs.at(0)).second) pending.push_back(next.outputs[0]);
    }
  }
  return true;
}

// The other factor was divided by its deviation just before.
bool Places::scales_normalized(const Node &node, std::size_t input) const {
  const auto maker = [&](ValueId id) -> const Node * {
    const NodeId producer = id == kNone ? NodeId::none : graph_.value(id).producer;
    return producer == NodeId::none ? nullptr : &graph_.node(producer);
  };
  const Node *other = maker(node.inputs[1 - input]);
  while (other != nullptr && other->op == "Cast") other = maker(other->inputs[0]);
  if (other == nullptr) return false;
  if (one_of(other->op, {"LayerNormalization", "RMSNormalization"})) return true;
  if (!one_of(other->op, {"Mul", "Div"})) return false;
  const auto width = [&](ValueId id) {
    const Shape &shape = graph_.value(id).type.shape;
    return shape.empty() ? 0 : shape.back();
  };
  const std::int64_t a = width(other->inputs[0]), b = width(other->inputs[1]);
  return (b == 1 && a > 1) || (other->op == "Mul" && a == 1 && b > 1);
}

bool Places::in_scale(const Node &node, const Place &place, std::string &reason) const {
  const Shape &shape = graph_.value(place.value).type.shape;
  if (only_weighs_the_loss(node)) {
    reason = "weighs the loss in " + name_of_node(node);
    return false;
  }
  if (along_last_axis(shape)) {
    reason = "scales the last axis in " + name_of_node(node);
    return true;
  }
  if (scales_before_bias(node, place) || scales_channels(node, place)) {
    reason = "scales channels in " + name_of_node(node);
    return true;
  }
  if (!scales_normalized(node, place.input)) return false;
  reason = "scales what " + name_of_node(node) + " finds normalized";
  return true;
}

// What data takes the place of: a learned bias of scores, or an embedding of what is hidden.
bool Places::in_choice(const Node &node, const Place &place) const {
  if (place.input == 0) return false;
  return feeds_only_softmax(node) ? place.through_gather : along_last_axis(graph_.value(place.value).type.shape);
}

// A number for each channel, and what comes of the product gets another for each: x * scale + bias.
bool Places::scales_before_bias(const Node &node, const Place &place) const {
  const Shape &shape = graph_.value(place.value).type.shape;
  const bool one_axis = std::ranges::count_if(shape, [](std::int64_t dim) { return dim > 1; }) == 1;
  const std::vector<NodeId> &readers = readers_[index(node.outputs.at(0))];
  return one_axis && !readers.empty() && std::ranges::all_of(readers, [&](NodeId reader) {
           const Node &next = graph_.node(reader);
           return next.op == "Add" && std::ranges::any_of(next.inputs, [&](ValueId in) {
                    return kind(in) == Kind::stored && graph_.value(in).type.shape == shape;
                  });
         });
}

// A number for each channel of images, or head of scores, that are there before it (slopes of ALiBi make the heads),
// and as it stands in the file: what is computed of one may be a statistic.
bool Places::scales_channels(const Node &node, const Place &place) const {
  for (ValueId at = place.value; graph_.value(at).producer != NodeId::none;) {
    const Node &maker = graph_.node(graph_.value(at).producer);
    if (!one_of(maker.op, {"Reshape", "Transpose", "Cast"})) return false;
    at = maker.inputs[0];
  }
  const ValueId data = node.inputs[1 - place.input];
  const Shape &shape = graph_.value(place.value).type.shape, &scaled = graph_.value(data).type.shape;
  if (kind(data) != Kind::data || scaled.size() != 4 || shape.size() < 3 || scaled[1] == 1) return false;
  Shape along(shape.size(), 1);
  along[shape.size() - 3] = scaled[1];
  return shape == along;
}

// Cosines and sines picked by position: nothing but products of whole rows with data reads them. (A mask has one number
// for a row.)
bool Places::gathers_angles(const Node &node) const {
  bool found = false;
  std::vector<ValueId> pending = {node.outputs.at(0)};
  while (!pending.empty()) {
    const ValueId at = pending.back();
    pending.pop_back();
    for (NodeId reader : readers_[index(at)]) {
      const Node &next = graph_.node(reader);
      const auto is_data = [&](ValueId in) {
        const Shape &shape = graph_.value(in).type.shape;
        return in == at || (kind(in) == Kind::data && !shape.empty() && shape.back() > 1);
      };
      if (next.op == "Rotary" || (next.op == "Mul" && std::ranges::all_of(next.inputs, is_data)))
        found = true;
      else if (one_of(next.op, {"Reshape", "Transpose", "Cast", "Slice", "Concat"}))
        pending.push_back(next.outputs.at(0));
      else
        return false;
    }
  }
  return found;
}

bool Places::holds_weights(const Place &place, std::string &reason) const {
  const Node &node = graph_.node(place.node);
  const Shape &shape = graph_.value(place.value).type.shape;
  const std::string where = name_of_node(node);
  reason = fmt::format("meets data in {} with shape {}", where, to_text(shape));
  if (place.through_angle) return false;
  if (node.op == "MatMul" || node.op.starts_with("Conv")) {
    reason = (place.input == 2 ? "bias of " : "operand of ") + where;
    return node.op == "MatMul" ? in_product(node, place) : place.input > 0;
  }
  const bool one_column =
      node.op == "Add" && shape == Shape{1} && graph_.value(node.outputs.at(0)).type.shape.back() == 1;
  if (place.single && !one_column) return false;
  if (node.op == "Gather" && place.input == 0) {
    reason = (shape.size() < 2 ? "single numbers are read by " : "table of ") + where;
    return shape.size() > 1 && !gathers_angles(node) && !only_weighs_the_loss(node);
  }
  if (one_of(node.op, {"LayerNormalization", "RMSNormalization"})) {
    reason = (place.input == 2 ? "bias of " : "scale of ") + where;
    return place.input > 0;
  }
  if (node.op == "Add") return in_sum(node, place, reason);
  if (node.op == "Mul") return in_scale(node, place, reason);
  if (node.op == "Where" && in_choice(node, place)) {
    reason = "is chosen by data in " + where;
    return true;
  }
  if (node.op == "FusedAttention" && place.input == 3) {
    reason = "is added to attention scores in " + where;
    return place.through_gather;
  }
  return node.op == "Concat";
}

}  // namespace protrain::passes
