// Graphs made by hand, and Programs lowered from them. They are never run, so operators are only names.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "errors.h"
#include "moments.h"
#include "program/program.h"

namespace protrain::program {

inline graph::ValueId add(graph::Graph &graph, const std::string &name, graph::Origin origin, Shape shape,
                          DType dtype = DType::f32) {
  return graph.add_value({.name = name, .type = {dtype, std::move(shape)}, .origin = origin});
}

inline graph::ValueId run(graph::Graph &graph, graph::Node node, Shape shape, DType dtype = DType::f32) {
  const std::string name = node.name = node.name.empty() ? node.op : node.name;
  const graph::NodeId id = graph.add_node(std::move(node), {name});
  const graph::ValueId out = graph.node(id).outputs[0];
  graph.value(out).type = {dtype, std::move(shape)};
  return out;
}

inline graph::ValueId run(graph::Graph &graph, const std::string &op, std::vector<graph::ValueId> inputs, Shape shape,
                          DType dtype = DType::f32) {
  return run(graph, graph::Node{.op = op, .inputs = std::move(inputs)}, std::move(shape), dtype);
}

using test::code_of;

// Compares a Program with a text file. PROTRAIN_WRITE_GOLDEN=1 rewrites the file; read it before you commit it.
inline void expect_golden(const std::string &name, const std::string &text) {
  const std::string path = std::string(PROTRAIN_FIXTURES) + "/programs/" + name + ".txt";
  if (std::getenv("PROTRAIN_WRITE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ostringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, golden.str());
}

// Two blocks with one weight each. A block computes h + tanh(h * w) from its input h, and the next block reads the
// result. A block's backward reads the tanh.
struct TwoBlocks {
  TwoBlocks() {
    const graph::ValueId x = add(graph, "x", graph::Origin::input, {kElements});
    graph.inputs = {x};
    stream = {x};
    for (int b = 0; b < 2; ++b) add_forward(b);
    loss = run(graph, {.op = "ReduceSum", .name = "loss", .inputs = {stream[2]}}, {});
    graph::ValueId upstream =
        run(graph, {.op = "ReduceSumGrad", .name = "d_h2", .inputs = {loss}, .phase = kBackward}, {kElements});
    for (int b = 1; b >= 0; --b) upstream = add_backward(b, upstream);
    norm = run(graph, {.op = "GlobalNorm", .name = "norm", .inputs = squared, .phase = kBackward}, {}, DType::f64);
    graph.outputs = {loss, gradients[0], gradients[1], norm};
  }

  LoweringInput step() const {
    return {.graph = graph, .loss = loss, .norm = norm, .gradients = gradients, .squared_norms = squared};
  }
  LoweringInput evaluation() const { return {.graph = graph, .loss = loss, .updates = false}; }

  // Changes the graph so that one node computes the norms of both gradients.
  void norm_at_once() {
    std::vector<graph::Node> nodes = graph.nodes();
    std::erase_if(nodes, [](const graph::Node &node) { return node.op == "SquaredNorm"; });
    nodes.insert(nodes.end() - 1, {.op = "SquaredNorm",
                                   .name = "squared",
                                   .inputs = {gradients[1], gradients[0]},
                                   .outputs = {squared[1], squared[0]},
                                   .phase = kBackward});
    graph.set_nodes(std::move(nodes));
  }

  // A plan in which each weight is a chunk.
  plan::Plan plan(Tier tier, plan::BlockMode mode, plan::OptimizerOrder order = plan::OptimizerOrder::overlap) const {
    plan::Plan plan{
        .n_buffer = 1, .order = order, .slack = 1, .chunks = plan::cut_chunks(graph, 64), .blocks = {mode, mode}};
    for (plan::Chunk &chunk : plan.chunks) {
      chunk.tier = tier;
      chunk.update = tier == Tier::device ? Tier::device : Tier::host;
    }
    return plan;
  }

  Program lowered(const LoweringInput &source, const plan::Plan &plan) const {
    const StateRequest request = {.optimizer = optimizer_arrays(DType::f32, test::moments(1)), .kept = {false, false}};
    const State state = lay_out_state({step(), evaluation()}, plan, request);
    return lower(source, plan, state, {.nodes = std::vector<std::uint64_t>(graph.node_count(), 0)});
  }
  Program lowered(const plan::Plan &plan) const { return lowered(step(), plan); }

  static constexpr std::int64_t kElements = 16;
  static constexpr graph::Phase kBackward = graph::Phase::backward;

  graph::Graph graph;
  graph::ValueId loss, norm;
  std::vector<graph::ValueId> stream, tanh;              // input of each block, and the last output
  std::vector<graph::ValueId> gradients{2}, squared{2};  // per block

 private:
  void add_forward(int b) {
    const std::string n = std::to_string(b);
    const graph::ValueId w = add(graph, "w" + n, graph::Origin::parameter, {kElements}), h = stream.back();
    graph.parameters.push_back(w);
    const graph::ValueId product =
        run(graph, {.op = "Mul", .name = "mul" + n, .inputs = {h, w}, .block = b}, {kElements});
    tanh.push_back(run(graph, {.op = "Tanh", .name = "tanh" + n, .inputs = {product}, .block = b}, {kElements}));
    stream.push_back(run(graph,
                         {.op = "Add", .name = "h" + std::to_string(b + 1), .inputs = {h, tanh.back()}, .block = b},
                         {kElements}));
  }

  graph::ValueId add_backward(int b, graph::ValueId upstream) {
    const auto i = static_cast<std::size_t>(b);
    const std::string n = std::to_string(b);
    const auto node = [&](const char *op, const std::string &name, std::vector<graph::ValueId> inputs) {
      return graph::Node{.op = op, .name = name + n, .inputs = std::move(inputs), .block = b, .phase = kBackward};
    };
    const graph::ValueId product = run(graph, node("TanhGrad", "d_mul", {upstream, tanh[i]}), {kElements});
    gradients[i] = run(graph, node("Mul", "d_w", {product, stream[i]}), {kElements});
    squared[i] = run(graph, node("SquaredNorm", "squared", {gradients[i]}), {}, DType::f64);
    return run(graph, node("MulAdd", "d_h", {product, graph.parameters[i], upstream}), {kElements});
  }
};

}  // namespace protrain::program
