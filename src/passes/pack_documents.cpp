// Follows the axis of tokens from the inputs to the loss, node by node. Accepts attention, and nodes that treat all
// tokens alike. Refuses any other node, because it could carry something from one document to the next.
#include "passes/pack_documents.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "ops/op.h"
#include "ops/slices.h"
#include "passes/pattern.h"

namespace protrain::passes {

namespace {

// The tokens of a value lie along `axis`. The axis holds one sample, or several samples one after the other. From each
// sample it holds `length` tokens, beginning with token number `first`. For example, `first` is 1 after a Slice drops
// token 0.
struct TokenAxis {
  std::size_t axis;
  std::int64_t length, first = 0;

  bool operator==(const TokenAxis &) const = default;
};
using Tokens = std::optional<TokenAxis>;

std::int64_t rows_to(const Shape &shape, std::size_t axis) {
  return element_count(Shape(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1));
}

// Returns (B, S), the batch size and the number of tokens of a sample, as the attention nodes read them. Throws if the
// queries and keys of an attention node differ in number, if two of these nodes differ in B or S, or if there is none.
Shape windows_of(const Graph &graph) {
  Shape windows;
  for (const Node &node : graph.nodes()) {
    if (node.op != "FusedAttention") continue;
    const Shape q = graph.value(node.inputs[0]).type.shape, k = graph.value(node.inputs[1]).type.shape;
    const bool fits = q[1] == k[1] && (windows.empty() || windows == Shape{q[0], q[1]});
    require(fits, Code::unsupported, node.name,
            "attends from {} tokens to {}; documents are packed where all are alike", q[1], k[1]);
    windows = {q[0], q[1]};
  }
  require(!windows.empty(), Code::unsupported, "packed", "the model has no attention in a form that is recognised");
  return windows;
}

// True if all slices of the array along its first axis have the same elements.
bool repeats(const graph::Array &array) {
  const std::vector<double> all = array.doubles();
  const std::size_t each = all.size() / static_cast<std::size_t>(array.shape()[0]);
  for (std::size_t i = each; i < all.size(); ++i)
    if (all[i] != all[i - each]) return false;
  return true;
}

// True for a bias of attention that hides from each query the keys after it.
bool hides_later_keys(const graph::Array *bias, std::int64_t length) {
  constexpr double kHidden = -1e4;  // the softmax of a float32 is 0 there
  if (bias == nullptr || bias->shape()[2] != length || bias->shape()[3] != length) return false;
  const std::vector<double> all = bias->doubles();
  const auto keys = static_cast<std::size_t>(length);
  for (std::size_t row = 0; row < all.size() / keys; ++row)
    for (std::size_t key = row % keys + 1; key < keys; ++key)
      if (all[row * keys + key] > kHidden) return false;
  return true;
}

class Packing {
 public:
  Packing(Graph &graph, const std::string &positions)
      : windows_(windows_of(graph)), positions_(input(graph, positions)), r_(graph) {
    for (const ValueId id : graph.inputs) {
      const Shape shape = graph.value(id).type.shape;
      const bool tokens = shape.size() >= 2 && shape[0] == windows_[0] && shape[1] == windows_[1];
      tokens_[id] = tokens ? Tokens({1, windows_[1]}) : std::nullopt;
    }
  }

  void run() {
    r_.walk([this](Node &node) { visit(node); });
  }

 private:
  ValueId input(Graph &graph, const std::string &name) const {
    const Type type{DType::i64, windows_};
    const ValueId present = graph.find(name);
    if (present == ValueId::none) {
      graph.inputs.push_back(
          graph.add_value({.name = name, .type = type, .origin = graph::Origin::input, .array = {}}));
      return graph.inputs.back();
    }
    const graph::Value &value = graph.value(present);
    require(value.origin == graph::Origin::input && value.type == type, Code::arg, "packed",
            "the model's value {} is {}; positions of packed documents are an input of {}", name, to_text(value.type),
            to_text(type));
    return present;
  }

  bool of_data(ValueId id) const { return id != ValueId::none && tokens_.contains(id); }
  Tokens tokens_of(ValueId id) const { return of_data(id) ? tokens_.at(id) : std::nullopt; }

  [[noreturn]] static void refuse(const Node &node, const std::string &why) {
    fail(Code::unsupported, node.subject(),
         "{} {}, so documents cannot be packed into one window; leave out the option packed", node.op, why);
  }

  void visit(Node &node) {
    const bool depends = std::ranges::any_of(node.inputs, [this](ValueId in) { return of_data(in); });
    const bool follows = std::ranges::any_of(node.inputs, [this](ValueId in) { return tokens_of(in).has_value(); });
    const Tokens tokens = follows ? tokens_after(node) : std::nullopt;
    if (depends)
      for (ValueId out : node.outputs)
        if (out != ValueId::none) tokens_[out] = tokens;
    r_.keep(std::move(node));
  }

  // Returns where the tokens lie in the outputs of a node that reads tokens; an empty optional if the node computes a
  // part of the loss.
  Tokens tokens_after(Node &node) {
    if (ops::find(node.op)->elementwise) return elementwise(node);
    if (node.op == "FusedAttention") return attention(node);
    if (node.op == "Rotary") return rotary(node);
    if (one_of(node.op, {"CrossEntropy", "LinearCrossEntropy"})) return std::nullopt;
    if (node.op == "Gather" && !of_data(node.inputs[0])) {
      const TokenAxis at = tokens_of(node.inputs[1]).value();
      return TokenAxis{passes::axis_of(r_, node, 0) + at.axis, at.length, at.first};
    }
    const Tokens at = tokens_of(node.inputs.at(0));
    if (at && node.op == "Concat") return joined(node, *at);
    if (at && node.op == "MatMul") return product(node, *at);
    if (!at || std::any_of(node.inputs.begin() + 1, node.inputs.end(), [this](ValueId in) { return of_data(in); }))
      refuse(node, "may carry something from one token to another");
    if (node.op == "Reshape") return reshaped(node, *at);
    if (node.op == "Slice") return sliced(node, *at);
    if (node.op == "Transpose") {
      const std::vector<std::int64_t> perm = node.attributes.integers("perm");
      const auto axis = std::ranges::find(perm, static_cast<std::int64_t>(at->axis)) - perm.begin();
      return TokenAxis{static_cast<std::size_t>(axis), at->length, at->first};
    }
    if (one_of(node.op, {"Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization", "Split"})) {
      const std::size_t own = passes::axis_of(r_, node, node.op == "Split" ? 0 : -1);
      if (own == at->axis || (own < at->axis && node.op.ends_with("Normalization")))
        refuse(node, "works along the tokens");
      return at;
    }
    if (node.op.starts_with("Reduce")) return reduced(node, *at);
    refuse(node, "may carry something from one token to another");
  }

  // Returns where the tokens lie after an elementwise node, whose operands align at their last axes. An operand that
  // does not depend on data may have a row for each place in a window, such as a table of positions. Replaces such an
  // operand by a lookup, which gives each token the row at the token's position in its document.
  Tokens elementwise(Node &node) {
    const std::size_t rank = r_.shape(node.outputs[0]).size();
    Tokens at;
    for (ValueId in : node.inputs) {
      if (!tokens_of(in)) continue;
      const TokenAxis own{tokens_of(in)->axis + rank - r_.shape(in).size(), tokens_of(in)->length,
                          tokens_of(in)->first};
      if (at && *at != own) refuse(node, "mixes tokens of different places");
      at = own;
    }
    for (ValueId &in : node.inputs) {
      if (in == ValueId::none || tokens_of(in)) continue;
      const Shape shape = r_.shape(in);
      const std::size_t missing = rank - shape.size();
      if (at->axis < missing || shape[at->axis - missing] == 1) continue;
      if (of_data(in) || shape[at->axis - missing] != windows_[1] || at->length != windows_[1])
        refuse(node, "mixes tokens of different places");
      in = at_positions(in, at->axis - missing, shape_of_windows(rank, at->axis), node);
    }
    return at;
  }

  // Returns a shape of `rank` axes with B on axis 0, S on `axis`, and 1 on all others.
  Shape shape_of_windows(std::size_t rank, std::size_t axis) const {
    Shape shape(rank, 1);
    shape[0] = windows_[0];
    shape[axis] = windows_[1];
    return shape;
  }

  // Returns for each token the row of `table` at the token's position in its document. The rows lie along `axis`. The
  // result has the shape `windows`, but behind the axis of tokens it has the dims that the table has behind `axis`.
  ValueId at_positions(ValueId table, std::size_t axis, Shape windows, const Node &reader) {
    const Shape shape = r_.shape(table);
    const std::size_t at = windows.size() - (shape.size() - axis);
    std::copy(shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, shape.end(),
              windows.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    const auto found = looked_up_.find({table, windows});
    if (found != looked_up_.end()) return found->second;
    const Shape rows = {windows_[1],
                        element_count(Shape(shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, shape.end()))};
    const ValueId flat = r_.emit("Reshape", {of_one_window(table, axis, reader)}, {{"shape", rows}});
    const ValueId taken = r_.emit("Gather", {flat, positions_}, {{"axis", std::int64_t{0}}});
    const ValueId made = r_.emit("Reshape", {taken}, {{"shape", windows}});
    tokens_[made] = TokenAxis{at, windows_[1]};
    return looked_up_[{table, windows}] = made;
  }

  // Returns the rows of `table` for one window. The table may hold the rows of one window, or the same rows again for
  // each window. Refuses other tables.
  ValueId of_one_window(ValueId table, std::size_t axis, const Node &reader) {
    const Shape shape = r_.shape(table);
    if (rows_to(shape, axis) == windows_[1]) return table;
    const Node *lookup = made_by(r_, table, "Gather");
    const bool looked_up = lookup != nullptr && passes::axis_of(r_, *lookup, 0) == 0;
    const graph::Array *array = r_.constant_of(looked_up ? lookup->inputs[1] : table);
    const bool alike = array != nullptr && array->shape()[0] == shape[0] &&
                       rows_to(shape, axis) == shape[0] * windows_[1] && repeats(*array);
    if (!alike) refuse(reader, "reads a value that differs between windows");
    using Integers = std::vector<std::int64_t>;
    return r_.emit("Slice", {table},
                   {{"starts", Integers{0}}, {"ends", Integers{1}}, {"axes", Integers{0}}, {"steps", Integers{1}}});
  }

  Tokens attention(Node &node) {
    for (std::size_t i = 0; i < 3; ++i) require_in_order(node, i);
    node.inputs.resize(5, ValueId::none);
    if (node.inputs[3] != ValueId::none) require_alike(node, node.inputs[3]);
    if (node.attributes.integer("causal", 0) == 0 && !hides_later_keys(r_.constant_of(node.inputs[3]), windows_[1]))
      refuse(node, "lets tokens see what comes after them");
    node.attributes.set("causal", std::int64_t{1});
    node.inputs[4] = first_keys();
    return tokens_of(node.inputs[0]);  // those of the output (B, S, H, D); only gradients read the other output
  }

  // Refuses a bias that depends on data, or that differs between windows. Other biases, such as ALiBi, may stay as they
  // are, because first_keys() hides the keys of earlier documents.
  void require_alike(const Node &node, ValueId bias) {
    if (of_data(bias))
      refuse(node, "adds a mask or bias that depends on data (bind a mask of padding with constant=NAME=1)");
    if (r_.shape(bias)[0] == 1) return;
    const graph::Array *array = r_.constant_of(bias);
    if (array == nullptr || !repeats(*array)) refuse(node, "adds a bias that differs between windows");
  }

  void require_in_order(const Node &node, std::size_t input) const {
    if (tokens_of(node.inputs[input]) != TokenAxis{1, windows_[1]}) refuse(node, "does not read tokens in their order");
  }

  // Returns for each token (B, S) the place of its document's first token: the token's own place minus its position in
  // the document.
  ValueId first_keys() {
    if (first_keys_ != ValueId::none) return first_keys_;
    std::vector<std::int64_t> places(static_cast<std::size_t>(windows_[1]));
    std::iota(places.begin(), places.end(), 0);
    const ValueId own = r_.constant(graph::Array::from_integers({DType::i64, {1, windows_[1]}}, places));
    return first_keys_ = r_.emit("Sub", {own, positions_});
  }

  Tokens rotary(Node &node) {
    require_in_order(node, 0);
    for (std::size_t i = 1; i <= 2; ++i)
      if (!of_data(node.inputs[i])) node.inputs[i] = at_positions(node.inputs[i], 1, shape_of_windows(3, 1), node);
    return tokens_of(node.inputs[0]);
  }

  Tokens product(const Node &node, const TokenAxis &at) const {
    if (of_data(node.inputs[1])) refuse(node, "may carry something from one token to another");
    const std::size_t rank = r_.shape(node.inputs[0]).size();
    if (at.axis + 1 >= rank || r_.shape(node.outputs[0]).size() != rank || node.attributes.integer("trans_a", 0) != 0)
      refuse(node, "sums over tokens");
    if (node.inputs.size() > 2 && of_data(node.inputs[2]) && tokens_of(node.inputs[2]) != at)
      refuse(node, "adds tokens of different places");
    return at;
  }

  Tokens joined(const Node &node, const TokenAxis &at) const {
    for (ValueId in : node.inputs)
      if (tokens_of(in) != at) refuse(node, "mixes tokens of different places");
    if (passes::axis_of(r_, node, 0) == at.axis) refuse(node, "joins tokens of different places");
    return at;
  }

  // Returns where the tokens lie after a Reshape. Finds the axis of tokens by the product of all dims up to and
  // including this axis. The Reshape must not change this product.
  Tokens reshaped(const Node &node, const TokenAxis &at) const {
    const Shape before = r_.shape(node.inputs[0]), after = r_.shape(node.outputs[0]);
    for (std::size_t i = 0; i < after.size(); ++i)
      if (rows_to(after, i) == rows_to(before, at.axis) && after[i] % at.length == 0)
        return TokenAxis{i, at.length, at.first};
    refuse(node, "takes windows of tokens apart");
  }

  // Returns where the tokens lie after a Slice, such as one that drops the first label for a loss of next tokens.
  Tokens sliced(const Node &node, const TokenAxis &at) const {
    const Shape shape = r_.shape(node.inputs[0]);
    const ops::AxisSlice slice = ops::resolve_slices(node, shape)[at.axis];
    if (slice.step != 1) refuse(node, "takes tokens in another order");
    if (slice.count == shape[at.axis]) return at;
    if (shape[at.axis] != at.length) refuse(node, "takes windows of tokens apart");
    return TokenAxis{at.axis, slice.count, at.first + slice.start};
  }

  // Returns where the tokens lie after a reduction over axes without tokens; an empty optional for a loss, which has
  // one element.
  Tokens reduced(const Node &node, const TokenAxis &at) const {
    const Shape shape = r_.shape(node.inputs[0]);
    if (element_count(r_.shape(node.outputs[0])) == 1) return std::nullopt;
    const bool keeps = node.attributes.integer("keepdims", 1) != 0;
    std::size_t before = 0;
    for (std::int64_t given : node.attributes.integers("axes")) {
      const std::size_t own = resolve_axis(given, shape.size(), node.name);
      if (own == at.axis) refuse(node, "works along the tokens");
      if (own < at.axis && !keeps) ++before;
    }
    return TokenAxis{at.axis - before, at.length, at.first};
  }

  const Shape windows_;  // (B, S)
  const ValueId positions_;
  Rewriter r_;
  std::map<ValueId, Tokens> tokens_;  // of values that depend on data: where their tokens lie, if they have any
  std::map<std::pair<ValueId, Shape>, ValueId> looked_up_;
  ValueId first_keys_ = ValueId::none;
};

}  // namespace

void pack_documents(Graph &graph, const std::string &positions) { Packing(graph, positions).run(); }

}  // namespace protrain::passes
