// Reductions over axes.
#include <cmath>

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
  const bool orders = types.node.op == "ReduceMax" || types.node.op == "ReduceMin";  // these also take bool
  require(is_float(x.dtype) || is_integer(x.dtype) || (orders && x.dtype == DType::boolean), Code::type,
          types.subject(), "{} does not take {}", types.node.op, name_of(x.dtype));
  require(!types.has(1), Code::unsupported, types.subject(),
          "the axes of {} are computed from data; shapes that depend on data are not supported", types.node.op);
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

// A reduction in steps: total = start, then total = add(total, x) for each element x, then finish(total, count of x).
template <typename T>
struct Steps {
  T start;
  T (*add)(T total, T x);
  T (*finish)(T total, T count);
};

struct Reduction {
  std::string_view name;
  Steps<double> reals;
  Steps<std::int64_t> integers;  // without `add`, integers are reduced in double
};

template <typename T>
T keep_total(T total, T) {
  return total;
}
double root(double total, double) { return std::sqrt(total); }
double logarithm(double total, double) { return std::log(total); }
double share(double total, double count) { return total / count; }
std::int64_t whole_share(std::int64_t total, std::int64_t count) { return count == 0 ? 0 : total / count; }

double add(double t, double x) { return t + x; }
double add_square(double t, double x) { return t + x * x; }
double add_magnitude(double t, double x) { return t + std::fabs(x); }
double multiply(double t, double x) { return t * x; }
double larger_total(double t, double x) { return std::isnan(x) || x > t ? x : t; }
double smaller_total(double t, double x) { return std::isnan(x) || x < t ? x : t; }

// Sums and products of integers wrap on overflow.
using Integer = std::int64_t;
using Unsigned = std::uint64_t;
Integer add(Integer t, Integer x) { return static_cast<Integer>(Unsigned(t) + Unsigned(x)); }
Integer multiply(Integer t, Integer x) { return static_cast<Integer>(Unsigned(t) * Unsigned(x)); }
Integer add_square(Integer t, Integer x) { return add(t, multiply(x, x)); }
Integer add_magnitude(Integer t, Integer x) { return add(t, x < 0 ? multiply(x, -1) : x); }
Integer larger_total(Integer t, Integer x) { return std::max(t, x); }
Integer smaller_total(Integer t, Integer x) { return std::min(t, x); }

const Reduction kReductions[] = {
    {"ReduceSum", {0, add, keep_total}, {0, add, keep_total}},
    {"ReduceMean", {0, add, share}, {0, add, whole_share}},
    {"ReduceMax", {-INFINITY, larger_total, keep_total}, {INT64_MIN, larger_total, keep_total}},
    {"ReduceMin", {INFINITY, smaller_total, keep_total}, {INT64_MAX, smaller_total, keep_total}},
    {"ReduceProd", {1, multiply, keep_total}, {1, multiply, keep_total}},
    {"ReduceSumSquare", {0, add_square, keep_total}, {0, add_square, keep_total}},
    {"ReduceL1", {0, add_magnitude, keep_total}, {0, add_magnitude, keep_total}},
    {"ReduceL2", {0, add_square, root}, {}},
    {"ReduceLogSum", {0, add, logarithm}, {}},
};

// Reduces x. If x stores a single element for a kept axis, the result does so too. A reduced axis is walked in full
// even if x stores a single element for it, because each repetition of the element counts.
template <typename T>
Array reduce(const Node &node, const Steps<T> &steps, const Array &x, const Type &type) {
  const std::vector<bool> reduced = reduced_axes(node, x.shape().size());
  Shape walked = x.stored();
  for (std::size_t i = 0; i < walked.size(); ++i)
    if (reduced[i]) walked[i] = x.shape()[i];
  const Shape kept = kept_shape(walked, reduced);
  const std::vector<T> values = stored_values<T>(x);
  std::vector<T> totals(static_cast<std::size_t>(element_count(kept)), steps.start);
  Runs<2> runs{walked, {x.strides(), strides_over(kept, walked)}};
  runs.simplify();
  runs.for_each([&](std::int64_t count, const auto &offsets, const auto &by) {
    for (std::int64_t i = 0; i < count; ++i) {
      T &total = totals[static_cast<std::size_t>(offsets[1] + i * by[1])];
      total = steps.add(total, values[static_cast<std::size_t>(offsets[0] + i * by[0])]);
    }
  });
  std::int64_t count = 1;
  for (std::size_t i = 0; i < walked.size(); ++i)
    if (reduced[i]) count *= walked[i];
  for (T &total : totals) total = steps.finish(total, static_cast<T>(count));
  // Without keepdims, drops the reduced axes from the result's shape.
  Shape stored;
  for (std::size_t i = 0; i < kept.size(); ++i)
    if (!reduced[i] || type.shape.size() == kept.size()) stored.push_back(kept[i]);
  return array_of(type, stored, totals);
}

std::vector<Array> evaluate_reduce(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const Reduction &reduction = *std::ranges::find(kReductions, std::string_view(node.op), &Reduction::name);
  if (in[0]->dtype() == DType::boolean) {  // an empty ReduceMax is false, an empty ReduceMin true
    Steps<std::int64_t> steps = reduction.integers;
    steps.start = node.op == "ReduceMin" ? 1 : 0;
    return {reduce(node, steps, *in[0], out[0])};
  }
  if (is_float(in[0]->dtype()) || reduction.integers.add == nullptr)
    return {reduce(node, reduction.reals, *in[0], out[0])};
  return {reduce(node, reduction.integers, *in[0], out[0])};
}

// Evaluates ReduceLogSumExp as max + log(sum(exp(x - max))), so that no exponential overflows.
std::vector<Array> evaluate_log_sum_exp(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  Node keeping = node;
  keeping.attributes.set("keepdims", std::int64_t{1});
  const Shape &shape = in[0]->shape();
  const Type kept = {DType::f64, kept_shape(shape, reduced_axes(node, shape.size()))};
  const Array most = reduce(keeping, Steps<double>{-INFINITY, larger_total, keep_total}, *in[0], kept);
  const std::array<const Array *, 2> operands = {in[0], &most};
  const Array powers = map_elements<double>({DType::f64, shape}, operands,
                                            [](double x, double m) { return std::exp(std::isinf(m) ? x : x - m); });
  const Array sums = reduce(keeping, Steps<double>{0, add, logarithm}, powers, kept);
  const std::array<const Array *, 2> parts = {&sums, &most};
  return {map_elements<double>({out[0].dtype, kept.shape}, parts, [](double log, double m) {
            return std::isinf(m) ? log : log + m;
          }).reshaped(out[0].shape)};
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
  const std::int64_t length = shape[axis], inner = row_major_strides(shape)[axis];
  std::vector<std::int64_t> best(x.size() / static_cast<std::size_t>(length));
  for (std::size_t line = 0; line < best.size(); ++line) {
    const auto n = static_cast<std::int64_t>(line);
    const double *from = x.data() + n / inner * length * inner + n % inner;
    for (std::int64_t i = 1; i < length; ++i) {
      const double found = from[best[line] * inner], next = from[i * inner];
      if ((largest ? next > found : next < found) || (last && next == found)) best[line] = i;
    }
  }
  return {Array::from_integers(out[0], best)};
}

// Returns `value` with the reduced axes restored as 1, so that it broadcasts over x.
ValueId keep_axes(GradientBuilder &builder, const Node &node, ValueId value) {
  const Shape x = builder.type(node.inputs[0]).shape;
  const Shape kept = kept_shape(x, reduced_axes(node, x.size()));
  return builder.type(value).shape == kept ? value : builder.emit("Reshape", {value}, {{"shape", kept}});
}

void differentiate_sum(GradientBuilder &builder, const Node &node) {
  ValueId dy = gradient_for(builder, node);
  if (dy == ValueId::none) return;
  dy = keep_axes(builder, node, dy);
  const Type x = builder.type(node.inputs[0]);
  if (node.op == "ReduceMean") {
    const double share = static_cast<double>(element_count(builder.type(dy).shape)) /
                         static_cast<double>(std::max<std::int64_t>(1, element_count(x.shape)));
    dy = builder.emit("Mul", {dy, builder.constant({x.dtype, {}}, share)});
  }
  builder.contribute(node.inputs[0],
                     builder.type(dy).shape == x.shape ? dy : builder.emit("Expand", {dy}, {{"shape", x.shape}}));
}

// Differentiates ReduceMax and ReduceMin. The gradient goes in equal shares to the elements that equal the extreme
// value.
void differentiate_extreme(GradientBuilder &builder, const Node &node) {
  ValueId dy = gradient_for(builder, node);
  if (dy == ValueId::none) return;
  dy = keep_axes(builder, node, dy);
  const ValueId x = node.inputs[0], y = keep_axes(builder, node, node.outputs[0]);
  const Type type = builder.type(x);
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
    op.file_only = op.gradient == nullptr;
    family.push_back(std::move(op));
  }
  family.push_back({.name = "ReduceLogSumExp",
                    .infer = infer_reduce,
                    .evaluate = evaluate_log_sum_exp,
                    .absorbed = {{1, "axes"}},
                    .file_only = true});
  family.push_back({.name = "ArgMax", .infer = infer_arg, .evaluate = evaluate_arg});
  family.push_back({.name = "ArgMin", .infer = infer_arg, .evaluate = evaluate_arg});
  return family;
}

}  // namespace protrain::ops
