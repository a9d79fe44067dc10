// The operands of a kernel that is measured, in one place and in several.
#include "measure/operands.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/tier.h"

namespace protrain::measure::operands_test {
namespace {

using graph::Graph;

// An Add whose second input is broadcast.
Graph add() {
  Graph graph;
  graph::Node node{.op = "Add", .name = "sum"};
  for (const Shape &shape : {Shape{100, 30}, Shape{30}})
    node.inputs.push_back(graph.add_value({.name = "x", .type = {DType::f32, shape}}));
  node.outputs.push_back(graph.add_value({.name = "y", .type = {DType::f32, {100, 30}}}));
  graph.add_node(node);
  return graph;
}

constexpr std::size_t kLarge = 100 * 30 * sizeof(float), kSmall = 30 * sizeof(float);

TEST(Operands, HaveTheSameInputsInEveryPlace) {
  const Graph graph = add();
  const Operands operands(graph, graph.nodes()[0], 1000);
  const std::unique_ptr<backend::Device> device = backend::open("cpu", 1);
  DeviceMemory memory(*device, operands.bytes(3));
  const std::vector<LaunchOperands> launches = operands.place(memory, 3);
  ASSERT_EQ(launches.size(), 3u);
  for (const LaunchOperands &launch : launches) {
    EXPECT_EQ(std::memcmp(launch.inputs[0], launches[0].inputs[0], kLarge), 0);
    EXPECT_EQ(std::memcmp(launch.inputs[1], launches[0].inputs[1], kSmall), 0);
    const float first = *static_cast<const float *>(launch.inputs[0]);
    EXPECT_GT(first, 0) << "the place is filled";
  }
}

TEST(Operands, ShareNothingButTheScratch) {
  const Graph graph = add();
  const Operands operands(graph, graph.nodes()[0], 1000);
  const std::unique_ptr<backend::Device> device = backend::open("cpu", 1);
  DeviceMemory memory(*device, operands.bytes(3));
  std::vector<std::pair<const void *, std::size_t>> parts;
  std::set<const void *> scratch;
  for (const LaunchOperands &launch : operands.place(memory, 3)) {
    parts.insert(parts.end(), {{launch.inputs[0], kLarge}, {launch.inputs[1], kSmall}, {launch.outputs[0], kLarge}});
    scratch.insert(launch.scratch);
  }
  ASSERT_EQ(scratch.size(), 1u);
  parts.emplace_back(*scratch.begin(), 1000);

  std::ranges::sort(parts);
  const std::byte *end = memory.data();
  for (const auto &[begin, bytes] : parts) {
    EXPECT_GE(static_cast<const std::byte *>(begin), end);
    end = static_cast<const std::byte *>(begin) + bytes;
  }
  EXPECT_LE(end, memory.data() + operands.bytes(3));
}

TEST(Operands, TakeWholePagesOfMemory) {
  const Graph graph = add();
  const Operands operands(graph, graph.nodes()[0], 1000);
  EXPECT_EQ(operands.place_bytes(), 2 * round_up(kLarge, kDiskAlignment) + kDiskAlignment);
  EXPECT_EQ(operands.bytes(), operands.place_bytes() + kDiskAlignment);
  EXPECT_EQ(operands.bytes(3), 3 * operands.place_bytes() + kDiskAlignment);
}

}  // namespace
}  // namespace protrain::measure::operands_test
