// Pools over more axes than kernels take become several pools.
#include "passes/hand_built.h"
#include "passes/passes.h"

namespace protrain::test::pool_test {

namespace {
using Integers = std::vector<std::int64_t>;

Graph pooled(const char *op, Attributes attributes) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 2, 3, 4, 3, 5, 4});
  attributes.set("strides", Integers{1, 2, 1, 2, 1});
  attributes.set("pads", Integers{0, 1, 0, 0, 1, 1, 0, 0, 1, 0});
  attributes.set("kernel_shape", Integers{2, 3, 1, 2, 2});
  attributes.set("ceil_mode", std::int64_t{1});
  b.graph.outputs = {b.add(op, {x}, attributes)};
  Graph graph = b.graph;
  passes::fold(graph);
  graph::verify(graph);
  expect_same_results(b.graph, graph);
  return graph;
}

}  // namespace

TEST(Pool, OverFiveAxesIsThreePools) {
  EXPECT_EQ(histogram(pooled("MaxPool", {}))["MaxPool"], 3);
  for (std::int64_t with_pads : {0, 1})
    EXPECT_EQ(histogram(pooled("AveragePool", {{"count_include_pad", with_pads}}))["AveragePool"], 3);
}

}  // namespace protrain::test::pool_test
