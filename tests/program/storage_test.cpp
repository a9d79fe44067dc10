#include "program/storage.h"

#include "hand_built.h"
#include "ops/op.h"

namespace protrain::program::storage_test {
namespace {

using graph::Graph;
using graph::Origin;
using graph::ValueId;

TEST(StorageRoots, AValueOfItsOwnIsItsRoot) {
  Graph graph;
  const ValueId x = add(graph, "x", Origin::input, {4}), y = run(graph, "Relu", {x}, {4});
  const std::vector<ValueId> roots = storage_roots(graph);
  EXPECT_EQ(roots[index(x)], x);
  EXPECT_EQ(roots[index(y)], y);
}

TEST(StorageRoots, AChainOfReshapesUsesTheBytesItBeganWith) {
  Graph graph;
  const ValueId x = add(graph, "x", Origin::input, {4}), y = run(graph, "Relu", {x}, {4});
  const ValueId a = run(graph, "Reshape", {y}, {2, 2}), b = run(graph, "Reshape", {a}, {1, 4});
  const std::vector<ValueId> roots = storage_roots(graph);
  EXPECT_EQ(roots[index(a)], y);
  EXPECT_EQ(roots[index(b)], y);
}

TEST(StorageRoots, ASumGrowsWhereItLies) {
  Graph graph;
  const ValueId sum = add(graph, "sum", Origin::accumulator, {4}), x = add(graph, "x", Origin::input, {4});
  const ValueId more = run(graph, "Accumulate", {sum, x}, {4});
  const ValueId flat = run(graph, "Reshape", {more}, {2, 2});
  const std::vector<ValueId> roots = storage_roots(graph);
  EXPECT_EQ(roots[index(more)], sum);
  EXPECT_EQ(roots[index(flat)], sum);
  EXPECT_EQ(roots[index(x)], x);
}

TEST(StorageRoots, OnlyAReshapeMovesNothing) {
  EXPECT_TRUE(ops::is_alias({.op = "Reshape"}));
  EXPECT_FALSE(ops::is_alias({.op = "Accumulate"}));
  EXPECT_FALSE(ops::is_alias({.op = "Transpose"}));
}

TEST(StorageRoots, BytesAreThoseOfTheType) {
  Graph graph;
  EXPECT_EQ(bytes_of(graph, add(graph, "x", Origin::input, {3, 5}, DType::f64)), 120u);
  EXPECT_EQ(bytes_of(graph, add(graph, "scalar", Origin::input, {})), 4u);
}

}  // namespace
}  // namespace protrain::program::storage_test
