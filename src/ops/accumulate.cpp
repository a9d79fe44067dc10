// Operators that combine several micro-batches into one step. They sum gradients, each multiplied by the weight of its
// micro-batch, so that the mean gradient is that of one large batch.
//
//   Accumulate(sum, x[, weight]) -> sum + weight * x, in place. In the step's first micro-batch the result is
//                                   weight * x, and `sum` is not read. A weight of 0 leaves x out, even if it is NaN.
//                                   Sums of float16 and bfloat16 are float32.
//   SumParts(x[, weight]){parts, shape} -> the sum of the parts of x, in new memory. It is what Accumulate leaves in
//                                          `sum` if the parts are the step's first micro-batches.
//   CountTargets(labels[, weights]){ignore_index} -> float64 scalar: number of labels that are not the ignored one, or
//                                                    the sum of their weights
//   CountedLoss(loss, weight) -> loss, or 0 if the weight is 0: the mean over no targets is NaN and must not count
//
// With the attribute `parts` = N, Accumulate adds N micro-batches in one launch. SumParts always does so. x consists of
// N parts of equal size, one per micro-batch. Each part holds as many elements as `sum`, then padding. The result has
// the same bits as N launches, one per part. In the step's first launch, the first part starts the sum and the others
// are added to it. `weight` is a scalar for all parts, or a vector of N.
#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

const Type kWeight = {DType::f64, {}};

// Checks that input `at` can be added to `sum`. If input `at` + 1 is there, checks it too: it is the weight by which
// input `at` is multiplied.
void require_parts(const NodeTypes &types, const Type &sum, std::size_t at) {
  const Type &x = types.input(at);
  const bool has_parts = types.node.attributes.has("parts");
  const std::int64_t parts = types.node.attributes.integer("parts", 1), elements = element_count(x.shape);
  require(parts >= 1, Code::arg, types.subject(), "{} parts are added; at least 1 is expected", parts);
  const bool fits =
      has_parts ? elements % parts == 0 && elements / parts >= element_count(sum.shape) : x.shape == sum.shape;
  require(fits && is_float(x.dtype) && sum.dtype == sum_dtype(x.dtype), Code::type, types.subject(),
          "{} with {} parts cannot be added to {}", to_text(x), parts, to_text(sum));
  if (types.has(at + 1)) {
    const Type &weight = types.input(at + 1);
    require(weight == kWeight || (has_parts && weight == Type{DType::f64, {parts}}), Code::type, types.subject(),
            "the weight is {}; {}{} is expected", to_text(weight), to_text(kWeight),
            has_parts ? ", or one for each part," : "");
  }
}

std::vector<Type> infer_accumulate(const NodeTypes &types) {
  require_parts(types, types.input(0), 1);
  return {types.input(0)};
}

std::vector<Type> infer_sum_parts(const NodeTypes &types) {
  const Type sum = {sum_dtype(types.input(0).dtype), types.node.attributes.integers("shape")};
  require_parts(types, sum, 0);
  return {sum};
}

std::vector<Type> infer_count(const NodeTypes &types) {
  require(is_integer(types.input(0).dtype), Code::type, types.subject(), "labels are {}, not integers",
          name_of(types.input(0).dtype));
  require(!types.has(1) || types.input(1) == Type{DType::f32, types.input(0).shape}, Code::type, types.subject(),
          "weights of labels are {}", types.has(1) ? to_text(types.input(1)) : "");
  return {kWeight};
}

std::vector<Array> evaluate_count(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const std::vector<std::int64_t> labels = in[0]->integers();
  const std::vector<double> weights =
      optional_input(in, 1) != nullptr ? in[1]->doubles() : std::vector<double>(labels.size(), 1.0);
  double count = 0;
  for (std::size_t i = 0; i < labels.size(); ++i)
    if (!node.attributes.has("ignore_index") || labels[i] != node.attributes.integer("ignore_index", 0))
      count += weights[i];
  return {array_of(out[0], std::vector<double>{count})};
}

std::vector<Type> infer_counted_loss(const NodeTypes &types) {
  require(is_float(types.input(0).dtype) && element_count(types.input(0).shape) == 1 && types.input(1) == kWeight,
          Code::type, types.subject(), "{} and {} do not fit as a loss and its weight", to_text(types.input(0)),
          to_text(types.input(1)));
  return {types.input(0)};
}

std::vector<Array> evaluate_counted_loss(const Node &, std::span<const Array *const> in, std::span<const Type> out) {
  const double loss = in[0]->doubles()[0], weight = in[1]->stored_double(0);
  return {array_of(out[0], std::vector<double>{weight != 0 ? loss : 0})};
}

}  // namespace

// Accumulate has no reference evaluation, because its result depends on earlier micro-batches.
Family accumulate_family() {
  return {{.name = "Accumulate", .infer = infer_accumulate, .optional = {2}, .storage = Storage::in_place},
          {.name = "SumParts", .infer = infer_sum_parts, .optional = {1}},
          {.name = "CountTargets", .infer = infer_count, .evaluate = evaluate_count, .optional = {1}},
          {.name = "CountedLoss", .infer = infer_counted_loss, .evaluate = evaluate_counted_loss}};
}

}  // namespace protrain::ops
