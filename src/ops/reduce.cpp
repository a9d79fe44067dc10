// Reductions over axes.
#include <cmath>

#include "ops/element_walk.h"
#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

using graph::ValueId;
using Integers = std::vector<std::int64_t>;

std::vector<bool> reduced_axes(const Node &node, std::size_t rank) {
  const Integers axes = node.attributes.integers("axes");
  const bool all = axes.empty() && node.attributes.integer("noop_with_empty_axes", 0) == 0;
  std::vector<bool> reduced(rank, all);
  for (std::int64_t axis : axes) reduced[resolve_axis(axis, rank, node.name)] = true;
  return reduced;
}

Shape kept_shape(const Shape &shape, const std::vector<bool> &reduced) {
  Shape kept = shape;
  for (std::size_t i = 0; i < kept.size(); ++i)
    if (reduced[i]) kept[i] = 1;
  return kept;
}

std::vector<Type> infer_reduce(const NodeTypes &types) {
  const Type &x = types.input(0);
  require(is_float(x.dtype) || is_integer(x.dtype), Code::type, types.subject(), "{} does not take {}", types.node.op,
          name_of(x.dtype));
  const std::vector<bool> reduced = reduced_axes(types.node, x.shape.size());
  const bool keep = types.node.attributes.integer("keepdims", 1) != 0;
  Shape shape;
  for (std::size_t i = 0; i < x.shape.size(); ++i)
    if (!reduced[i])
      shape.push_back(x.shape[i]);
    else if (keep)
      shape.push_back(1);
  return {{x.dtype, shape}};
}

struct Reduction {
  std::string_view name;
  double start;
  double (*add)(double total, double x);
  double (*finish)(double total, double count);
};

double keep_total(double total, double) { return total; }

const Reduction kReductions[] = {
    {"ReduceSum", 0, [](double t, double x) { return t + x; }, keep_total},
    {"ReduceMean", 0, [](double t, double x) { return t + x; }, [](double t, double n) { return t / n; }},
    {"ReduceMax", -INFINITY, [](double t, double x) { return std::isnan(x) || x > t ? x : t; }, keep_total},
    {"ReduceMin", INFINITY, [](double t, double x) { return std::isnan(x) || x < t ? x : t; }, keep_total},
    {"ReduceProd", 1, [](double t, double x) { return t * x; }, keep_total},
    {"ReduceSumSquare", 0, [](double t, double x) { return t + x * x; }, keep_total},
    {"ReduceL1", 0, [](double t, double x) { return t + std::fabs(x); }, keep_total},
    {"ReduceL2", 0, [](double t, double x) { return t + x * x; }, [](double t, double) { return std::sqrt(t); }},
    {"ReduceLogSum", 0, [](double t, double x) { return t + x; }, [](double t, double) { return std::log(t); }},
    {"ReduceLogSumExp", 0, [](double t, double x) { return t + std::exp(x); },
     [](double t, double) { return std::log(t); }},
};

std::vector<Array> evaluate_reduce(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const Reduction &reduction = *std::ranges::find(kReductions, std::string_view(node.op), &Reduction::name);
  const Shape &shape = in[0]->shape();
  const Shape kept = kept_shape(shape, reduced_axes(node, shape.size()));
  std::vector<double> totals(static_cast<std::size_t>(element_count(kept)), reduction.start);
  const std::vector<double> x = stored_values<double>(*in[0]);
  ElementWalk<2> walk(shape, {strides_over(in[0]->stored(), shape), strides_over(kept, shape)});
  const std::int64_t count = element_count(shape);
  for (std::int64_t i = 0; i < count; ++i) {
    double &total = totals[static_cast<std::size_t>(walk.offsets[1])];
    total = reduction.add(total, x[static_cast<std::size_t>(walk.offsets[0])]);
    walk.next();
  }
  const double each = totals.empty() ? 1 : static_cast<double>(count) / static_cast<double>(totals.size());
  for (double &total : totals) total = reduction.finish(total, each);
  return {array_of(out[0], totals)};
}

std::vector<Type> infer_arg(const NodeTypes &types) {
  const Shape &x = types.input(0).shape;
  Shape shape = x;
  const std::size_t axis = resolve_axis(types.node.attributes.integer("axis", 0), x.size(), types.subject());
  require(x[axis] > 0, Code::shape, types.subject(), "axis {} of {} is empty", axis, to_text(x));
  if (types.node.attributes.integer("keepdims", 1) != 0)
    shape[axis] = 1;
  else
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
  return {{DType::i64, shape}};
}

std::vector<Array> evaluate_arg(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const Shape &shape = in[0]->shape();
  const std::size_t axis = resolve_axis(node.attributes.integer("axis", 0), shape.size(), node.name);
  const bool last = node.attributes.integer("select_last_index", 0) != 0, largest = node.op == "ArgMax";
  const std::vector<double> x = in[0]->doubles();
  Shape lanes = shape;
  lanes[axis] = 1;
  const Integers strides = row_major_strides(shape);
  Integers best;
  ElementWalk<1> walk(lanes, {{strides}});
  for (std::int64_t lane = element_count(lanes); lane > 0; --lane) {
    const auto at = [&](std::int64_t i) { return x[static_cast<std::size_t>(walk.offsets[0] + i * strides[axis])]; };
    std::int64_t found = 0;
    for (std::int64_t i = 1; i < shape[axis]; ++i) {
      const bool better = largest ? at(i) > at(found) : at(i) < at(found);
      if (better || (last && at(i) == at(found))) found = i;
    }
    best.push_back(found);
    walk.next();
  }
  return {Array::from_integers(out[0], best)};
}

// dy with the reduced axes back as 1, so that it broadcasts over x.
ValueId keep_axes(GradientBuilder &builder, const Node &node, ValueId value) {
  const Shape &x = builder.type(node.inputs[0]).shape;
  const Shape kept = kept_shape(x, reduced_axes(node, x.size()));
  return builder.type(value).shape == kept ? value : builder.emit("Reshape", {value}, {{"shape", kept}});
}

void differentiate_sum(GradientBuilder &builder, const Node &node) {
  if (!builder.wants(node.inputs[0])) return;
  const Type x = builder.type(node.inputs[0]);
  ValueId dy = keep_axes(builder, node, builder.gradient_of(node.outputs[0]));
  if (node.op == "ReduceMean") {
    const double share = static_cast<double>(element_count(builder.type(dy).shape)) /
                         static_cast<double>(std::max<std::int64_t>(1, element_count(x.shape)));
    dy = builder.emit("Mul", {dy, builder.constant({x.dtype, {}}, share)});
  }
  builder.contribute(node.inputs[0],
                     builder.type(dy).shape == x.shape ? dy : builder.emit("Expand", {dy}, {{"shape", x.shape}}));
}

// The gradient goes to the elements that equal the extreme, in equal shares.
void differentiate_extreme(GradientBuilder &builder, const Node &node) {
  if (!builder.wants(node.inputs[0])) return;
  const ValueId x = node.inputs[0];
  const Type type = builder.type(x);
  const ValueId y = keep_axes(builder, node, node.outputs[0]);
  const ValueId dy = keep_axes(builder, node, builder.gradient_of(node.outputs[0]));
  const ValueId hit = builder.emit("Cast", {builder.emit("Equal", {x, y})}, {{"to", std::string(name_of(type.dtype))}});
  const ValueId hits = sum_to(builder, hit, builder.type(y).shape);
  builder.contribute(x, builder.emit("Mul", {hit, builder.emit("Div", {dy, hits})}));
}

}  // namespace

Family reduce_family() {
  Family family;
  for (const Reduction &reduction : kReductions) {
    Op op{.name = reduction.name, .infer = infer_reduce, .evaluate = evaluate_reduce};
    if (op.name == "ReduceSum" || op.name == "ReduceMean") op.gradient = differentiate_sum;
    if (op.name == "ReduceMax" || op.name == "ReduceMin") op.gradient = differentiate_extreme;
    op.absorbed = {{1, "axes"}};
    family.push_back(std::move(op));
  }
  family.push_back({.name = "ArgMax", .infer = infer_arg, .evaluate = evaluate_arg});
  family.push_back({.name = "ArgMin", .infer = infer_arg, .evaluate = evaluate_arg});
  return family;
}

}  // namespace protrain::ops
