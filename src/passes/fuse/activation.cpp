// Fuses activations that are written as several operators:
// - GELU: x * (1 + f) / 2 in any algebraic order; f is erf(x / sqrt(2)) or tanh(sqrt(2 / pi) * (x + 0.044715 x^3))
// - SiLU: x * sigmoid(x)
// - gated activations: an activation times another value, as in SwiGLU
// - logarithms of probabilities: log(sigmoid(x)) and log(1 - sigmoid(x)). In float32, 1 - sigmoid(17) is 0 and its
//   logarithm is infinite; a Softplus stays exact
#include <cmath>
#include <numbers>

#include "ops/op.h"
#include "passes/fuse/fuse.h"

namespace protrain::passes {

namespace {

// Returns the first Tanh or Erf in the expression that computes `id`. Looks at most 4 nodes deep, and only through
// values that have one reader.
const Node *bend(const Rewriter &r, ValueId id, int depth = 0) {
  const Node *node = r.uses(id) == 1 ? r.producer(id) : nullptr;
  if (node == nullptr || depth > 3) return nullptr;
  if (node->op == "Tanh" || node->op == "Erf") return node;
  if (node->op != "Add" && node->op != "Mul" && node->op != "Div") return nullptr;
  for (ValueId in : node->inputs)
    if (const Node *found = bend(r, in, depth + 1)) return found;
  return nullptr;
}

// Returns Gelu's attribute `approximate`: "none" if half * u is (1 + erf(x / sqrt(2))) / 2, and "tanh" if half * u is
// (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2. Returns "" for other expressions.
std::string approximation(const Rewriter &r, double half, ValueId u, ValueId x) {
  const Node *curve = bend(r, u);
  if (curve == nullptr) return "";
  const auto outer = polynomial_in(r, u, curve->outputs[0]);
  const auto inner = polynomial_in(r, curve->inputs[0], x);
  if (!outer || !inner || (*outer)[2] != 0 || (*outer)[3] != 0) return "";
  if (!near(half * (*outer)[0], 0.5) || !near(half * (*outer)[1], 0.5)) return "";
  if ((*inner)[0] != 0 || (*inner)[2] != 0) return "";
  const double slope = std::sqrt(2 / std::numbers::pi);
  if (curve->op == "Erf" && near((*inner)[1], std::numbers::sqrt2 / 2) && (*inner)[3] == 0) return "none";
  if (curve->op == "Tanh" && near((*inner)[1], slope) && near((*inner)[3], slope * 0.044715)) return "tanh";
  return "";
}

}  // namespace

bool fuse_gelu(Fusion &fusion, const Node &top) {
  Rewriter &r = fusion.r;
  const Product product = product_of(r, top);
  if (product.factors.size() != 2 || product.factors[0].inverse || product.factors[1].inverse) return false;
  for (std::size_t i = 0; i < 2; ++i) {
    const ValueId x = product.factors[i].value, u = product.factors[1 - i].value;
    const std::string kind = approximation(r, product.constant, u, x);
    if (kind.empty() || r.shape(x) != r.shape(top.outputs[0])) continue;
    r.become(top, "Gelu", {x}, {{"approximate", kind}});
    return true;
  }
  return false;
}

bool fuse_silu(Fusion &fusion, const Node &mul) {
  Rewriter &r = fusion.r;
  for (std::size_t i = 0; i < 2; ++i) {
    const Node *gate = made_for_one(r, mul.inputs[i], "Sigmoid");
    if (gate == nullptr || gate->inputs[0] != mul.inputs[1 - i]) continue;
    r.become(mul, "Silu", {mul.inputs[1 - i]});
    return true;
  }
  return false;
}

// Computes log(sigmoid(x)) as -softplus(-x), and log(1 - sigmoid(x)) as -softplus(x). The Sigmoid and the Sub may have
// other readers, because the new nodes do not read them.
bool fuse_log_sigmoid(Fusion &fusion, const Node &log) {
  Rewriter &r = fusion.r;
  ValueId probability = log.inputs[0];
  const Node *rest = made_by(r, probability, "Sub");
  const bool of_rest = rest != nullptr && uniform(r, rest->inputs[0]) == 1.0;
  if (of_rest) probability = rest->inputs[1];
  const Node *sigmoid = made_by(r, probability, "Sigmoid");
  if (sigmoid == nullptr || r.shape(probability) != r.shape(log.outputs[0])) return false;
  const ValueId x = sigmoid->inputs[0];
  r.become(log, "Neg", {r.emit("Softplus", {of_rest ? x : r.emit("Neg", {x})})});
  return true;
}

bool fuse_gated(Fusion &fusion, const Node &mul) {
  Rewriter &r = fusion.r;
  for (std::size_t i = 0; i < 2; ++i) {
    const ValueId gate = mul.inputs[i], other = mul.inputs[1 - i];
    const Node *activation = r.uses(gate) == 1 ? r.producer(gate) : nullptr;
    if (activation == nullptr || !ops::gates(activation->op)) continue;
    if (!is_float(r.type(gate).dtype) || r.type(other) != r.type(gate)) continue;
    Attributes attributes = activation->attributes;
    attributes.set("activation", activation->op);
    r.become(mul, "Gated", {activation->inputs[0], other}, std::move(attributes));
    return true;
  }
  return false;
}

}  // namespace protrain::passes
