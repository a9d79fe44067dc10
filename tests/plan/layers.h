// A training graph of equal layers with round times and bytes, so that figures can be worked out by hand. The graph is
// never computed. Its operators are only names, and the machine's profile has a time for each.
#pragma once

#include <string>
#include <vector>

#include "ops/op.h"
#include "plan/cost.h"

namespace protrain::plan {

// Each layer is a block with one weight w. It computes (h', inner) = layer(h, w), where h' goes to the next layer and
// `inner` is saved for the layer's backward. A layer takes 3 s forward and 5 s backward. Outside of layers, forward and
// backward take 1 s each.
class Layers {
 public:
  static constexpr std::uint64_t kWeight = 4096, kStream = 512, kInner = 1024;  // bytes
  static constexpr double kForward = 3, kBackward = 5, kHead = 1;

  explicit Layers(int layers, DType dtype = DType::f32) : dtype_(dtype) {
    using graph::Origin;
    using graph::ValueId;
    std::vector<ValueId> stream = {value("x", kStream, Origin::input)}, inner;
    for (int b = 0; b < layers; ++b) {
      const ValueId w = value("w", kWeight, Origin::parameter);
      graph.parameters.push_back(w);
      stream.push_back(value("h", kStream));
      inner.push_back(value("inner", kInner));
      node("Layer", {stream[static_cast<std::size_t>(b)], w}, {stream.back(), inner.back()}, b, kForward);
    }
    const ValueId loss = value("loss", element());
    node("Head", {stream.back()}, {loss}, -1, kHead);
    ValueId upstream = value("d", kStream);
    node("HeadGrad", {stream.back()}, {upstream}, -1, kHead, graph::Phase::backward);
    for (int b = layers; b-- > 0;) {
      const auto i = static_cast<std::size_t>(b);
      const ValueId down = value("d", kStream), gradient = value("dw", kWeight);
      node("LayerGrad", {upstream, stream[i], inner[i], graph.parameters[i]}, {down, gradient}, b, kBackward,
           graph::Phase::backward);
      upstream = down;
    }
    terms.trained.assign(static_cast<std::size_t>(layers), true);
    terms.capacity = {1ull << 40, 1ull << 40, 1ull << 40};
  }

  // A machine on which a weight is uploaded in 1 s, downloaded in 2 s, read from disk in 4 s and written to disk in 8
  // s. The update of a weight takes 1 s on the host or 0.5 s on the device. All queues run in parallel.
  profile::Profile machine() const {
    const double weight = kWeight, traffic = weight * 7;  // bytes of an update: 1 gradient, 2 weights, 4 moments
    return {.fp32_flops = 1,
            .device_bandwidth = 1,
            .device_optimizer = 2 * traffic,
            .host_optimizer = traffic,
            .upload = weight,
            .download = weight / 2,
            .disk_read = weight / 4,
            .disk_write = weight / 8,
            .kernels = seconds_};
  }

  graph::Graph graph;
  Terms terms;

 private:
  std::uint64_t element() const { return byte_count(dtype_, {}); }

  graph::ValueId value(const char *name, std::uint64_t bytes, graph::Origin origin = graph::Origin::node) {
    const auto elements = static_cast<std::int64_t>(bytes / element());
    return graph.add_value({.name = name, .type = {dtype_, {elements}}, .origin = origin});
  }

  void node(const char *op, std::vector<graph::ValueId> in, std::vector<graph::ValueId> out, int block, double seconds,
            graph::Phase phase = graph::Phase::forward) {
    const graph::NodeId id =
        graph.add_node({.op = op, .inputs = std::move(in), .outputs = std::move(out), .block = block, .phase = phase});
    seconds_[ops::signature(graph, graph.node(id))] = seconds;
  }

  const DType dtype_;
  std::map<std::string, double> seconds_;
};

}  // namespace protrain::plan
