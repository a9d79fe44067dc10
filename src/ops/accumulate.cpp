// Operators that make one step of several micro-batches. They sum gradients, each times the weight of its micro-batch,
// so that the mean gradient is that of one large batch.
//
//   Accumulate(sum, x[, weight]) -> sum + weight * x, in place. In the step's first micro-batch it is weight * x, and
//                                   `sum` is not read. A weight of 0 leaves x out, even if it is NaN. Sums of
//                                   float16 and bfloat16 are float32.
//   CountTargets(labels){ignore_index} -> float64 scalar: number of labels that are not the ignored one
//   CountedLoss(loss, weight) -> loss, or 0 if the weight is 0: the mean over no targets is NaN and must not count
#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

const Type kWeight = {DType::f64, {}};

std::vector<Type> infer_accumulate(const NodeTypes &types) {
  const Type &sum = types.input(0);
  const Type &x = types.input(1);
  const bool fits = is_float(x.dtype) && sum == Type{sum_dtype(x.dtype), x.shape};
  require(fits, Code::type, types.subject(), "{} cannot be added to {}", to_text(x), to_text(sum));
  if (types.has(2))
    require(types.input(2) == kWeight, Code::type, types.subject(), "the weight is {}, not {}", to_text(types.input(2)),
            to_text(kWeight));
  return {sum};
}

std::vector<Type> infer_count(const NodeTypes &types) {
  require(is_integer(types.input(0).dtype), Code::type, types.subject(), "labels are {}, not integers",
          name_of(types.input(0).dtype));
  return {kWeight};
}

std::vector<Array> evaluate_count(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  double count = 0;
  for (std::int64_t label : in[0]->integers())
    count += !node.attributes.has("ignore_index") || label != node.attributes.integer("ignore_index", 0);
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
  return {array_of(out[0], std::vector<double>{weight > 0 ? loss : 0})};
}

}  // namespace

// Accumulate has no reference evaluation, because its result depends on the micro-batches before.
Family accumulate_family() {
  return {{.name = "Accumulate", .infer = infer_accumulate, .optional = {2}, .storage = Storage::in_place},
          {.name = "CountTargets", .infer = infer_count, .evaluate = evaluate_count},
          {.name = "CountedLoss", .infer = infer_counted_loss, .evaluate = evaluate_counted_loss}};
}

}  // namespace protrain::ops
