// The sizes, attributes and operands of LstmSteps, GruSteps, RnnSteps and their gradients (ops/recurrent.cpp). S is the
// number of steps, B the batch, H the units. A kernel goes through the steps one after the other.
#pragma once

#include <cstdint>

#include "arith/recurrent.h"
#include "backend/request.h"

namespace protrain::backend {

// The indices of a node's inputs. Gradient nodes have dy in place of x, and the other inputs at the same indices.
enum RecurrentInput : std::size_t {
  kX = 0,
  kUpstream = 0,
  kWeights,
  kFirstState,
  kLengths,
  kExtra,  // peepholes (3 * H), or the bias of a GRU's product h R
  kFirstCell,
  kStates,  // this input and all later ones exist only for gradient nodes
  kGates,
  kCells,
  kCellUpstream,
};

struct RecurrentShape {
  enum class Cell : std::uint8_t { lstm, gru, rnn };

  // Code::unsupported if the node names an activation that these kernels do not have.
  explicit RecurrentShape(const KernelRequest &request);

  std::int64_t time(std::int64_t k) const { return reverse ? steps - 1 - k : k; }  // the k-th step's place in time
  std::int64_t elements(std::int64_t columns) const { return batch * columns * units; }  // of a step
  // Returns how many gates use the product of the states h and the recurrence weights R. All gates do, except the third
  // one of a GRU whose reset gate r multiplies h. That gate uses the product of r * h and R.
  std::int64_t first_gates() const { return resets_state ? 2 : gates; }

  Cell cell;
  std::int64_t steps, batch, units;
  std::int64_t gates;  // x has gates * H columns
  std::int64_t saved;  // the output `gates` has saved * H columns
  bool reverse;
  bool resets_state;    // a GRU's reset gate multiplies h, so that a step has two products
  bool resets_product;  // a GRU's reset gate multiplies h R
  bool couples;         // an LSTM's forget gate is 1 - i
  arith::Activation f, g, h;
};

// An operand (S, ...) that a kernel uses step by step. of() returns the part for one step. If a launch lacks the
// operand, of() returns a place in scratch, which holds only the parts for the two latest steps.
template <typename T>
class StepParts {
 public:
  StepParts(T *operand, void *scratch, std::int64_t step_elements)
      : at_(operand != nullptr ? operand : static_cast<T *>(scratch)),
        wraps_(operand == nullptr),
        step_elements_(step_elements) {}
  T *of(std::int64_t time) const { return at_ + (wraps_ ? time % 2 : time) * step_elements_; }

 private:
  T *at_;
  bool wraps_;
  std::int64_t step_elements_;
};

}  // namespace protrain::backend
