// What a step reports of its gradients.
#include <cmath>

#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

std::vector<Type> infer_squared(const NodeTypes &types) {
  require(is_float(types.input(0).dtype), Code::type, types.subject(), "{} has no norm", name_of(types.input(0).dtype));
  return {{DType::f64, {}}};
}

std::vector<Array> evaluate_squared(const Node &, std::span<const Array *const> in, std::span<const Type> out) {
  double sum = 0;
  for (double x : in[0]->doubles()) sum += x * x;
  return {array_of(out[0], std::vector<double>{sum})};
}

std::vector<Type> infer_global(const NodeTypes &types) {
  for (std::size_t i = 0; i < types.inputs.size(); ++i)
    require(types.input(i) == Type({DType::f64, {}}), Code::type, types.subject(), "{} is no squared norm",
            to_text(types.input(i)));
  return {{DType::f64, {}}};
}

std::vector<Array> evaluate_global(const Node &, std::span<const Array *const> in, std::span<const Type> out) {
  double sum = 0;
  for (const Array *squared : in) sum += squared->stored_double(0);
  return {array_of(out[0], std::vector<double>{std::sqrt(sum)})};
}

}  // namespace

Family norm_family() {
  return {{.name = "SquaredNorm", .infer = infer_squared, .evaluate = evaluate_squared},
          {.name = "GlobalNorm", .infer = infer_global, .evaluate = evaluate_global}};
}

}  // namespace protrain::ops
