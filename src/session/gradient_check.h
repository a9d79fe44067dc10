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
    // Differences between the gradient and the derivative of the loss by finite differences. `worst_element` is the
    // largest difference of a single element, divided by the derivative or by the gradient's root mean square,
    // whichever is larger. `direction` is the difference of the directional derivatives along one random direction that
    // changes all elements, divided by the directional derivative or by the gradient's norm, whichever is larger.
    double worst_element = 0, direction = 0;
  };
  // A gradient counts as small if no derivative that finite differences give for it is above `slope`. The true gradient
  // may then be zero, and the computed one may be rounding errors only. So compare() takes its root mean square as at
  // least `size`.
  struct Small {
    double slope = 0, size = 0;
  };
  // Compares the gradient of `parameter` with finite differences of the loss. `gradient` lists its elements in the
  // order of the parameter's elements. Compares the largest element, up to `samples` - 1 other elements (all of them if
  // there are no more), and the directional derivative along one random direction.
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
