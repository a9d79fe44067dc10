#include "passes/loss_nodes.h"

#include <numeric>

#include "base/error.h"

namespace protrain::passes {

using graph::Array;
using graph::ValueId;

namespace {
constexpr double kLeastLength = 1e-8, kLeastNorm = 1e-12, kDistance = 1e-6;  // PyTorch's epsilons
}  // namespace

ValueId LossNodes::emit(const std::string &op, std::vector<ValueId> inputs, graph::Attributes attributes) {
  const graph::NodeId node = graph_.add_node(
      {.op = op, .name = "loss/" + op, .attributes = std::move(attributes), .inputs = std::move(inputs), .outputs = {}},
      {"loss/" + op});
  return graph_.node(node).outputs[0];
}

ValueId LossNodes::emit_cross_entropy(std::vector<ValueId> inputs, graph::Attributes attributes) {
  const graph::NodeId node = graph_.add_node({.op = "CrossEntropy",
                                              .name = "loss/CrossEntropy",
                                              .attributes = std::move(attributes),
                                              .inputs = std::move(inputs),
                                              .outputs = {}},
                                             {"loss/CrossEntropy", "loss/lse"});
  return graph_.node(node).outputs[0];
}

ValueId LossNodes::numbers(const std::vector<std::int64_t> &values) {
  return graph_.add_constant("loss/numbers", Array::integers(values));
}

ValueId LossNodes::real(double value) { return graph_.add_constant("loss/number", Array::scalar(DType::f32, value)); }

ValueId LossNodes::add_input(const std::string &name, const graph::Type &type) {
  graph_.inputs.push_back(graph_.add_value({.name = name, .type = type, .origin = graph::Origin::input, .array = {}}));
  return graph_.inputs.back();
}

ValueId LossNodes::data_input(const std::string &name, const graph::Type &wanted, const char *option,
                              const char *what) {
  const ValueId present = graph_.find(name);
  if (present == ValueId::none) return add_input(name, wanted);
  const graph::Value &value = graph_.value(present);
  require(value.origin == graph::Origin::input, Code::arg, option,
          "the model has a value {} already that is no input; name the {} otherwise", name, what);
  const bool narrow = wanted.dtype == DType::i64 && value.type.dtype == DType::i32;
  require((value.type.dtype == wanted.dtype || narrow) && value.type.shape == wanted.shape, Code::shape, option,
          "the model's input {} is {}; as {} it would have to be {}", name, to_text(value.type), what, to_text(wanted));
  return present;
}

std::vector<ValueId> LossNodes::parts_of(ValueId x, std::int64_t count, const Shape &shape) {
  const std::int64_t rows = shape.at(0) / count;
  std::vector<ValueId> parts;
  for (std::int64_t i = 0; i < count; ++i)
    parts.push_back(emit("Slice", {x, numbers({i * rows}), numbers({(i + 1) * rows}), numbers({0})}));
  return parts;
}

ValueId LossNodes::sum_of_rows(ValueId x) {
  return emit("ReduceSum", {x, numbers({-1})}, {{"keepdims", std::int64_t{1}}});
}

ValueId LossNodes::mean(ValueId x) { return emit("ReduceMean", {x}, {{"keepdims", std::int64_t{0}}}); }

ValueId LossNodes::as_float32(ValueId x) {
  if (graph_.value(x).type.dtype == DType::f32) return x;
  return emit("Cast", {x}, {{"to", std::string(name_of(DType::f32))}});
}

ValueId WeighedLosses::sum(const std::vector<Term> &terms) {
  ValueId total = ValueId::none;
  for (const Term &term : terms) {
    const ValueId weighed = term.factor == 1 ? term.loss : emit("Mul", {term.loss, real(term.factor)});
    total = total == ValueId::none ? weighed : emit("Add", {total, weighed});
  }
  return total;
}

ValueId UnlabelledLosses::mean_of(ValueId x, const Shape &shape) {
  if (shape.empty()) return x;
  return element_count(shape) == 1 ? emit("Reshape", {x, numbers({})}) : mean(x);
}

ValueId UnlabelledLosses::length(ValueId x, double least) {
  return emit("Sqrt", {emit("Max", {sum_of_rows(emit("Mul", {x, x})), real(least * least)})});
}

ValueId UnlabelledLosses::cosine(ValueId x, ValueId y) {
  const ValueId lengths = emit("Mul", {length(x, kLeastLength), length(y, kLeastLength)});
  return mean(emit("Sub", {real(1), emit("Div", {sum_of_rows(emit("Mul", {x, y})), lengths})}));
}

ValueId UnlabelledLosses::triplet(ValueId x, const Shape &shape, double margin) {
  const std::vector<ValueId> parts = parts_of(x, 3, shape);
  const auto distance = [&](ValueId other) {
    return length(emit("Add", {emit("Sub", {parts[0], other}), real(kDistance)}), 0);
  };
  const ValueId closer = emit("Sub", {distance(parts[1]), distance(parts[2])});
  return mean(emit("Relu", {emit("Add", {closer, real(margin)})}));
}

ValueId UnlabelledLosses::contrast(ValueId x, const Shape &shape, double temperature) {
  const std::vector<ValueId> parts = parts_of(emit("Div", {x, length(x, kLeastNorm)}), 2, shape);
  std::vector<std::int64_t> own(static_cast<std::size_t>(shape.at(0) / 2));
  std::iota(own.begin(), own.end(), 0);
  const ValueId queries = emit("Mul", {parts[0], real(1 / temperature)});
  const ValueId keys = emit("Transpose", {parts[1]}, {{"perm", std::vector<std::int64_t>{1, 0}}});
  return emit_cross_entropy({emit("MatMul", {queries, keys}), numbers(own)},
                            {{"reduction", std::string("mean")}, {"panels", std::int64_t{1}}});
}

ValueId UnlabelledLosses::distillation(ValueId student, ValueId teacher, const Shape &shape, double temperature) {
  const auto rows = [&](ValueId x) { return emit("Reshape", {x, numbers({-1, shape.back()})}); };
  return emit_cross_entropy({rows(student), rows(teacher)},
                            {{"reduction", std::string("mean")}, {"temperature", temperature}});
}

}  // namespace protrain::passes
