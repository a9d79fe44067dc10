// GradientCheck: compares gradients of a step with finite differences of the loss, which the operators' reference
// arithmetic computes in float64. It knows no device: the caller gives it the gradients and the step's values.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "grad/training_graph.h"
#include "graph/array.h"

namespace protrain::session {

double root_mean_square(const std::vector<double> &gradient);

class GradientCheck {
 public:
  // `values` holds the values of all inputs and parameters of `training`, by id. Code::unsupported if the loss depends
  // on operators without reference arithmetic, such as Dropout. The error names them. compare() throws Code::cancelled
  // once `cancelled` is set.
  GradientCheck(const grad::Training &training, const std::map<graph::ValueId, graph::Array> &values,
                const std::atomic<bool> &cancelled);

  double loss() const { return loss_; }  // in float64

  struct Result {
    std::size_t elements = 0;  // elements that were compared
    std::size_t kinks = 0;     // elements left out, because the loss is not smooth around them
    double norm = 0;           // of the gradient
    // The gradient is compared with derivatives of the loss by finite differences.
    //   `worst_element` is the largest relative difference of a single element. A difference is divided by the
    // derivative or by the gradient's root mean square, whichever is larger.
    //   `direction` compares two derivatives along one random direction, in which all elements except padding change:
    // the derivative by finite differences, and the one that the gradient gives. Their difference is divided by the
    // derivative by finite differences or by the gradient's norm, whichever is larger. `direction` is 0 if the loss is
    // not smooth along the random direction.
    double worst_element = 0, direction = 0;
  };
  // A gradient counts as small if all derivatives that finite differences give for it are at most `slope`. The true
  // gradient can then be zero, and the computed gradient can be rounding errors only. If the root mean square of a
  // small gradient is below `size`, compare() uses `size` instead of the root mean square.
  struct Small {
    double slope = 0, size = 0;
  };
  // Compares the gradient of `parameter` with finite differences of the loss. `gradient` lists the gradient's elements
  // in the order of the parameter's elements. Compares the gradient's largest element, up to `samples` - 1 others that
  // are drawn at random, and the directional derivative along one random direction.
  Result compare(graph::ValueId parameter, const std::vector<double> &gradient, std::size_t samples,
                 const Small &small) const;

 private:
  struct Behind;
  struct Slope {
    double value = 0;
    bool smooth = true;
  };
  Behind behind(graph::ValueId parameter) const;
  std::vector<bool> padding_of(graph::ValueId parameter) const;
  double loss_at(Behind &behind, graph::ValueId parameter, const std::vector<double> &values) const;
  Slope slope(Behind &behind, graph::ValueId parameter, const std::vector<double> &direction) const;

  graph::Graph graph_;  // computes the loss in float64
  graph::ValueId loss_id_;
  std::vector<graph::Array> values_;  // per value of the graph
  double loss_ = 0;
  const std::atomic<bool> &cancelled_;
};

}  // namespace protrain::session
