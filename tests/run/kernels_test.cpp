#include "run/kernels.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "backend/issue.h"
#include "base/error.h"
#include "errors.h"

namespace protrain::run::kernels_test {
namespace {

using graph::Graph;
using graph::Node;
using graph::Type;
using graph::ValueId;

// A graph whose two nodes are alike but for their names.
struct Twins {
  Twins(const std::string &op, const std::vector<Type> &inputs, const Type &output) {
    Node node{.op = op};
    for (const Type &type : inputs) {
      const std::string name = "x" + std::to_string(graph.inputs.size());
      graph.inputs.push_back(graph.add_value({.name = name, .type = type, .origin = graph::Origin::input}));
      node.inputs.push_back(graph.inputs.back());
    }
    for (const char *name : {"first", "second"}) {
      node.name = name;
      const graph::NodeId id = graph.add_node(node, {name});
      graph.value(graph.node(id).outputs[0]).type = output;
    }
  }

  Graph graph;
};

TEST(Kernels, NameTheNodeThatWasGivenAnIndexOutsideOfItsTable) {
  const std::unique_ptr<backend::Device> device = backend::open("cpu", 1);
  Kernels kernels(*device);
  const Twins twins("Gather", {{DType::f32, {4}}, {DType::i64, {1}}}, {DType::f32, {1}});
  alignas(64) std::array<float, 4> table{};
  alignas(64) std::int64_t index = 4;
  alignas(64) float result = 0;
  const std::array<void *, 2> inputs = {table.data(), &index};
  const std::array<void *, 1> outputs = {&result};
  for (const Node &node : twins.graph.nodes()) {
    backend::Kernel &kernel = kernels.of_node(twins.graph, node);
    const Error error = test::error_of([&] {
      backend::run_step(*device,
                        [&] { device->launch(Queue::compute, kernel, {.inputs = inputs, .outputs = outputs}); });
    });
    EXPECT_EQ(error.code, Code::arg);
    EXPECT_EQ(error.subject, node.name);
    EXPECT_EQ(error.text, "index 4 is outside 0..3");
  }
}

TEST(Kernels, ServeAllNodesThatDoEqualWorkOnAnyValues) {
  const std::unique_ptr<backend::Device> device = backend::open("cpu", 1);
  Kernels kernels(*device);
  const Twins twins("Neg", {{DType::f32, {4}}}, {DType::f32, {4}});
  const std::vector<Node> &nodes = twins.graph.nodes();
  EXPECT_EQ(&kernels.of_node(twins.graph, nodes[0]), &kernels.of_node(twins.graph, nodes[1]));
  EXPECT_EQ(kernels.scratch().size(), 1u);
}

}  // namespace
}  // namespace protrain::run::kernels_test
