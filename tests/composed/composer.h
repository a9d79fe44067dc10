// Composes small models of ONNX's operators at random. They have parameters that are shared, frozen, broadcast or of
// one element, outputs that nothing reads, sums of several losses, repeated layers, and patterns that the passes fuse.
//
// A model is made by a sequence of steps, each of which adds a few nodes. Each step has its own random numbers, so it
// hardly changes when another step is skipped. A failing model can therefore be reduced by skipping steps. The same
// seed gives the same model in float32 and in float64.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "composed/dice.h"
#include "graph/graph.h"

namespace protrain::test {

using graph::Array;
using graph::Attributes;
using graph::ValueId;
using Integers = std::vector<std::int64_t>;

struct Recipe {
  std::uint64_t seed = 0;
  std::set<int> skipped = {};  // steps that are left out
  bool empty_axes = false;     // some axes have no elements
};

struct Composition {
  // Nodes are ONNX's operators, and values have types. Axes and shapes are attributes here, even where a file has them
  // as inputs.
  graph::Graph graph;
  ValueId loss = ValueId::none;
  std::map<ValueId, Array> data;  // the values of inputs and parameters
  int steps = 0;
};

class Composer {
 public:
  Composer(const Recipe &recipe, DType floats);

  Composition compose();

 private:
  using Step = void (Composer::*)();
  static const std::vector<Step> &steps();

  // The functions from which steps are built. Most add nodes and return their typed output.
  std::vector<ValueId> add_all(const std::string &op, std::vector<ValueId> inputs, Attributes attributes,
                               std::size_t outputs);
  ValueId add(const std::string &op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return add_all(op, std::move(inputs), std::move(attributes), 1)[0];
  }
  ValueId number(double value);
  ValueId integers(const Integers &values, Shape shape);
  ValueId parameter(Shape shape, double low = -0.8, double high = 0.8);  // a new one, or an existing one
  ValueId input(Shape shape);
  ValueId indices(Shape shape, std::int64_t below, bool from_data);
  ValueId truths(Shape shape);
  ValueId positive(ValueId x);  // at least 0.1
  ValueId bounded(ValueId x);   // within (-1, 1)

  const Shape &shape(ValueId id) const { return made_.graph.value(id).type.shape; }
  std::size_t rank(ValueId id) const { return shape(id).size(); }
  std::int64_t axis_of(ValueId id) { return dice_.between(0, static_cast<std::int64_t>(rank(id)) - 1); }
  Shape random_shape(std::size_t rank);
  std::int64_t dim();

  ValueId any();                      // a float value; the last ones are more likely
  ValueId of_rank(std::size_t rank);  // reshaped if necessary
  ValueId fitting(ValueId x);         // a value that can be broadcast with x
  void keep(ValueId id) { pool_.push_back(id); }

  // The steps. compose_*.cpp implements them.
  void unary();
  void unary_in_domain();
  void flat();
  void binary();
  void many();
  void choose();
  void power();
  void linear();
  void gemm();
  void products();
  void einsum();
  void reshape();
  void move();
  void cut();
  void join();
  void pad();
  void reduce();
  void along_axis();
  void top_k();
  void softmax();
  void layer_norm();
  void norm_by_hand();
  void channel_norm();
  void gather();
  void scatter();
  void one_hot();
  void convolve();
  void pool();
  void resize();
  void attention();
  void attention_by_hand();
  void rotary();
  void gated();
  void layers();
  void from_cast();

  ValueId head(ValueId rows, std::int64_t classes);
  ValueId class_weights(std::int64_t classes);
  ValueId moved_logs(ValueId scores);
  ValueId cross_entropy();
  ValueId regression();
  ValueId penalty();
  ValueId one_loss();
  ValueId joined_losses();

  const Recipe recipe_;
  const DType floats_;
  Dice dice_;
  Composition made_;
  std::vector<ValueId> pool_;  // float values
};

}  // namespace protrain::test
