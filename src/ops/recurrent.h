// Recurrent layers: the operators LstmSteps, GruSteps and RnnSteps, their settings, and the activations of ONNX.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ops/op.h"

namespace protrain::ops {

struct RecurrentActivation {
  std::string_view name;
  double alpha, beta;    // the defaults; NaN: a node must give the value
  bool scaled, shifted;  // whether the activation has an alpha, and a beta
  double (*value)(double x, double alpha, double beta);
  double (*slope)(double y, double alpha, double beta);  // the derivative at x, from y = value(x)
};

const RecurrentActivation *find_recurrent_activation(std::string_view name);  // nullptr: unknown

// An activation of a node. Its argument is limited to [-clip, clip] first.
class LimitedActivation {
 public:
  // `key` is the attribute that holds the activation's name. KEY_alpha and KEY_beta hold its coefficients. `dtype` is
  // the type in which values are saved for backward.
  LimitedActivation(const Node &node, const std::string &key, const char *fallback, double clip, DType dtype);

  double value(double x) const;
  double slope(double y) const;  // the derivative, from the saved value y; 0 where the argument was limited

 private:
  const RecurrentActivation *row_;
  double clip_, alpha_, beta_;
  double margin_;  // the relative error of a saved value
};

// The attributes and sizes of LstmSteps, GruSteps, RnnSteps, and of their gradients.
struct RecurrentSettings {
  enum class Cell : std::uint8_t { lstm, gru, rnn };

  // r is (gates * units, units), per_step is (steps, batch, ...).
  RecurrentSettings(const Node &node, const Type &r, const Shape &per_step);

  // Returns the number of values per unit that forward saves for backward at each step. An LSTM or a GRU saves its
  // gates. A GRU with resets_product saves a fourth value for the new gate: the product of the state and the recurrent
  // weights, plus the bias. An RNN saves none.
  std::int64_t saved() const;
  // Returns how many numbers input 4 holds per unit: 3 for an LSTM (the peepholes of the gates i, o and f), else 1 (the
  // bias of a GRU).
  std::int64_t extras() const { return cell == Cell::lstm ? 3 : 1; }
  std::int64_t time(std::int64_t k) const { return reverse ? steps - 1 - k : k; }  // the k-th step's place in time

  Cell cell;
  std::int64_t gates, units, steps, batch;
  bool reverse;
  bool resets_product;  // a GRU's reset gate multiplies h R, not h
  bool couples;         // an LSTM's forget gate is 1 - i
  LimitedActivation f, g, h;
};

// Numbers of the inputs of gradient nodes. Inputs 1 to 5 are those of the forward node.
inline constexpr std::size_t kRecurrentStates = 6, kRecurrentGates = 7, kRecurrentCells = 8, kCellGradients = 9;

std::vector<Array> evaluate_recurrent(const Node &node, std::span<const Array *const> in, std::span<const Type> out);
std::vector<Array> evaluate_recurrent_gradient(const Node &node, std::span<const Array *const> in,
                                               std::span<const Type> out);

}  // namespace protrain::ops
