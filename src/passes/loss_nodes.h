// Attaches losses to a graph by emitting their nodes.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace protrain::passes {

class LossNodes {
 public:
  explicit LossNodes(graph::Graph &graph) : graph_(graph) {}

 protected:
  graph::ValueId emit(const std::string &op, std::vector<graph::ValueId> inputs, graph::Attributes attributes = {});
  // Emits the core operator CrossEntropy (ops/loss.cpp), which has options that ONNX's SoftmaxCrossEntropyLoss lacks.
  // Returns the loss.
  graph::ValueId emit_cross_entropy(std::vector<graph::ValueId> inputs, graph::Attributes attributes);
  graph::ValueId numbers(const std::vector<std::int64_t> &values);
  graph::ValueId real(double value);
  graph::ValueId add_input(const std::string &name, const graph::Type &type);
  // Returns the model's input `name`, or adds it. An int32 input of the model is accepted where int64 is wanted. Errors
  // are about `option`, and call the input `what`.
  graph::ValueId data_input(const std::string &name, const graph::Type &wanted, const char *option, const char *what);

  // Splits a value (N, ...) of this shape into `count` parts (N / count, ...).
  std::vector<graph::ValueId> parts_of(graph::ValueId x, std::int64_t count, const Shape &shape);
  graph::ValueId sum_of_rows(graph::ValueId x);  // (N, D) -> (N, 1)
  graph::ValueId mean(graph::ValueId x);         // a scalar
  graph::ValueId as_float32(graph::ValueId x);

  graph::Graph &graph_;
};

// Emits a weighted sum of losses, which are scalars. A factor of 1 adds no Mul.
class WeighedLosses : public LossNodes {
 public:
  struct Term {
    graph::ValueId loss;
    double factor;
  };
  using LossNodes::LossNodes;
  graph::ValueId sum(const std::vector<Term> &terms);
};

// Emits losses that have no class labels: losses of embeddings, and distillation from a teacher's logits. The parameter
// `shape` is the shape of the prediction.
class UnlabelledLosses : public LossNodes {
 public:
  using LossNodes::LossNodes;

  // Returns the mean of a value's elements, as a scalar. A single element is its own mean.
  graph::ValueId mean_of(graph::ValueId x, const Shape &shape);
  // Returns the mean over rows of 1 - cos(x, y), where cos is the cosine similarity of two rows.
  graph::ValueId cosine(graph::ValueId x, graph::ValueId y);
  // Returns the mean of max(0, |a - p| - |a - n| + margin), as in PyTorch. `x` (3 N, D) holds N anchors a, then N
  // positives p, then N negatives n.
  graph::ValueId triplet(graph::ValueId x, const Shape &shape, double margin);
  // Returns the loss of InfoNCE. `x` (2 N, D) holds N queries, then one key for each query. The loss is the cross
  // entropy of a query's cosines with all keys, each divided by the temperature. The query's own key is the right
  // class.
  graph::ValueId contrast(graph::ValueId x, const Shape &shape, double temperature);
  // Returns the mean over rows of T^2 KL(softmax(teacher / T) || softmax(student / T)), where T is the temperature.
  // `student` and `teacher` are logits (N, ..., C).
  graph::ValueId distillation(graph::ValueId student, graph::ValueId teacher, const Shape &shape, double temperature);

 private:
  graph::ValueId length(graph::ValueId x, double least);  // (N, D) -> (N, 1), but at least `least`
};

}  // namespace protrain::passes
