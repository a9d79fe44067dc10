// Composes the model: its inputs, steps and loss. Also defines the functions from which steps are built.
#include "composed/composer.h"

#include <algorithm>

#include "base/error.h"
#include "ops/op.h"

namespace protrain::test {

namespace {
std::uint64_t mixed(std::uint64_t a, std::uint64_t b) { return Dice(a * 0x2545F4914F6CDD1Du + b).bits(); }
}  // namespace

Composer::Composer(const Recipe &recipe, DType floats) : recipe_(recipe), floats_(floats), dice_(recipe.seed) {}

const std::vector<Composer::Step> &Composer::steps() {
  using C = Composer;
  static const std::vector<Step> all = {&C::unary,        &C::unary,      &C::unary_in_domain,
                                        &C::flat,         &C::binary,     &C::binary,
                                        &C::many,         &C::choose,     &C::power,
                                        &C::linear,       &C::linear,     &C::linear,
                                        &C::gemm,         &C::products,   &C::einsum,
                                        &C::reshape,      &C::move,       &C::cut,
                                        &C::join,         &C::pad,        &C::reduce,
                                        &C::reduce,       &C::along_axis, &C::top_k,
                                        &C::softmax,      &C::layer_norm, &C::norm_by_hand,
                                        &C::channel_norm, &C::gather,     &C::scatter,
                                        &C::one_hot,      &C::convolve,   &C::pool,
                                        &C::resize,       &C::attention,  &C::attention_by_hand,
                                        &C::rotary,       &C::gated,      &C::layers,
                                        &C::from_cast};
  return all;
}

Composition Composer::compose() {
  dice_ = Dice(mixed(recipe_.seed, 0));
  made_.steps = static_cast<int>(dice_.between(1, dice_.chance(0.3) ? 14 : 7));
  for (int i = static_cast<int>(dice_.between(1, 2)); i > 0; --i) {
    const ValueId x = input(random_shape(static_cast<std::size_t>(dice_.between(1, 4))));
    if (dice_.chance(0.7)) keep(add(dice_.of<const char *>({"Add", "Mul"}), {x, parameter({shape(x).back()})}));
  }
  for (int step = 0; step < made_.steps; ++step) {
    dice_ = Dice(mixed(recipe_.seed, static_cast<std::uint64_t>(step) + 1));
    if (recipe_.skipped.contains(step)) continue;
    try {
      (this->*dice_.of(steps()))();
    } catch (const Error &error) {  // the step's shapes do not fit; nodes added before are complete
      if (error.code == Code::internal) throw;
    }
  }
  dice_ = Dice(mixed(recipe_.seed, 1000));
  made_.loss = joined_losses();
  made_.graph.outputs = {made_.loss};
  std::vector<ValueId> trained;
  for (ValueId id : made_.graph.parameters)
    if (!(made_.graph.value(id).frozen = dice_.chance(0.15))) trained.push_back(id);
  if (trained.empty() && !made_.graph.parameters.empty()) made_.graph.value(made_.graph.parameters[0]).frozen = false;
  return std::move(made_);
}

std::vector<ValueId> Composer::add_all(const std::string &op, std::vector<ValueId> inputs, Attributes attributes,
                                       std::size_t outputs) {
  graph::Node node{.op = op,
                   .name = "/" + op + "_" + std::to_string(made_.graph.node_count()),
                   .attributes = std::move(attributes),
                   .inputs = std::move(inputs),
                   .outputs = {}};
  const std::vector<graph::Type> types = ops::infer(made_.graph, node);
  const graph::NodeId id = made_.graph.add_node(std::move(node), std::vector<std::string>(outputs, op));
  const std::vector<ValueId> made = made_.graph.node(id).outputs;
  for (std::size_t i = 0; i < outputs; ++i) made_.graph.value(made[i]).type = types.at(i);
  return made;
}

ValueId Composer::number(double value) {
  return made_.graph.add_constant("number", Array::scalar(floats_, static_cast<double>(static_cast<float>(value))));
}

ValueId Composer::integers(const Integers &values, Shape shape) {
  return made_.graph.add_constant("integers", Array::from_integers({DType::i64, std::move(shape)}, values));
}

ValueId Composer::parameter(Shape shape, double low, double high) {
  if (dice_.chance(0.25))
    for (ValueId id : made_.graph.parameters)
      if (this->shape(id) == shape) return id;
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  for (double &value : values) value = static_cast<double>(static_cast<float>(dice_.real(low, high)));
  const ValueId id = made_.graph.add_value({.name = "w" + std::to_string(made_.graph.parameters.size()),
                                            .type = {floats_, shape},
                                            .origin = graph::Origin::parameter});
  made_.graph.parameters.push_back(id);
  made_.data[id] = Array::from_doubles({floats_, shape}, values);
  return id;
}

ValueId Composer::input(Shape shape) {
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  for (double &value : values) value = static_cast<double>(static_cast<float>(dice_.real(-1, 1)));
  const ValueId id = made_.graph.add_value({.name = "x", .type = {floats_, shape}, .origin = graph::Origin::input});
  made_.graph.inputs.push_back(id);
  made_.data[id] = Array::from_doubles({floats_, shape}, values);
  keep(id);
  return id;
}

ValueId Composer::indices(Shape shape, std::int64_t below, bool from_data) {
  Integers values(static_cast<std::size_t>(element_count(shape)));
  const bool negative = dice_.chance(0.2);
  require(below > 0 || values.empty(), Code::shape, "", "nothing to point to");
  for (std::int64_t &value : values) value = dice_.between(negative ? -below : 0, below - 1);
  if (!from_data) return integers(values, shape);
  const DType dtype = dice_.chance(0.3) ? DType::i32 : DType::i64;
  const ValueId id = made_.graph.add_value({.name = "i", .type = {dtype, shape}, .origin = graph::Origin::input});
  made_.graph.inputs.push_back(id);
  made_.data[id] = Array::from_integers({dtype, shape}, values);
  return id;
}

ValueId Composer::truths(Shape shape) {
  Integers values(static_cast<std::size_t>(element_count(shape)));
  for (std::int64_t &value : values) value = dice_.below(2);
  const ValueId id =
      made_.graph.add_value({.name = "b", .type = {DType::boolean, shape}, .origin = graph::Origin::input});
  made_.graph.inputs.push_back(id);
  made_.data[id] = Array::from_integers({DType::boolean, shape}, values);
  return id;
}

ValueId Composer::positive(ValueId x) {
  const auto least = [&](ValueId y) { return add("Add", {y, number(dice_.of({0.1, 0.5, 1.0}))}); };
  switch (dice_.below(5)) {
    case 0:
      return least(add("Mul", {x, x}));
    case 1:
      return least(add("Sigmoid", {x}));
    case 2:
      return least(add("Softplus", {x}));
    case 3:
      return least(add("Abs", {x}));
    default:
      return least(add("Exp", {bounded(x)}));
  }
}

ValueId Composer::bounded(ValueId x) {
  const ValueId y = add(dice_.of<const char *>({"Tanh", "Sin", "Softsign", "Erf"}), {x});
  return add("Mul", {y, number(0.875)});
}

std::int64_t Composer::dim() {
  if (recipe_.empty_axes && dice_.chance(0.1)) return 0;
  return dice_.of<std::int64_t>({1, 1, 2, 2, 3, 4, 4, 5, 6, 8});
}

Shape Composer::random_shape(std::size_t rank) {
  Shape shape(rank);
  for (std::int64_t &d : shape) d = rank > 3 ? std::min<std::int64_t>(dim(), 4) : dim();
  return shape;
}

// Returns a float value of the pool. The last three values are more likely than others. A scalar is reshaped to {1}.
ValueId Composer::any() {
  const auto late = std::min<std::int64_t>(3, static_cast<std::int64_t>(pool_.size()));
  const ValueId id =
      dice_.chance(0.5) ? pool_[pool_.size() - 1 - static_cast<std::size_t>(dice_.below(late))] : dice_.of(pool_);
  return rank(id) > 0 ? id : add("Reshape", {id}, {{"shape", Integers{1}}});
}

ValueId Composer::of_rank(std::size_t wanted) {
  const ValueId x = any();
  if (rank(x) == wanted) return x;
  Shape joined(wanted, 1);
  for (std::size_t i = 0; i < rank(x); ++i) {
    const std::size_t at =
        rank(x) > wanted ? (i < rank(x) - wanted ? 0 : i - (rank(x) - wanted)) : i + wanted - rank(x);
    joined[at] *= shape(x)[i];
  }
  return add("Reshape", {x}, {{"shape", joined}, {"allowzero", std::int64_t{1}}});
}

ValueId Composer::fitting(ValueId x) {
  const Shape of_x = shape(x);
  if (dice_.chance(0.5))
    for (int i = 0; i < 4; ++i) {
      const ValueId y = dice_.of(pool_);
      try {
        broadcast(of_x, shape(y), "");
        return y;
      } catch (const Error &) {
      }
    }
  Shape part(of_x.begin() + dice_.below(static_cast<std::int64_t>(of_x.size()) + 1), of_x.end());
  for (std::int64_t &d : part)
    if (dice_.chance(0.3)) d = 1;
  return parameter(part);
}

}  // namespace protrain::test
