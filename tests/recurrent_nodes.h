// Nodes of LstmSteps, GruSteps, RnnSteps and their gradients, with all their operands.
#pragma once

#include <string>
#include <vector>

#include "one_node.h"
#include "ops/recurrent.h"

namespace protrain::test {

struct RecurrentSizes {
  std::int64_t steps, batch, units;
};

// Returns a node of `op`, which is LstmSteps, GruSteps or RnnSteps. The length of sample b is 1 + (b + 1) % s.steps.
inline OneNode recurrent(const std::string &op, const RecurrentSizes &s, const Attributes &attributes, unsigned seed) {
  const bool lstm = op == "LstmSteps", gru = op == "GruSteps";
  const std::int64_t gates = lstm ? 4 : gru ? 3 : 1, h = s.units;
  std::vector<std::int64_t> lengths;
  for (std::int64_t b = 0; b < s.batch; ++b) lengths.push_back(1 + (b + 1) % s.steps);
  OneNode node{op,
               attributes,
               {random_floats({s.steps, s.batch, gates * h}, seed), random_floats({gates * h, h}, seed + 1),
                random_floats({s.batch, h}, seed + 2), Array::from_integers({DType::i32, {s.batch}}, lengths)}};
  if (lstm || gru) node.inputs.push_back(random_floats({lstm ? 3 * h : h}, seed + 3));
  if (lstm) node.inputs.push_back(random_floats({s.batch, h}, seed + 4));
  node.outputs.assign(types_of_all_outputs(node).size(), true);
  return node;
}

// Returns the gradient node of a forward node. The gradient node also reads results of forward, which the reference
// computes.
inline OneNode recurrent_gradient(const OneNode &node, unsigned seed) {
  const std::vector<Array> made = reference(node);
  const bool lstm = node.op == "LstmSteps";
  OneNode grad{node.op + "Grad", node.attributes, node.inputs};
  grad.inputs.resize(lstm                    ? ops::kCellGradients + 1
                     : node.op == "GruSteps" ? ops::kRecurrentGates + 1
                                             : ops::kRecurrentStates + 1);
  grad.inputs[0] = random_floats(made[0].shape(), seed);
  if (!lstm) grad.inputs[ops::kRecurrentStates] = made[0];
  if (made.size() > 1) grad.inputs[ops::kRecurrentGates] = made[1];
  if (lstm) {
    grad.inputs[ops::kRecurrentCells] = made[2];
    grad.inputs[ops::kCellGradients] = random_floats(made[2].shape(), seed + 1);
  }
  grad.outputs.assign(types_of_all_outputs(grad).size(), true);
  return grad;
}

// Returns the forms in which tests run each operator. They cover the directions, the settings and each activation.
inline std::vector<std::pair<std::string, Attributes>> recurrent_forms() {
  constexpr std::int64_t kOn = 1;
  std::vector<std::pair<std::string, Attributes>> forms = {
      {"LstmSteps", {}},
      {"LstmSteps", {{"reverse", kOn}, {"clip", 0.6}}},
      {"LstmSteps", {{"input_forget", kOn}}},
      {"LstmSteps",
       {{"f", std::string("HardSigmoid")}, {"f_alpha", 0.3}, {"f_beta", 0.4}, {"g", std::string("Softsign")}}},
      {"LstmSteps", {{"h", std::string("ScaledTanh")}, {"h_alpha", 1.3}, {"h_beta", 0.7}, {"clip", 0.9}}},
      {"GruSteps", {}},
      {"GruSteps", {{"linear_before_reset", kOn}}},
      {"GruSteps", {{"linear_before_reset", kOn}, {"reverse", kOn}, {"clip", 0.7}}},
      {"GruSteps", {{"reverse", kOn}, {"g", std::string("Elu")}, {"g_alpha", 0.8}}},
      {"RnnSteps", {}},
      {"RnnSteps", {{"reverse", kOn}}}};
  for (const char *name : {"Sigmoid", "Relu", "Affine", "LeakyRelu", "ThresholdedRelu", "Softplus"})
    forms.push_back({"RnnSteps", {{"f", std::string(name)}, {"f_alpha", 0.3}, {"f_beta", 0.2}}});
  return forms;
}

}  // namespace protrain::test
