// Builds losses in the forms that exporters write, or in our core form where ONNX has none. A graph exported with its
// loss and the same graph with the loss attached here become identical after canonicalization, bit for bit.
#include "passes/attach_loss.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "passes/loss_nodes.h"
#include "passes/probabilities.h"

namespace protrain::passes {

namespace {

using graph::Array;
using graph::Attributes;
using graph::Graph;
using graph::Node;
using graph::Origin;
using graph::Type;
using graph::Value;
using graph::ValueId;
using Kind = Loss::Kind;

constexpr std::int64_t kIgnored = -100;  // the label that is ignored, as in PyTorch
// Probabilities are clipped to [this, 1 - this] before a logarithm, as in Keras. Otherwise the derivative of log(p)
// would be infinite at p = 0, and that of log(1 - p) at p = 1.
constexpr double kLeastProbability = 1e-7;
constexpr std::int64_t kToEnd = std::numeric_limits<std::int64_t>::max();

std::string outputs_of(const Graph &graph) {
  std::vector<std::string> all;
  for (ValueId id : graph.outputs) {
    const Value &value = graph.value(id);
    all.push_back(value.type.dtype == DType::none ? value.name : value.name + " " + to_text(value.type));
  }
  return fmt::format("{}", fmt::join(all, ", "));
}

// Returns the output, or the value between nodes, that is called `name`. Without a name, returns the first output that
// can be a prediction: floats with at least one axis, or a value whose type is not known. With `scalars`, floats
// without axes count too.
ValueId find_output(const Graph &graph, const std::string &name, bool scalars) {
  if (const ValueId inner = name.empty() ? ValueId::none : graph.find(name);
      inner != ValueId::none && graph.value(inner).producer != graph::NodeId::none)
    return inner;
  const auto fits = [&](ValueId id) {
    const Type &type = graph.value(id).type;
    if (!name.empty()) return graph.value(id).name == name;
    return type.dtype == DType::none || (is_float(type.dtype) && (scalars || !type.shape.empty()));
  };
  const auto found = std::ranges::find_if(graph.outputs, fits);
  require(found != graph.outputs.end(), Code::arg, "loss_output", "{}; the model's outputs are {}",
          name.empty() ? "the model has no output of floats that a loss could be computed from"
                       : fmt::format("the model has no output {}", printable(name)),
          outputs_of(graph));
  return *found;
}

// A loss that was added to the graph. `from` says in words whether it reads logits or probabilities; "" if the kind of
// loss does not distinguish the two.
struct Attached {
  ValueId loss;
  std::string from;
};

// Attaches one loss to one output. Finds out whether the prediction is logits or probabilities, makes or finds the
// input for labels, and emits nodes. The nodes are file operators. Folding then treats them like nodes of an exporter,
// and the model trains with the same bits as one that was exported with its loss. `file_inputs` is the number of inputs
// that the graph had before any loss was attached.
class Attachment : UnlabelledLosses {
 public:
  Attachment(Graph &graph, const Loss &loss, ValueId output, std::size_t file_inputs)
      : UnlabelledLosses(graph), loss_(loss), file_inputs_(file_inputs), prediction_(output) {
    const Type &type = graph.value(output).type;
    require(is_float(type.dtype), Code::type, "loss_output", "output {} is {}; a loss is computed from floats",
            graph.value(output).name, name_of(type.dtype));
    const bool rows =
        classifies() || loss.shift || loss.kind == Kind::triplet || loss.kind == Kind::infonce || loss.kind == Kind::kl;
    const std::size_t least = rows ? 2 : 0;
    require(type.shape.size() >= least, Code::shape, "loss_output",
            "output {} is {}; this loss{} needs at least {} axes", graph.value(output).name, to_text(type),
            loss.shift ? " with a shift" : "", least);
    if (classifies()) class_axis_ = resolve_axis(loss.class_axis, type.shape.size(), "loss_axis");
  }

  Attached run() {
    const std::string said = settle_source();
    if (classifies()) move_classes_last(*class_axis_);
    Shape shape = graph_.value(prediction_).type.shape;
    if (loss_.kind == Kind::triplet || loss_.kind == Kind::infonce) return {of_parts(shape), said};
    if (loss_.kind == Kind::mean) return {mean_of(as_float32(prediction_), shape), said};
    if (loss_.kind == Kind::ctc) return {spelling(shape), said};
    if (classifies()) {
      classes_ = shape.back();
      shape.pop_back();
    }
    labels_ = data_input(loss_.labels, {classifies() ? DType::i64 : DType::f32, shape}, "loss_labels", "labels");
    label_dtype_ = graph_.value(labels_).type.dtype;
    if (!loss_.weights.empty()) weights_ = weights_input(shape);
    prediction_ = as_float32(prediction_);
    if (!loss_.positions.empty()) ignore_first_tokens(shape);
    if (loss_.shift) compare_with_next(classifies() ? shape.size() - 1 : 1);
    const ValueId loss = loss_.kind == Kind::dpo ? preference(shape)
                         : classifies()          ? cross_entropy("mean")
                                                 : compared(shape);
    return {loss, said};
  }

 private:
  // Decides whether the prediction is logits or probabilities, and returns the answer in words. If a Softmax or Sigmoid
  // makes the prediction, its input, the logits, becomes the prediction, because probabilities near 0 and 1 lose
  // precision.
  std::string settle_source() {
    if (!classifies() && loss_.kind != Kind::bce) return "";
    if (loss_.from == Loss::From::logits) return "logits";
    Probabilities probabilities(graph_, prediction_, class_axis_);
    const std::string op = probabilities.op(), place = probabilities.place();
    if (const ValueId logits = probabilities.logits(); logits != ValueId::none) {
      prediction_ = logits;
      return "the logits before " + place;
    }
    require(loss_.from != Loss::From::probabilities || op != "LogSoftmax", Code::arg, "loss_from",
            "output {} comes from {}, which makes logarithms of probabilities; leave loss_from out",
            graph_.value(prediction_).name, place);
    const bool shown = !classifies() && op == "Softmax";
    from_probabilities_ = shown || loss_.from == Loss::From::probabilities;
    if (shown) return "the probabilities of " + place;
    return from_probabilities_ ? "probabilities" : "logits";
  }

  // Turns predictions (N, C, ...) into (N, ..., C).
  void move_classes_last(std::size_t axis) {
    Type type = graph_.value(prediction_).type;
    if (axis + 1 == type.shape.size()) return;
    std::vector<std::int64_t> perm;
    Shape moved;
    for (std::size_t i = 0; i < type.shape.size(); ++i)
      if (i != axis) perm.push_back(static_cast<std::int64_t>(i));
    perm.push_back(static_cast<std::int64_t>(axis));
    for (const std::int64_t i : perm) moved.push_back(type.shape[static_cast<std::size_t>(i)]);
    prediction_ = emit("Transpose", {prediction_}, {{"perm", perm}});
    type.shape = moved;
    graph_.value(prediction_).type = type;
  }

  bool classifies() const {
    return loss_.kind == Kind::cross_entropy || loss_.kind == Kind::dpo || loss_.kind == Kind::ctc;
  }

  // Returns the loss of embeddings (N, D) that are compared with each other.
  ValueId of_parts(const Shape &shape) {
    const std::int64_t parts = loss_.kind == Kind::triplet ? 3 : 2;
    require(shape.size() == 2 && shape[0] % parts == 0, Code::shape, "loss_output",
            "the output is {}; this loss takes embeddings (N, D), in {} parts of as many rows", to_text(shape), parts);
    return parts == 3 ? triplet(prediction_, shape, loss_.margin) : contrast(prediction_, shape, loss_.temperature);
  }

  ValueId compared(const Shape &shape) {
    if (loss_.kind == Kind::kl) return distillation(prediction_, labels_, shape, loss_.temperature);
    return loss_.kind == Kind::cosine ? cosine(prediction_, labels_) : mean(difference());
  }

  // Returns the loss of DPO (Rafailov et al., arXiv 2305.18290): the mean of -log(sigmoid(beta d)) over pairs of
  // samples. A sample's gain is its log probability minus that under the reference model, and d is the gain of the
  // preferred sample minus the gain of the other one. `shape` is the shape of the labels.
  ValueId preference(const Shape &shape) {
    require(shape[0] % 2 == 0, Code::shape, "loss",
            "dpo compares the first half of the samples with the second; there are {}", shape[0]);
    require(graph_.find(loss_.reference) == ValueId::none, Code::arg, "loss_reference",
            "the model has a value {} already; name the input otherwise", printable(loss_.reference));
    const ValueId before = add_input(loss_.reference, {DType::f32, {shape[0]}});
    const ValueId lost = emit("Reshape", {cross_entropy("none"), numbers({shape[0], -1})});
    const ValueId sums = emit("ReduceSum", {lost, numbers({1})}, {{"keepdims", std::int64_t{0}}});
    if (loss_.shows_log_probabilities) graph_.outputs.push_back(emit("Neg", {sums}));
    const std::vector<ValueId> fallen = parts_of(emit("Add", {sums, before}), 2, shape);
    return mean(emit("Softplus", {emit("Mul", {emit("Sub", {fallen[0], fallen[1]}), real(loss_.beta)})}));
  }

  // Returns the CTC loss for labels (N, S). The prediction is (N, T, C), with N samples, T times and C classes. With
  // `time_first`, the prediction is (T, N, C).
  ValueId spelling(Shape shape) {
    require(shape.size() == 3, Code::shape, "loss_output",
            "the output is {}; ctc takes one with three axes, for samples, times and classes", to_text(shape));
    require(loss_.blank < shape[2], Code::arg, "loss_blank", "the blank is class {}, and the output has {} classes",
            loss_.blank, shape[2]);
    prediction_ = as_float32(prediction_);
    if (from_probabilities_) prediction_ = logarithm(clipped());
    if (loss_.time_first) {
      prediction_ = emit("Transpose", {prediction_}, {{"perm", std::vector<std::int64_t>{1, 0, 2}}});
      std::swap(shape[0], shape[1]);
    }
    const ValueId present = graph_.find(loss_.labels);
    const Shape given = present == ValueId::none ? Shape() : graph_.value(present).type.shape;
    const std::int64_t width = given.size() == 2 ? given[1] : shape[1];
    const Type labels{DType::i64, {shape[0], loss_.label_length > 0 ? loss_.label_length : width}};
    std::vector<ValueId> inputs = {prediction_, data_input(loss_.labels, labels, "loss_labels", "labels")};
    if (!loss_.lengths.empty())
      inputs.push_back(data_input(loss_.lengths, {DType::i64, {shape[0]}}, "loss_lengths", "lengths"));
    return emit("CtcLoss", inputs, {{"blank", loss_.blank}, {"ignore_index", kIgnored}});
  }

  // Returns the input that holds a factor for the loss of each label, in the shape of the labels. Adds this input,
  // unless another loss has added it already.
  ValueId weights_input(const Shape &shape) {
    const Type wanted{DType::f32, shape};
    const ValueId present = graph_.find(loss_.weights);
    if (present == ValueId::none) return add_input(loss_.weights, wanted);
    const auto added = graph_.inputs.begin() + static_cast<std::ptrdiff_t>(file_inputs_);
    require(std::find(added, graph_.inputs.end(), present) != graph_.inputs.end(), Code::arg, "loss_weights",
            "the model has a value {} already; name the weights otherwise", printable(loss_.weights));
    const Type &type = graph_.value(present).type;
    require(type == wanted, Code::shape, "loss_weights",
            "{} is a loss's input already, {}; as weights it would have to be {}", printable(loss_.weights),
            to_text(type), to_text(wanted));
    return present;
  }

  // Ignores the first label of each packed document, because the token before it belongs to another document.
  void ignore_first_tokens(const Shape &shape) {
    const ValueId present = graph_.find(loss_.positions);
    const ValueId positions = present == ValueId::none ? add_input(loss_.positions, {DType::i64, shape}) : present;
    const ValueId first = emit("Equal", {positions, number(graph_.value(positions).type.dtype, 0)});
    labels_ = emit("Where", {first, number(label_dtype_, kIgnored), labels_});
  }

  ValueId number(DType dtype, std::int64_t value) {
    return graph_.add_constant("loss/number", Array::from_integers({dtype, {}}, {value}));
  }

  // Compares the prediction at each position with the label of the next position.
  void compare_with_next(std::size_t axis) {
    const auto cut = [&](ValueId x, std::int64_t from, std::int64_t to) {
      return emit("Slice", {x, numbers({from}), numbers({to}), numbers({static_cast<std::int64_t>(axis)})});
    };
    prediction_ = cut(prediction_, 0, -1);
    labels_ = cut(labels_, 1, kToEnd);
    if (weights_ != ValueId::none) weights_ = cut(weights_, 1, kToEnd);
  }

  ValueId logarithm(ValueId x) { return emit("Log", {x}); }
  // Returns the probabilities, clipped so that their logarithms are finite.
  ValueId clipped() {
    return emit("Clip", {prediction_}, {{"min", kLeastProbability}, {"max", 1 - kLeastProbability}});
  }

  ValueId cross_entropy(const std::string &reduction) {
    if (from_probabilities_) prediction_ = logarithm(clipped());
    const ValueId logits = emit("Reshape", {prediction_, numbers({-1, classes_})});
    const ValueId labels = emit("Reshape", {labels_, numbers({-1})}), weights = row_weights(labels);
    Attributes attributes = {{"reduction", reduction}, {"ignore_index", kIgnored}};
    if (loss_.label_smoothing == 0 && loss_.z_loss == 0 && loss_.focal == 0 && weights == ValueId::none)
      return emit("SoftmaxCrossEntropyLoss", {logits, labels}, attributes);
    attributes.set("label_smoothing", loss_.label_smoothing);
    attributes.set("z_loss", loss_.z_loss);
    attributes.set("focal", loss_.focal);
    return emit_cross_entropy({logits, labels, weights}, std::move(attributes));
  }

  // Returns a factor for the loss of each of the M labels: the weight of the label's class, times the label's weight in
  // the input of loss_weights. Returns only one of these two if the other is not given, and ValueId::none if neither is
  // given.
  ValueId row_weights(ValueId labels) {
    const ValueId given = weights_ == ValueId::none ? weights_ : emit("Reshape", {weights_, numbers({-1})});
    if (loss_.class_weights.empty()) return given;
    const auto count = static_cast<std::int64_t>(loss_.class_weights.size());
    require(count == classes_, Code::arg, "class_weights", "{} weights are given for {} classes", count, classes_);
    const ValueId ignored = emit("Equal", {labels, number(label_dtype_, kIgnored)});
    const ValueId table =
        graph_.add_constant("loss/class_weights", Array::from_doubles({DType::f32, {count}}, loss_.class_weights));
    const ValueId of_classes = emit("Gather", {table, emit("Where", {ignored, number(label_dtype_, 0), labels})});
    return given == ValueId::none ? of_classes : emit("Mul", {of_classes, given});
  }

  // Returns the loss of each element.
  ValueId difference() {
    if (loss_.kind == Kind::bce) {
      const auto rest = [&](ValueId x) { return emit("Sub", {real(1), x}); };
      if (from_probabilities_) {  // -(y log(p) + (1 - y) log(1 - p))
        const ValueId p = clipped();
        return emit(
            "Neg",
            {emit("Add", {emit("Mul", {labels_, logarithm(p)}), emit("Mul", {rest(labels_), logarithm(rest(p))})})});
      }
      // (1 - y) x + log(1 + exp(-x)), with label y and logit x, as in PyTorch. Softplus never overflows.
      return emit("Add", {emit("Mul", {rest(labels_), prediction_}), emit("Softplus", {emit("Neg", {prediction_})})});
    }
    const ValueId apart = emit("Sub", {prediction_, labels_});
    return loss_.kind == Kind::l1 ? emit("Abs", {apart}) : emit("Mul", {apart, apart});
  }

  const Loss &loss_;
  const std::size_t file_inputs_;
  ValueId prediction_;
  ValueId labels_ = ValueId::none, weights_ = ValueId::none;
  DType label_dtype_ = DType::none;        // of the input for labels
  std::optional<std::size_t> class_axis_;  // of the output, if the loss is of classes
  std::int64_t classes_ = 0;
  bool from_probabilities_ = false;  // false: the prediction is logits
};

// Returns what `make` returns. If `make` throws and `loss` is not the first loss, throws the error as one about
// also_loss, the option that gives the losses after the first.
template <typename Make>
auto about(const Loss &loss, const std::vector<Loss> &losses, const Make &make) {
  try {
    return make();
  } catch (const Error &error) {
    if (&loss == &losses.front()) throw;
    fail(error.code, "also_loss", "{}: {}", printable(loss.output), error.text);
  }
}

}  // namespace

std::optional<std::string> attach_losses(Graph &graph, const std::vector<Loss> &losses, std::size_t shown) {
  std::vector<ValueId> outputs, unknown;
  for (const Loss &loss : losses)
    outputs.push_back(about(loss, losses, [&] { return find_output(graph, loss.output, loss.kind == Kind::mean); }));
  std::ranges::copy_if(outputs, std::back_inserter(unknown),
                       [&](ValueId id) { return graph.value(id).type.dtype == DType::none; });
  keep_outputs(graph, unknown.empty() ? outputs : unknown, shown);
  if (!unknown.empty()) return std::nullopt;
  const std::size_t file_inputs = graph.inputs.size();
  std::vector<WeighedLosses::Term> terms;
  std::vector<std::string> said;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const std::string name = graph.value(outputs[i]).name;
    const Attached attached =
        about(losses[i], losses, [&] { return Attachment(graph, losses[i], outputs[i], file_inputs).run(); });
    terms.push_back({attached.loss, losses[i].factor});
    if (!attached.from.empty()) said.push_back(losses.size() == 1 ? attached.from : name + ": " + attached.from);
  }
  graph.outputs.erase(graph.outputs.begin(), graph.outputs.begin() + static_cast<std::ptrdiff_t>(losses.size()));
  graph.outputs.insert(graph.outputs.begin(), WeighedLosses(graph).sum(terms));
  return fmt::format("{}", fmt::join(said, "; "));
}

void keep_outputs(Graph &graph, const std::vector<ValueId> &first, std::size_t shown) {
  graph.outputs.erase(graph.outputs.begin(), graph.outputs.end() - static_cast<std::ptrdiff_t>(shown));
  graph.outputs.insert(graph.outputs.begin(), first.begin(), first.end());
  graph.drop_dead_nodes();
}

}  // namespace protrain::passes
