#include "plan/durations.h"

#include <algorithm>

#include "ops/op.h"

namespace protrain::plan {

namespace {

// Returns an estimate of the seconds of a node that was not measured, by the roofline model. Kernels overlap arithmetic
// and memory traffic, so only the one that takes longer counts.
double roofline(const profile::Profile &profile, const graph::Graph &graph, const graph::Node &node) {
  const ops::Cost cost = ops::cost(graph, node);
  const graph::ValueId first = node.inputs.empty() ? graph::ValueId::none : node.inputs[0];
  const DType dtype = first == graph::ValueId::none ? DType::f32 : graph.value(first).type.dtype;
  const double flops = profile.matrix_flops(dtype) > 0 ? profile.matrix_flops(dtype) : profile.fp32_flops;
  return std::max(cost.flops / flops, cost.bytes / profile.device_bandwidth) + profile.launch_seconds;
}

double over(std::uint64_t bytes, double rate) { return rate > 0 ? static_cast<double>(bytes) / rate : 0; }

}  // namespace

Durations::Durations(const profile::Profile &profile, const graph::Graph &graph, const OptimizerBytes &optimizer)
    : profile_(profile) {
  nodes_.reserve(graph.node_count());
  for (const graph::Node &node : graph.nodes()) {
    if (!ops::has_kernel(node)) {
      nodes_.push_back(0);
      continue;
    }
    if (!profile.kernels.empty())
      if (const auto found = profile.kernels.find(ops::signature(graph, node)); found != profile.kernels.end()) {
        nodes_.push_back(found->second);
        continue;
      }
    nodes_.push_back(roofline(profile, graph, node));
  }
  for (graph::ValueId p : graph.parameters) {
    const auto weight = static_cast<double>(byte_count(graph.value(p).type.dtype, {}));
    // An update reads the gradient, which has as many bytes as the weights. It also reads and writes the weights and
    // the optimizer's state.
    traffic_.push_back((3 * weight + 2 * optimizer.state) / weight);
  }
}

double Durations::move(Tier from, Tier to, std::uint64_t bytes) const {
  if (from == to) return over(2 * bytes, from == Tier::device ? profile_.device_bandwidth : profile_.host_bandwidth);
  double seconds = 0;
  if (from == Tier::disk) seconds = over(bytes, profile_.disk_read);
  if (to == Tier::disk) seconds = over(bytes, profile_.disk_write);
  if (profile_.shares_memory && seconds > 0) return seconds;
  if (to == Tier::device) seconds = std::max(seconds, over(bytes, profile_.upload));
  if (from == Tier::device) seconds = std::max(seconds, over(bytes, profile_.download));
  return seconds;
}

double Durations::exchange(std::uint64_t bytes) const { return profile_.link_seconds + over(bytes, profile_.link); }

double Durations::update(Tier place, std::size_t parameter, std::uint64_t bytes) const {
  const double rate = place == Tier::host ? profile_.host_optimizer : profile_.device_optimizer;
  return static_cast<double>(bytes) * traffic_[parameter] / rate;
}

}  // namespace protrain::plan
