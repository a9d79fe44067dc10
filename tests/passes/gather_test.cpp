// Gathers with constant indices become cheaper operators where possible.
#include "passes/hand_built.h"
#include "passes/passes.h"

namespace protrain::test::gather_test {

namespace {

Graph read_at(const Array &indices, Shape shape) {
  HandBuilt b;
  const ValueId x = b.input("x", std::move(shape));
  b.graph.outputs = {b.add("Gather", {x, b.constant(indices)}, {{"axis", std::int64_t{0}}})};
  Graph graph = b.graph;
  passes::fold(graph);
  graph::verify(graph);
  expect_same_results(b.graph, graph);
  return graph;
}

}  // namespace

TEST(Gather, OfConsecutiveIndicesIsACut) {
  const Array indices = Array::from_integers({DType::i64, {2, 2}}, {-5, 2, 3, 4});
  EXPECT_EQ(histogram(read_at(indices, {6, 3})), (std::map<std::string, int>{{"Slice", 1}, {"Reshape", 1}}));
}

TEST(Gather, OfAllIndicesIsAReshape) {
  const Array indices = Array::from_integers({DType::i64, {2, 1, 3}}, {0, 1, 2, 3, 4, 5});
  EXPECT_EQ(histogram(read_at(indices, {6, 3})), (std::map<std::string, int>{{"Reshape", 1}}));
}

// In exports, every query reads the mask at the same (sample, key), so the indices repeat. The mask must be read once
// and expanded.
TEST(Gather, OfRepeatedIndicesReadsOnce) {
  const Array indices = Array::from_integers({DType::i64, {2, 1, 3}}, {0, 1, 2, 3, 4, 5}).expanded({2, 7, 3});
  const Graph graph = read_at(indices, {6});
  EXPECT_EQ(histogram(graph), (std::map<std::string, int>{{"Reshape", 1}, {"Expand", 1}}));
}

TEST(Gather, OfOtherIndicesStays) {
  const Array indices = Array::from_integers({DType::i64, {3}}, {0, 2, 1});
  EXPECT_EQ(histogram(read_at(indices, {6, 3})), (std::map<std::string, int>{{"Gather", 1}}));
}

}  // namespace protrain::test::gather_test
