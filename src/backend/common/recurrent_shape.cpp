#include "backend/common/recurrent_shape.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"

namespace protrain::backend {

namespace {

using arith::Activation;

Activation activation_of(const KernelRequest &request, const std::string &key, const char *fallback, float clip) {
  const graph::Attributes &attributes = request.node.attributes;
  const std::string name = attributes.text(key, fallback);
  Activation made;
  require(arith::find_activation(name, made.kind), Code::unsupported, subject(request), "{} has no loop for {}",
          request.node.op, name);
  made.k = {static_cast<float>(attributes.real(key + "_alpha", 0)),
            static_cast<float>(attributes.real(key + "_beta", 0))};
  if (std::isinf(clip)) return made;
  made.clip = clip;
  const auto edge = [&](float x) {
    return arith::with_activation(made.kind, [&](auto f) { return arith::value_of<decltype(f)>(made, x); });
  };
  // Backward reads values that were rounded when they were saved. A clipped value has derivative 0, but rounding can
  // move it inside the limits. So `low` and `high` are moved inwards by the error of rounding, and the value still
  // counts as clipped.
  const DType saved = request.inputs.at(kWeights).dtype;
  const float margin = saved == DType::bf16 ? 0x1p-8F : saved == DType::f16 ? 0x1p-11F : 0x1p-20F;
  const auto [low, high] = std::minmax({edge(-clip), edge(clip)});
  made.low = low + margin * std::abs(low);
  made.high = high - margin * std::abs(high);
  return made;
}

RecurrentShape::Cell cell_of(const std::string &op) {
  using enum RecurrentShape::Cell;
  return op.starts_with("Lstm") ? lstm : op.starts_with("Gru") ? gru : rnn;
}

}  // namespace

RecurrentShape::RecurrentShape(const KernelRequest &request) : cell(cell_of(request.node.op)) {
  const graph::Attributes &attributes = request.node.attributes;
  const bool gradient = request.node.op.ends_with("Grad");
  const std::size_t per_step = !gradient ? kX : cell == Cell::lstm ? kGates : kStates;
  steps = request.inputs.at(per_step).shape.at(0);
  batch = request.inputs[per_step].shape.at(1);
  units = request.inputs.at(kWeights).shape.at(1);
  gates = cell == Cell::lstm ? 4 : cell == Cell::gru ? 3 : 1;
  reverse = attributes.integer("reverse", 0) != 0;
  resets_product = cell == Cell::gru && attributes.integer("linear_before_reset", 0) != 0;
  resets_state = cell == Cell::gru && !resets_product;
  saved = cell == Cell::rnn ? 0 : resets_product ? 4 : gates;
  couples = attributes.integer("input_forget", 0) != 0;
  const auto clip = static_cast<float>(attributes.real("clip", HUGE_VAL));
  f = activation_of(request, "f", cell == Cell::rnn ? "Tanh" : "Sigmoid", clip);
  g = activation_of(request, "g", "Tanh", clip);
  h = activation_of(request, "h", "Tanh", HUGE_VALF);
}

}  // namespace protrain::backend
