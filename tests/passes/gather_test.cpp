// Gathers with constant indices become cheaper operators where possible. GatherND and ScatterND check each index.
// Scatters of integers at constant indices become gathers.
#include <numeric>

#include "errors.h"
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

// The conversion joins the axes of x into one axis. On the joined axis of a (3, 5) matrix, the wrong index (0, 7) would
// pick the element (1, 2), so such an index must be refused.
TEST(GatherND, RefusesAnIndexOutsideOfItsAxis) {
  const auto picked = [](bool scatters, const Integers &place) {
    HandBuilt b;
    const ValueId x = b.input("x", {3, 5}), at = b.input("at", {1, 2}, DType::i64), one = b.input("one", {1});
    b.graph.outputs = {scatters ? b.add("ScatterND", {x, at, one}) : b.add("GatherND", {x, at})};
    passes::fold(b.graph);
    std::vector<double> counts(15);
    std::iota(counts.begin(), counts.end(), 0);
    const Array index_of = Array::from_integers({DType::i64, {1, 2}}, place);
    const auto arrays = ops::interpret(b.graph, {{x, Array::from_doubles({DType::f64, {3, 5}}, counts)},
                                                 {at, index_of},
                                                 {one, Array::filled({DType::f64, {1}}, 1)}});
    return arrays.at(index(b.graph.outputs[0])).doubles();
  };
  EXPECT_EQ(picked(false, {0, 4}), std::vector<double>{4});
  EXPECT_EQ(picked(false, {-1, -5}), std::vector<double>{10});
  for (const bool scatters : {false, true})
    for (const Integers &place : {Integers{0, 7}, Integers{1, -6}, Integers{3, 0}})
      EXPECT_NE(code_of([&] { picked(scatters, place); }), Code::ok) << place[0] << " " << place[1];
}

// T5 and BART make the decoder's inputs from the labels by such writes: zeros, over which the labels are written one
// place later.
TEST(Scatter, OfIntegersAtConstantIndicesIsAGather) {
  for (const DType dtype : {DType::i64, DType::i32, DType::boolean}) {
    HandBuilt b;
    const ValueId data = b.input("data", {2, 4}, dtype), columns = b.input("columns", {2, 3}, dtype),
                  rows = b.input("rows", {3, 4}, dtype), one = b.input("one", {1}, dtype);
    const ValueId later = b.constant(Array::from_integers({DType::i64, {2, 3}}, {1, 2, 3, -3, -2, -1}));
    const ValueId twice = b.reshape(b.integers({1, -1, 0}), {3, 1}), place = b.reshape(b.integers({1, -1}), {1, 2});
    const ValueId zeros = b.constant(Array::filled({dtype, {2, 4}}, 0));
    b.graph.outputs = {b.add("ScatterElements", {zeros, later, columns}, {{"axis", std::int64_t{1}}}),
                       b.add("ScatterND", {data, twice, rows}), b.add("ScatterND", {data, place, one})};
    Graph core = b.graph;
    passes::fold(core);
    graph::verify(core);
    EXPECT_EQ(histogram(core).at("Gather"), 3) << core.print();
    expect_same_results(b.graph, core);
  }
}

TEST(Scatter, OfNoIntegersIsTheData) {
  for (const DType dtype : {DType::i64, DType::boolean}) {
    HandBuilt b;
    const ValueId data = b.input("data", {2, 4}, dtype), none = b.input("none", {0, 4}, dtype);
    const ValueId rows = b.constant(Array::filled({DType::i64, {0, 1}}, 0)),
                  elements = b.constant(Array::filled({DType::i64, {0, 4}}, 0));
    b.graph.outputs = {b.add("ScatterND", {data, rows, none}), b.add("ScatterElements", {data, elements, none})};
    Graph core = b.graph;
    passes::fold(core);
    graph::verify(core);
    EXPECT_EQ(histogram(core).count("Gather"), 0u) << core.print();
    expect_same_results(b.graph, core);
  }
}

// The places of so many elements are more than the limit for constants. Such scatters are common in what detectors do
// with their predictions, which the loss does not need.
TEST(Scatter, OfTooManyIntegersIsRefusedOnlyIfTheLossNeedsIt) {
  const auto prepared = [](bool needs) {
    HandBuilt b;
    const ValueId y = b.add("MatMul", {b.input("x", {2, 3}, DType::f32), b.initializer("w", {3, 4}, DType::f32)});
    const ValueId data = b.input("data", {64, 64, 64, 64}, DType::i64), one = b.input("one", {1}, DType::i64);
    const ValueId written = b.add("ScatterND", {data, b.constant(Array::filled({DType::i64, {1, 4}}, 0)), one});
    const Attributes flat = {{"keepdims", std::int64_t{0}}};
    const ValueId loss = b.add("ReduceMean", {y}, flat);
    const ValueId sum = b.add("ReduceSum", {b.add("Cast", {written}, {{"to", std::string("float32")}})}, flat);
    b.graph.outputs = {needs ? b.add("Add", {loss, sum}) : loss, written};
    return passes::prepare(b.graph, [](const std::string &) { return some_values({DType::f32, {3, 4}}, 1); }, {});
  };
  EXPECT_EQ(histogram(prepared(false).graph).count("ScatterND"), 0u);
  const Error error = error_of([&] { prepared(true); });
  EXPECT_EQ(error.code, Code::unsupported);
  EXPECT_NE(error.text.find("more than the limit"), std::string::npos) << error.text;
}

}  // namespace protrain::test::gather_test
