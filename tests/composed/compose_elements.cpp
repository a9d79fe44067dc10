// Steps that work element by element.
#include "base/error.h"
#include "composed/composer.h"

namespace protrain::test {

void Composer::unary() {
  const char *op = dice_.of<const char *>(
      {"Neg",   "Abs",      "Erf",      "Tanh",        "Sigmoid",         "Relu",   "LeakyRelu", "Elu", "Celu",
       "Selu",  "Softplus", "Softsign", "HardSigmoid", "HardSwish",       "Mish",   "Sin",       "Cos", "Atan",
       "Asinh", "Gelu",     "Swish",    "Clip",        "ThresholdedRelu", "Shrink", "Identity"});
  const std::string name = op;
  Attributes attributes;
  if (name == "LeakyRelu" || name == "Elu" || name == "Celu") attributes.set("alpha", dice_.of({0.125, 0.5, 1.5}));
  if (name == "Swish") attributes.set("alpha", dice_.of({1.0, 1.75}));
  if (name == "ThresholdedRelu") attributes.set("alpha", 0.25);
  if (name == "Shrink") attributes = {{"lambd", 0.25}, {"bias", dice_.of({0.0, 0.125})}};
  if (name == "Gelu" && dice_.chance(0.5)) attributes.set("approximate", std::string("tanh"));
  if (name == "Clip" && dice_.chance(0.8)) attributes.set("min", -0.375);
  if (name == "Clip" && dice_.chance(0.8)) attributes.set("max", 0.625);
  keep(add(name, {any()}, attributes));
}

void Composer::unary_in_domain() {
  switch (dice_.below(5)) {
    case 0:
      return keep(add(dice_.of<const char *>({"Log", "Sqrt", "Reciprocal"}), {positive(any())}));
    case 1:
      return keep(
          add(dice_.of<const char *>({"Exp", "Tan", "Asin", "Acos", "Atanh", "Sinh", "Cosh"}), {bounded(any())}));
    case 2:
      return keep(add("Acosh", {add("Add", {positive(any()), number(1)})}));
    case 3: {  // the square root of a square, like a hand-written norm
      const ValueId x = any();
      return keep(add("Sqrt", {add("Add", {add("Mul", {x, x}), number(1e-3)})}));
    }
    default:
      return keep(add("Div", {number(1), positive(any())}));
  }
}

// Adds an operator such as Floor, whose slope is 0 or undefined everywhere. So no gradient passes through the operator.
void Composer::flat() {
  const ValueId x = any();
  const ValueId y = add(dice_.of<const char *>({"Floor", "Ceil", "Round", "Sign"}), {add("Mul", {x, number(3)})});
  keep(dice_.chance(0.5) ? add("Add", {x, y}) : add("Mul", {x, y}));
}

void Composer::binary() {
  const ValueId x = any(), y = fitting(x);
  const bool swapped = dice_.chance(0.3);
  switch (dice_.below(6)) {
    case 0:
      return keep(add("Div", {x, positive(y)}));
    case 1:
      return keep(add(dice_.of<const char *>({"Max", "Min"}), {x, y}));
    case 2:
      return keep(add("Mod", {x, positive(y)}, {{"fmod", std::int64_t{1}}}));
    default:
      return keep(add(dice_.of<const char *>({"Add", "Sub", "Mul"}), swapped ? std::vector{y, x} : std::vector{x, y}));
  }
}

void Composer::many() {
  const ValueId x = any();
  std::vector<ValueId> operands = {x};
  for (std::int64_t i = dice_.below(3); i >= 0; --i) operands.push_back(dice_.chance(0.2) ? x : fitting(x));
  keep(add(dice_.of<const char *>({"Sum", "Mean", "Max", "Min"}), operands));
}

void Composer::choose() {
  const ValueId x = any(), y = fitting(x);
  ValueId condition;
  switch (dice_.below(4)) {
    case 0:
      condition = truths(shape(x));
      break;
    case 1:
      condition = truths({shape(x).back()});
      break;
    case 2:
      return keep(add("PRelu", {x, parameter({dice_.chance(0.5) ? 1 : shape(x).back()})}));
    default:
      condition = add(dice_.of<const char *>({"Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"}), {x, y});
      if (dice_.chance(0.3)) condition = add("Not", {condition});
      if (dice_.chance(0.3))
        condition = add(dice_.of<const char *>({"And", "Or", "Xor"}), {condition, truths(shape(x))});
  }
  keep(add("Where", {condition, dice_.chance(0.2) ? number(0.5) : x, y}));
}

void Composer::power() {
  const ValueId x = any();
  switch (dice_.below(4)) {
    case 0:
      return keep(add("Pow", {x, number(dice_.of({1.0, 2.0, 3.0}))}));
    case 1:
      return keep(add("Pow", {positive(x), number(dice_.of({0.5, -0.5, 1.5}))}));
    case 2:
      return keep(add("Pow", {x, integers({dice_.between(0, 3)}, {})}));
    default:
      return keep(add("Pow", {positive(x), bounded(fitting(x))}));
  }
}

// Adds a cast to integers and back. No gradient passes through it.
void Composer::from_cast() {
  const ValueId x = any();
  const std::string back(name_of(floats_));
  switch (dice_.below(3)) {
    case 0: {
      const ValueId whole = add("Cast", {add("Mul", {x, number(4)})}, {{"to", std::string("int64")}});
      return keep(add("Add", {x, add("Cast", {whole}, {{"to", back}})}));
    }
    case 1: {
      const ValueId positive = add("Greater", {x, number(0)});
      return keep(add("Mul", {x, add("Cast", {positive}, {{"to", back}})}));
    }
    default:
      return keep(add("CastLike", {x, x}));
  }
}

void Composer::gated() {
  const ValueId g = any();
  ValueId u = g;
  for (int i = 0; i < 6; ++i)
    if (const ValueId other = dice_.of(pool_); shape(other) == shape(g)) u = other;
  if (u == g) u = add("Add", {g, parameter({shape(g).back()})});
  ValueId f = add(dice_.of<const char *>({"Sigmoid", "Gelu", "Relu", "Tanh"}), {g});
  if (dice_.chance(0.5)) f = add("Mul", {g, add("Sigmoid", {g})});  // SiLU written as single operators
  keep(add("Mul", dice_.chance(0.5) ? std::vector{f, u} : std::vector{u, f}));
  if (dice_.chance(0.2)) keep(f);
}

}  // namespace protrain::test
