#include "passes/parameters/places.h"

#include <fmt/format.h>
#include <algorithm>
#include <set>
#include <tuple>

#include "base/text.h"
#include "passes/parameters/quantised.h"

namespace protrain::passes {

namespace {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Origin;
using graph::ValueId;

constexpr const char *kFixedScale = "what brings inputs to a scale is mostly fixed";
constexpr const char *kNoParameterInPenalty =
    "no parameter is part of this penalty: the exporter computed it from parameters";

// True if only the last axis has more than one element.
bool along_last_axis(const Shape &shape) {
  return !shape.empty() && shape.back() > 1 && element_count(shape) == shape.back();
}

// True if a value of this type may have a gradient: integers and booleans have none. An untyped value may be a float.
bool may_train(DType dtype) { return is_float(dtype) || dtype == DType::none; }

// True for nodes that only move or cast elements.
bool moves(const Node &node) {
  return one_of(node.op, {"Identity", "StopGradient", "Reshape", "Transpose", "Cast", "Squeeze", "Unsqueeze", "Flatten",
                          "Expand"});
}

// True for the operators that LSTM, GRU and RNN become (ops/recurrent.cpp).
bool is_recurrent(const Node &node) { return one_of(node.op, {"LstmSteps", "GruSteps", "RnnSteps"}); }

// Returns the use of a value that is added to attention scores. A learned bias is read from a table by distance, but a
// mask is not. So weights are expected only if a Gather has picked rows of the value.
Use scores_use(const Node &node, const Place &place) {
  Use use{.role = Use::Role::scores,
          .weights = place.through_gather,
          .reason = "is added to attention scores in " + node.place(),
          .doubt = ""};
  if (!place.through_gather) use.doubt = "masks are added to attention scores, and learned biases by position as well";
  return use;
}

// True if a normalization reads the value as its scale or shift. Some normalizations of channels are no longer one
// node, because folding has replaced them by a Mul and an Add.
bool is_norm(const Node &node, const Place &place) {
  if (one_of(node.op, {"BatchNorm", "LayerNormalization", "RMSNormalization"})) return place.input > 0;
  return place.norm && one_of(node.op, {"Mul", "Add"});
}

Use as_norm(const Node &node, const Place &place) {
  const bool lowered = one_of(node.op, {"Mul", "Add"}), bias = lowered ? node.op == "Add" : place.input == 2;
  const bool clear = !place.single || place.naming != Naming::unknown;
  return {
      .role = Use::Role::norm,
      .weights = !place.single || place.naming == Naming::own,
      .reason = (bias ? "bias of " : "scale of ") + std::string(lowered ? "a normalization, in " : "") + node.place(),
      .doubt = clear ? "" : "single numbers are settings of a model, and learned scales as well"};
}

}  // namespace

Places::Places(const Graph &graph)
    : graph_(graph), kinds_(graph.value_count()), rooted_(graph.value_count()), readers_(graph.consumers()) {
  for (std::size_t i = 0; i < kinds_.size(); ++i) {
    const Origin origin = graph.values()[i].origin;
    kinds_[i] = origin == Origin::input ? Kind::data : origin == Origin::initializer ? Kind::stored : Kind::constant;
  }
  for (const Node &node : graph.nodes()) {
    Kind most = node.inputs.empty() ? Kind::data : Kind::constant;  // without inputs it draws random numbers
    bool rooted = false;
    for (ValueId in : node.inputs) {
      if (in == ValueId::none) continue;
      most = std::max(most, kind(in));
      rooted = rooted || rooted_[index(in)] || (node.op == "Sqrt" && element_count(graph.value(in).type.shape) > 1);
    }
    for (ValueId out : node.outputs) {
      if (out == ValueId::none) continue;
      kinds_[index(out)] = most;
      rooted_[index(out)] = rooted && most == Kind::stored;
    }
  }
}

const Node *Places::maker(ValueId id) const {
  const NodeId producer = id == ValueId::none ? NodeId::none : graph_.value(id).producer;
  return producer == NodeId::none ? nullptr : &graph_.node(producer);
}

// True if the node combines the input with data, or multiplies it by another stored matrix (then both are weights).
bool Places::meets(const Node &node, std::size_t input) const {
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (i == input || node.inputs[i] == ValueId::none) continue;
    if (kind(node.inputs[i]) == Kind::data) return true;
    if (kind(node.inputs[i]) == Kind::stored && node.op == "MatMul") return true;
  }
  return false;
}

std::vector<Place> Places::of(ValueId initializer, Naming naming) const {
  const graph::Value &value = graph_.value(initializer);
  const bool single = element_count(value.type.shape) == 1;
  std::vector<Place> places;
  std::vector<Place> pending = {
      {.value = initializer, .initializer = initializer, .single = single, .norm = value.norm, .naming = naming}};
  std::set<std::tuple<ValueId, bool, bool, bool, bool>> seen;  // a value is followed once for each combination of flags
  while (!pending.empty()) {
    const Place at = pending.back();
    pending.pop_back();
    if (!seen.insert({at.value, at.through_gather, at.through_angle, at.through_root, at.beside_root}).second) continue;
    for (NodeId reader : readers_[index(at.value)]) {
      const Node &node = graph_.node(reader);
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] != at.value || is_scale(node, i)) continue;
        Place place = at;
        place.node = reader;
        place.input = i;
        if (meets(node, i)) {
          places.push_back(place);
          continue;
        }
        place.through_gather |= node.op == "Gather" && i == 0;
        place.through_angle |= one_of(node.op, {"Cos", "Sin"});
        place.through_root |= node.op == "Sqrt";
        const ValueId other = node.inputs.size() == 2 ? node.inputs[1 - i] : ValueId::none;
        place.beside_root |= one_of(node.op, {"Mul", "Div"}) && other != ValueId::none && rooted_[index(other)];
        for (ValueId out : node.outputs) {
          if (out == ValueId::none || !may_train(graph_.value(out).type.dtype)) continue;
          place.value = out;
          pending.push_back(place);
        }
      }
    }
  }
  std::ranges::sort(places, {}, [](const Place &place) { return std::pair(place.node, place.input); });
  return places;
}

// Returns the use as an operand of a product. A matrix is a weight, unless the product is an outer product or computes
// angles from positions and frequencies.
Use Places::as_operand(const Node &node, const Place &place) const {
  const std::string where = node.place();
  const bool bias = place.input == 2;
  Use use{.role = bias ? Use::Role::bias : Use::Role::operand,
          .weights = true,
          .reason = (bias ? "bias of " : "operand of ") + where,
          .doubt = ""};
  use.as_kept = graph_.value(place.value).producer == NodeId::none &&
                (bias || node.op != "MatMul" || node.attributes.integer("trans_b", 0) != 0);
  use.recurrent = feeds_recurrent(node);
  use.doubt = doubt_of_result(node);
  if (bias) return use;
  if (node.op != "MatMul") {
    use.weights = place.input > 0;
    return use;
  }
  const Shape &shape = graph_.value(place.value).type.shape;
  if (place.single && element_count(shape) > 1) {
    use.weights = place.naming == Naming::own;
    use.doubt = "a first state is mostly one constant number, and a learned one as well";
    return use;
  }
  const bool transposed = node.attributes.integer(place.input == 0 ? "trans_a" : "trans_b", 0) != 0;
  if (shape.size() >= 2) {
    const std::int64_t inner = (place.input == 0) != transposed ? shape.back() : shape[shape.size() - 2];
    use.weights = shape.size() == 2 || inner > 1;
  } else {
    use.weights = false;
  }
  if (use.weights && feeds_sine_and_cosine(node)) {
    use.weights = false;
    use.reason = "makes angles in " + where;
    use.doubt = "frequencies of features are mostly fixed, and some are learned";
  }
  return use;
}

// True if a recurrent layer reads the product's result.
bool Places::feeds_recurrent(const Node &product) const {
  return std::ranges::any_of(readers_[index(product.outputs.at(0))],
                             [&](NodeId reader) { return is_recurrent(graph_.node(reader)); });
}

// Returns the use of a value that a recurrent layer reads: as its recurrent weights, as its bias or peepholes, or as
// the state before its first step.
Use Places::as_recurrent(const Node &node, const Place &place) const {
  const std::string where = node.place();
  if (place.input == 1 || place.input == 4)
    return {.role = place.input == 1 ? Use::Role::operand : Use::Role::bias,
            .weights = true,
            .recurrent = true,
            .reason = (place.input == 1 ? "recurrent weights of " : "bias or peepholes of ") + where,
            .doubt = ""};
  return {.role = Use::Role::choice,
          .weights = place.naming == Naming::own,
          .reason = "is the first state of " + where,
          .doubt = "first states are mostly constants, and learned ones as well"};
}

Use Places::as_table(const Node &node, const Place &place) const {
  const Shape &shape = graph_.value(place.value).type.shape;
  Use use{.role = Use::Role::table,
          .weights = shape.size() > 1,
          .reason = (shape.size() < 2 ? "single numbers are read by " : "table of ") + node.place(),
          .doubt = ""};
  if (use.weights && only_weighs_the_loss(node)) {
    use.weights = false;
  } else if (use.weights && gathers_angles(node)) {
    use.weights = false;
    use.doubt = "its rows only multiply data, as cosines of positions do, and learned gates as well";
  }
  return use;
}

// True if the place's value is the bias of a product with stored weights: it has one number for each output of the
// product, and is added to the product's result.
bool Places::is_bias(const Node &node, const Place &place) const {
  const Node *other = maker(node.inputs[1 - place.input]);
  while (other != nullptr && moves(*other)) other = maker(other->inputs[0]);
  if (other == nullptr || !(other->op == "MatMul" || other->op.starts_with("Conv"))) return false;
  const bool weighed =
      std::ranges::any_of(other->inputs, [&](ValueId in) { return in != ValueId::none && kind(in) != Kind::data; });
  const Shape &shape = graph_.value(place.value).type.shape, &made = graph_.value(node.outputs.at(0)).type.shape;
  if (!weighed || made.empty()) return false;
  const std::int64_t outputs = other->op == "MatMul" ? made.back() : made.size() > 1 ? made[1] : 0;
  const bool last = shape.empty() || shape.back() == element_count(shape);
  return element_count(shape) == outputs && (last || other->op != "MatMul");
}

// True if this Softmax is a part of attention: its input comes from a matrix product of data with data, or its result
// is a factor of such a product.
bool Places::is_attention(const Node &softmax) const {
  std::set<ValueId> met;
  for (std::vector<ValueId> pending = {softmax.inputs.at(0)}; !pending.empty();) {
    const ValueId at = pending.back();
    pending.pop_back();
    const Node *node = maker(at);
    if (node == nullptr || !met.insert(at).second) continue;
    if (node->op == "MatMul" && kind(node->inputs[0]) == Kind::data && kind(node->inputs[1]) == Kind::data) return true;
    if (moves(*node) || one_of(node->op, {"Add", "Sub", "Mul", "Div", "Where", "Max", "Min", "Clip", "Tanh", "Slice"}))
      for (ValueId in : node->inputs)
        if (in != ValueId::none) pending.push_back(in);
  }
  for (std::vector<ValueId> pending = {softmax.outputs.at(0)}; !pending.empty();) {
    const ValueId at = pending.back();
    pending.pop_back();
    if (!met.insert(at).second) continue;
    for (NodeId reader : readers_[index(at)]) {
      const Node &next = graph_.node(reader);
      if (next.op == "MatMul" &&
          std::ranges::all_of(next.inputs, [&](ValueId in) { return in != ValueId::none && kind(in) == Kind::data; }))
        return true;
      if (moves(next) || one_of(next.op, {"Where", "Mul"})) pending.push_back(next.outputs.at(0));
    }
  }
  return false;
}

// Follows the node's result through its readers. True if all ways end at readers that `judge` calls an end, and there
// is at least one.
bool Places::leads_to_ends(const Node &node, const std::function<Reader(const Node &, ValueId)> &judge) const {
  bool found = false;
  std::set<ValueId> met;
  std::vector<ValueId> pending = {node.outputs.at(0)};
  while (!pending.empty()) {
    const ValueId at = pending.back();
    pending.pop_back();
    if (!met.insert(at).second) continue;
    for (NodeId reader : readers_[index(at)]) {
      const Node &next = graph_.node(reader);
      const Reader is = judge(next, at);
      if (is == Reader::other) return false;
      if (is == Reader::end) found = true;
      if (is == Reader::on_the_way) pending.push_back(next.outputs.at(0));
    }
  }
  return found;
}

bool Places::adds_to_scores(const Node &node) const {
  return leads_to_ends(node, [this](const Node &next, ValueId at) {
    const bool bias = next.op == "FusedAttention" && std::ranges::find(next.inputs, at) == next.inputs.begin() + 3;
    if (bias || (next.op == "Softmax" && is_attention(next))) return Reader::end;
    const bool goes_on =
        one_of(next.op, {"Add", "Max", "Where", "Reshape", "Transpose", "Cast", "Expand", "Slice", "Concat"});
    return goes_on ? Reader::on_the_way : Reader::other;
  });
}

// True if a Sqrt reads the node's result, for example if the node adds an epsilon to a variance.
bool Places::feeds_root(const Node &node) const {
  const std::vector<NodeId> &readers = readers_[index(node.outputs.at(0))];
  return std::ranges::any_of(readers, [this](NodeId reader) { return graph_.node(reader).op == "Sqrt"; });
}

Use Places::as_sum(const Node &node, const Place &place) const {
  const std::string where = node.place();
  const bool subtracted = node.op == "Sub";
  if (!subtracted && is_bias(node, place))
    return {.role = Use::Role::bias, .weights = true, .reason = "bias in " + where, .doubt = ""};
  if (adds_to_scores(node)) return scores_use(node, place);
  Use use{.role = Use::Role::sum, .weights = !subtracted, .reason = "is added to data in " + where, .doubt = ""};
  if (!place.single && (place.through_root || place.beside_root)) {
    use.weights = false;
    use.doubt = "means and deviations that a normalization holds are added so, after a division";
    return use;
  }
  if (subtracted) {
    use.reason = "meets data in " + where;
    use.weights = place.naming == Naming::own && !only_weighs_the_loss(node) && !is_input(node.inputs[0]);
    use.doubt = "means are subtracted, and learned centres as well";
  } else if (const ValueId data = node.inputs[1 - place.input]; !place.single && is_input(data)) {
    const Node *before = maker(data);
    if (before != nullptr && one_of(before->op, {"Mul", "Div"})) use.doubt = kFixedScale;
  }
  if (place.single) {
    const Shape &made = graph_.value(node.outputs.at(0)).type.shape;
    const bool epsilon = !subtracted && feeds_root(node);
    const bool column = !subtracted && !epsilon && graph_.value(place.value).type.shape == Shape{1} && !made.empty() &&
                        made.back() == 1;
    use.weights = column || (place.naming == Naming::own && !epsilon);
    const bool clear = column || (epsilon && place.naming != Naming::own);
    use.doubt = clear ? "" : "single numbers are settings of a model, and learned biases as well";
    use.inert = place.naming == Naming::made && element_count(made) == 1 && only_weighs_the_loss(node);
    if (use.inert) use.doubt = kNoParameterInPenalty;
  }
  return use;
}

// Returns a doubt about a product's operands, or "" if there is none. The name of the product's result may show that
// the exporter has folded a normalization into the product, or has dropped a bias after it.
std::string Places::doubt_of_result(const Node &product) const {
  bool biased = product.inputs.size() > 2, tensorflow = false;
  for (const Node *node = &product; node != nullptr;) {
    const ValueId made = node->outputs.at(0);
    const std::string &name = graph_.value(made).name;
    if (names_normalization(name)) return "a normalization is folded into it: training it is not training the two";
    tensorflow = tensorflow || names_tensorflow(name);
    const std::vector<NodeId> &readers = readers_[index(made)];
    const Node *next = readers.size() == 1 ? &graph_.node(readers[0]) : nullptr;
    const bool bias =
        next != nullptr && next->op == "Add" && !biased &&
        std::ranges::any_of(next->inputs, [&](ValueId in) { return in != made && kind(in) != Kind::data; });
    biased = biased || bias;
    node = next != nullptr && (bias || moves(*next)) ? next : nullptr;
  }
  if (!tensorflow || biased) return "";
  return "tf2onnx drops biases that are zero, as those of a fresh model are, and this layer may have had one";
}

// True if the node's result feeds sines and cosines and nothing else, as frequencies of features or rotations do.
bool Places::feeds_sine_and_cosine(const Node &node) const {
  bool sine = false, cosine = false;
  std::vector<ValueId> pending = {node.outputs.at(0)};
  while (!pending.empty()) {
    const ValueId at = pending.back();
    pending.pop_back();
    for (NodeId reader : readers_[index(at)]) {
      const Node &next = graph_.node(reader);
      sine = sine || next.op == "Sin";
      cosine = cosine || next.op == "Cos";
      if (one_of(next.op, {"Sin", "Cos"})) continue;
      const bool scaled = next.op == "Mul" && std::ranges::any_of(next.inputs, [&](ValueId in) {
                            return in != at && kind(in) != Kind::data;
                          });
      if (!scaled && !moves(next)) return false;
      pending.push_back(next.outputs.at(0));
    }
  }
  return sine && cosine;
}

// True for the inverse of a square root: Reciprocal(Sqrt(x)), or Div(c, Sqrt(x)) where c does not depend on data.
bool Places::is_inverse_root(const Node &node) const {
  const Node *root = nullptr;
  if (node.op == "Reciprocal") root = maker(node.inputs[0]);
  if (node.op == "Div" && kind(node.inputs[0]) != Kind::data) root = maker(node.inputs[1]);
  return root != nullptr && root->op == "Sqrt";
}

// True if the node's other factor is a normalized value. A normalized value is the result of a normalization, or of a
// Mul or Div by one number per row, such as the standard deviation or its inverse. Also true if the other factor is
// only the inverse of a standard deviation. TensorFlow and JAX first multiply the scale by this inverse, and then
// multiply the data by the result.
bool Places::scales_normalized(const Node &node, std::size_t input) const {
  const Node *other = maker(node.inputs[1 - input]);
  while (other != nullptr && other->op == "Cast") other = maker(other->inputs[0]);
  if (other == nullptr) return false;
  if (one_of(other->op, {"LayerNormalization", "RMSNormalization"})) return true;
  if (is_inverse_root(*other)) return true;
  if (!one_of(other->op, {"Mul", "Div"})) return false;
  const auto width = [&](ValueId id) {
    const Shape &shape = graph_.value(id).type.shape;
    return shape.empty() ? 0 : shape.back();
  };
  const std::int64_t a = width(other->inputs[0]), b = width(other->inputs[1]);
  return (b == 1 && a > 1) || (other->op == "Mul" && a == 1 && b > 1);
}

// True if the value is an input of the model. Nodes may have moved or cast the input, or shifted and rescaled it by
// constants and stored values.
bool Places::is_input(ValueId id) const {
  for (const Node *node = maker(id); node != nullptr; node = maker(id)) {
    const bool standardizes = one_of(node->op, {"Sub", "Div", "Mul"}) &&
                              std::ranges::any_of(node->inputs, [&](ValueId in) { return kind(in) != Kind::data; });
    if (!standardizes && !moves(*node)) return false;
    const auto data =
        std::ranges::find_if(node->inputs, [&](ValueId in) { return in != ValueId::none && kind(in) == Kind::data; });
    if (data == node->inputs.end()) return false;  // the value does not depend on the model's inputs
    id = *data;
  }
  return graph_.value(id).origin == Origin::input;
}

// True for an outer product: the operands share no axis, as in ALiBi's slopes times distances, or frequencies times
// positions. Weights share an axis with the data that they scale.
bool Places::spreads(const Node &node, const Place &place) const {
  const Shape &own = graph_.value(place.value).type.shape,
              &other = graph_.value(node.inputs[1 - place.input]).type.shape;
  const std::int64_t made = element_count(graph_.value(node.outputs.at(0)).type.shape);
  return made == element_count(own) * element_count(other) && made > element_count(own) && made > element_count(other);
}

Use Places::as_scale(const Node &node, const Place &place) const {
  const Shape &shape = graph_.value(place.value).type.shape;
  const std::string where = node.place();
  const auto is = [&](bool weights, std::string reason, std::string doubt = "") {
    return Use{.role = Use::Role::scale, .weights = weights, .reason = std::move(reason), .doubt = std::move(doubt)};
  };
  if (only_weighs_the_loss(node)) return is(false, "weighs the loss in " + where);
  if (place.through_root) return is(false, "divides data by a deviation in " + where);
  if (place.single)
    return is(place.naming == Naming::own, "scales data in " + where,
              "single numbers are settings of a model, and learned scales as well");
  if (node.op == "Mul") {
    if (feeds_sine_and_cosine(node))
      return is(false, "makes angles in " + where, "frequencies of features are mostly fixed, and some are learned");
    const bool scales_input = is_input(node.inputs[1 - place.input]);
    const char *doubt = scales_input ? kFixedScale : "";
    if (scales_input && place.naming == Naming::made) return is(false, "scales the model's input in " + where, doubt);
    if (along_last_axis(shape)) return is(true, "scales the last axis in " + where, doubt);
    if (scales_before_bias(node, place) || scales_channels(node, place))
      return is(true, "scales channels in " + where, doubt);
    if (scales_normalized(node, place.input)) return is(true, "scales what " + where + " finds normalized");
  }
  const std::string reason = fmt::format("meets data in {} with shape {}", where, to_text(shape));
  if (spreads(node, place)) return is(false, reason);
  return is(place.naming == Naming::own && !is_input(node.inputs[1 - place.input]), reason,
            "tables that data are multiplied by may be fixed or learned");
}

// Returns the use as an exponent of a Pow, or as an operand of a Max or Min, which clips data to it. Such values are
// mostly settings, so they are weights only if a module has named them, and only if they are numbers or vectors: tables
// of several axes, such as a detector's anchors, are buffers.
Use Places::as_setting(const Node &node, const Place &place) const {
  const bool exponent = node.op == "Pow";
  const char *what = exponent ? "is an exponent in " : "bounds data in ";
  Use use{.role = exponent ? Use::Role::power : Use::Role::bound, .reason = what + node.place(), .doubt = ""};
  if (only_weighs_the_loss(node)) return use;
  const Shape &stored = graph_.value(place.initializer).type.shape;
  const bool several_axes = std::ranges::count_if(stored, [](std::int64_t dim) { return dim > 1; }) > 1;
  use.weights = place.naming == Naming::own && !several_axes && !is_input(node.inputs[1 - place.input]) &&
                (place.single || !adds_to_scores(node));
  if (place.naming == Naming::own || (place.single && place.naming == Naming::unknown))
    use.doubt = "exponents and bounds can be settings of a model, or learned";
  return use;
}

// Returns the use of a value that a Where chooses by data, such as a learned bias of attention scores, or an embedding
// for masked tokens.
Use Places::as_choice(const Node &node, const Place &place) const {
  const std::string where = node.place();
  if (place.input > 0 && adds_to_scores(node)) return scores_use(node, place);
  ValueId stored = place.value;  // before it was expanded to the places of a whole batch
  while (maker(stored) != nullptr && maker(stored)->op == "Expand") stored = maker(stored)->inputs[0];
  const bool row = place.input > 0 && along_last_axis(graph_.value(stored).type.shape);
  const char *doubt = row || place.naming != Naming::own ? "" : "tables that data selects may be fixed or learned";
  return {.role = Use::Role::choice, .weights = row, .reason = "is chosen by data in " + where, .doubt = doubt};
}

// True if the place's value has one number per channel, and every node that reads the product adds a stored value of
// equal shape to it: x * scale + bias.
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

// True if the place's value has one number per channel of images, or per head of scores: its only axis with more than
// one element lines up with axis 1 of the data. Axis 1 of the data must have more than one element. This excludes
// ALiBi's slopes, because there the product itself creates the axis of heads.
//   The value must come from storage through Reshape, Transpose and Cast only. A value that other nodes computed may be
// a statistic.
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

// True if the node looks up cosines and sines by position. Only Rotary nodes and products may read its results, and the
// other factor of such a product must be data with more than one number per row. So a table of embeddings that is
// multiplied by a mask does not pass, because a mask has one number per row.
bool Places::gathers_angles(const Node &node) const {
  return leads_to_ends(node, [this](const Node &next, ValueId at) {
    const auto is_data = [&](ValueId in) {
      const Shape &shape = graph_.value(in).type.shape;
      return in == at || (kind(in) == Kind::data && !shape.empty() && shape.back() > 1);
    };
    if (next.op == "Rotary" || (next.op == "Mul" && std::ranges::all_of(next.inputs, is_data))) return Reader::end;
    const bool goes_on = one_of(next.op, {"Reshape", "Transpose", "Cast", "Slice", "Concat"});
    return goes_on ? Reader::on_the_way : Reader::other;
  });
}

Use Places::use(const Place &place) const {
  const Node &node = graph_.node(place.node);
  const std::string where = node.place();
  Use use{.reason = fmt::format("meets data in {} with shape {}", where, to_text(graph_.value(place.value).type.shape)),
          .doubt = ""};
  if (place.through_angle) return use;
  if (!place.single && element_count(graph_.value(place.value).type.shape) == 1) {
    use.reason = "is one number by the time it meets data in " + where + ", as penalties are";
    use.inert = is_inert(place);
    if (use.inert) use.doubt = kNoParameterInPenalty;
    return use;
  }
  if (node.op == "MatMul" || node.op.starts_with("Conv")) return as_operand(node, place);
  if (is_norm(node, place)) return as_norm(node, place);
  if (one_of(node.op, {"Add", "Sub"})) return as_sum(node, place);
  if (one_of(node.op, {"Mul", "Div"})) return as_scale(node, place);
  if (is_recurrent(node)) return as_recurrent(node, place);
  const bool sets =
      (node.op == "Pow" && place.input == 1) || (one_of(node.op, {"Max", "Min"}) && node.inputs.size() == 2);
  if (sets && may_train(graph_.value(place.value).type.dtype)) return as_setting(node, place);
  if (place.single) return use;
  if (node.op == "Gather" && place.input == 0) return as_table(node, place);
  if (node.op == "Where") return as_choice(node, place);
  if (node.op == "FusedAttention" && place.input == 3) return scores_use(node, place);
  if (node.op == "Concat") {
    use.role = Use::Role::join;
    use.weights = true;
  }
  return use;
}

}  // namespace protrain::passes
