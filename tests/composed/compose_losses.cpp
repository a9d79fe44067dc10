// Steps that add losses: single, scaled or summed ones, and penalties on weights and activations.
#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "composed/composer.h"

namespace protrain::test {

namespace {
const Attributes kScalar = {{"keepdims", std::int64_t{0}}};
}

// Returns logits (rows, classes), computed by Gemm, by MatMul and Add, or by MatMul without a bias.
ValueId Composer::head(ValueId rows, std::int64_t classes) {
  const std::int64_t width = shape(rows).back();
  switch (dice_.below(3)) {
    case 0:
      return add("Gemm", {rows, parameter({classes, width}), parameter({classes})}, {{"transB", std::int64_t{1}}});
    case 1:
      return add("Add", {add("MatMul", {rows, parameter({width, classes})}), parameter({classes})});
    default:
      return add("MatMul", {rows, parameter({width, classes})});
  }
}

// Returns the weights of classes, all positive: constants, or data.
ValueId Composer::class_weights(std::int64_t classes) {
  if (dice_.chance(0.5)) return add("Add", {add("Abs", {input({classes})}), number(0.5)});
  std::vector<double> values(static_cast<std::size_t>(classes));
  for (double &value : values) value = static_cast<double>(static_cast<float>(dice_.real(0.5, 1.5)));
  return made_.graph.add_constant("weights", Array::from_doubles({floats_, {classes}}, values));
}

// Returns the LogSoftmax of scores (N, C, ...) over the classes. A Transpose before the LogSoftmax moves the classes to
// a random axis, and a Transpose after it moves them back.
ValueId Composer::moved_logs(ValueId scores) {
  Integers perm(rank(scores));
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[1], perm[static_cast<std::size_t>(dice_.chance(0.5) ? 0 : axis_of(scores))]);
  const auto axis = static_cast<std::int64_t>(std::ranges::find(perm, 1) - perm.begin());
  const Attributes swapped = {{"perm", perm}};
  return add("Transpose", {add("LogSoftmax", {add("Transpose", {scores}, swapped)}, {{"axis", axis}})}, swapped);
}

ValueId Composer::cross_entropy() {
  const ValueId x = of_rank(static_cast<std::size_t>(dice_.between(2, 3)));
  ValueId scores;
  Shape of_labels;
  if (rank(x) == 2) {
    scores = dice_.chance(0.8) ? head(x, dim() + 1) : x;
    of_labels = {shape(x)[0]};
  } else {
    scores = x;  // (N, C, d)
    of_labels = {shape(x)[0], shape(x)[2]};
  }
  if (dice_.chance(0.15)) keep(scores);
  const std::int64_t classes = shape(scores)[1];
  Attributes attributes = {{"reduction", std::string(dice_.of<const char *>({"mean", "mean", "sum", "none"}))}};
  const bool ignores = dice_.chance(0.4);
  if (ignores) attributes.set("ignore_index", dice_.of<std::int64_t>({-100, 0}));
  const ValueId labels = indices(of_labels, classes, true);
  Integers values = made_.data[labels].integers();
  for (std::int64_t &label : values) {
    if (label < 0) label += classes;
    if (ignores && dice_.chance(0.3)) label = attributes.integer("ignore_index", 0);
  }
  made_.data[labels] = Array::from_integers(made_.data[labels].type(), values);
  std::vector<ValueId> inputs = {scores, labels};
  if (dice_.chance(0.4)) inputs.push_back(class_weights(classes));
  ValueId loss;
  if (dice_.chance(0.3)) {
    inputs[0] = dice_.chance(0.7) ? add("LogSoftmax", {scores}, {{"axis", std::int64_t{1}}}) : moved_logs(scores);
    if (dice_.chance(0.2)) keep(inputs[0]);
    loss = add("NegativeLogLikelihoodLoss", inputs, attributes);
  } else {
    const std::vector<ValueId> made = add_all("SoftmaxCrossEntropyLoss", inputs, attributes, dice_.chance(0.3) ? 2 : 1);
    if (made.size() > 1 && dice_.chance(0.5)) keep(made[1]);
    loss = made[0];
  }
  return rank(loss) == 0 ? loss : add(dice_.of<const char *>({"ReduceMean", "ReduceSum"}), {loss}, kScalar);
}

ValueId Composer::regression() {
  const ValueId x = any(), target = dice_.chance(0.8) ? input(shape(x)) : fitting(x);
  ValueId error = add("Sub", {x, target});
  error = dice_.chance(0.6)   ? add("Mul", {error, error})
          : dice_.chance(0.5) ? add("Abs", {error})
                              : add("Pow", {error, number(2)});
  return add(dice_.of<const char *>({"ReduceMean", "ReduceSum"}), {error}, kScalar);
}

// A penalty on a parameter or on an activation.
ValueId Composer::penalty() {
  const ValueId x = dice_.chance(0.6) && !made_.graph.parameters.empty() ? dice_.of(made_.graph.parameters) : any();
  return add("Mul",
             {add(dice_.of<const char *>({"ReduceL1", "ReduceSumSquare", "ReduceMean"}), {x}, kScalar), number(0.1)});
}

ValueId Composer::one_loss() {
  switch (dice_.below(6)) {
    case 0:
      return regression();
    case 1:
      return penalty();
    case 2:
      return add(dice_.of<const char *>({"ReduceMean", "ReduceSum"}), {any()}, kScalar);
    default:
      return cross_entropy();
  }
}

ValueId Composer::joined_losses() {
  std::vector<ValueId> losses;
  for (std::int64_t wanted = dice_.of<std::int64_t>({1, 1, 2, 3}); wanted > 0; --wanted) try {
      losses.push_back(one_loss());
      if (dice_.chance(0.4)) losses.back() = add("Mul", {losses.back(), number(dice_.of({0.5, 2.0, -1.0}))});
    } catch (const Error &error) {
      if (error.code == Code::internal) throw;
    }
  if (losses.empty()) losses.push_back(add("ReduceSum", {any()}, kScalar));
  ValueId loss = losses[0];
  for (std::size_t i = 1; i < losses.size(); ++i)
    loss = add(dice_.of<const char *>({"Add", "Add", "Sub"}), {loss, losses[i]});
  switch (dice_.below(8)) {
    case 0:
      return add("Add", {loss, number(1)});
    case 1:
      return add("Mul", {loss, parameter({}, 0.5, 1.5)});
    case 2:
      return add("Reshape", {loss}, {{"shape", Integers{1}}});
    case 3:
      return add("Identity", {loss});
    default:
      return loss;
  }
}

}  // namespace protrain::test
