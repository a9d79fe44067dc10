// Frozen weights of a float32 model can rest in the form in which the file holds them: in 16 bits or as integers. Nodes
// that need float32 get widened values right before they run.
#include "passes/parameters/stored.h"

#include "passes/hand_built.h"

namespace protrain::test::stored_weights_test {
namespace {

// A model of float32 whose parameter `v` is trained, while all others are frozen.
struct Model : HandBuilt {
  ValueId weight(const std::string &name, Shape shape, bool frozen = true) {
    const ValueId id = parameter(name, std::move(shape));
    graph.value(id).type.dtype = DType::f32;
    graph.value(id).frozen = frozen;
    return id;
  }
  void store(DType as = DType::bf16) {
    passes::store_frozen(graph, [&](const std::string &) { return as; });
  }
  DType at_rest(const std::string &name) const { return graph.value(graph.find(name)).type.dtype; }
  // Adds a node of the backward direction.
  ValueId back(const std::string &op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    const ValueId made = add(op, std::move(inputs), std::move(attributes));
    graph.node(graph.value(made).producer).phase = graph::Phase::backward;
    return made;
  }
  Graph widened(std::vector<ValueId> outputs) {
    graph.outputs = std::move(outputs);
    store();
    passes::widen_inside(graph);
    return graph;
  }
};

TEST(StoredWeights, OnlyFrozenOnesRestIn16Bits) {
  Model m;
  const ValueId x = m.input("x", {2, 4}, DType::f32);
  m.graph.outputs = {m.add("MatMul", {m.add("MatMul", {x, m.weight("w", {4, 6})}), m.weight("v", {6, 3}, false)})};
  m.store();
  EXPECT_EQ(m.at_rest("w"), DType::bf16);
  EXPECT_EQ(m.at_rest("v"), DType::f32);
  EXPECT_EQ(histogram(m.graph).at("Cast"), 1);
}

TEST(StoredWeights, OfFloat32StayAsTheyAre) {
  Model m;
  m.graph.outputs = {m.add("MatMul", {m.input("x", {2, 4}, DType::f32), m.weight("w", {4, 6})})};
  m.store(DType::f32);
  EXPECT_EQ(m.at_rest("w"), DType::f32);
  EXPECT_EQ(m.graph.node_count(), 1u);
}

// Forward and backward each have a product with `w`. Both products must take the matrix without widening it.
TEST(StoredWeights, ProductsTakeThemAsTheyAre) {
  Model m;
  const ValueId x = m.input("x", {2, 4}, DType::f32), w = m.weight("w", {4, 6});
  const ValueId y = m.add("MatMul", {x, w}), dx = m.back("MatMul", {y, w}, {{"trans_b", std::int64_t{1}}});
  const Graph before = m.graph, step = m.widened({dx});
  EXPECT_EQ(histogram(step), (std::map<std::string, int>{{"MatMul", 2}})) << step.print();
  for (const graph::Node &node : step.nodes()) {
    EXPECT_EQ(node.inputs[1], w);
    EXPECT_EQ(node.attributes.text("stored", ""), "Cast");
  }
  EXPECT_EQ(step.value(dx).type, before.value(dx).type);
}

TEST(StoredWeights, TablesAreGatheredBeforeTheyAreWidened) {
  Model m;
  const ValueId ids = m.input("ids", {2, 3}, DType::i64), table = m.weight("table", {50, 4});
  const ValueId rows = m.add("Gather", {table, ids}, {{"axis", std::int64_t{0}}});
  const Graph step = m.widened({m.add("Tanh", {rows})});
  EXPECT_EQ(only(step, "Gather").inputs[0], table);
  EXPECT_EQ(only(step, "Cast").inputs[0], only(step, "Gather").outputs[0]);
  EXPECT_EQ(only(step, "Cast").outputs[0], rows);
}

TEST(StoredWeights, AMatrixIsTransposedBeforeAProductTakesIt) {
  Model m;
  const ValueId across = m.transpose(m.weight("w", {6, 4}), {1, 0});
  const Graph step = m.widened({m.add("MatMul", {m.input("x", {2, 4}, DType::f32), across})});
  EXPECT_EQ(only(step, "MatMul").inputs[1], only(step, "Transpose").outputs[0]);
  EXPECT_EQ(histogram(step).count("Cast"), 0u);
}

// A reader that is no product gets floats from a Cast right before it. Forward and backward have a Cast each.
TEST(StoredWeights, OtherReadersFindThemWidenedRightBefore) {
  Model m;
  const ValueId x = m.input("x", {2, 4}, DType::f32), scale = m.weight("scale", {4});
  const ValueId y = m.add("Mul", {m.add("Tanh", {x}), scale});
  const Graph step = m.widened({m.back("Mul", {m.back("Neg", {y}), scale})});
  std::map<graph::Phase, int> casts;
  for (std::size_t n = 0; n < step.node_count(); ++n) {
    const graph::Node &node = step.nodes()[n];
    if (node.op != "Cast") continue;
    ++casts[node.phase];
    EXPECT_EQ(step.nodes().at(n + 1).inputs.at(1), node.outputs[0]) << step.print();
  }
  EXPECT_EQ(casts[graph::Phase::forward], 1);
  EXPECT_EQ(casts[graph::Phase::backward], 1);
}

// Outputs that option keep_outputs names may depend on frozen weights alone.
TEST(StoredWeights, OutputsThatOnlyTheyMakeAreComputed) {
  Model m;
  const ValueId x = m.input("x", {2, 4}, DType::f32), scale = m.weight("scale", {4});
  const ValueId bent = m.add("Tanh", {scale}), alone = m.add("Neg", {bent});
  const Graph step = m.widened({m.add("Mul", {x, bent}), alone});
  EXPECT_EQ(step.outputs[1], alone);
  ASSERT_NE(step.value(alone).producer, graph::NodeId::none) << step.print();
  EXPECT_EQ(histogram(step), (std::map<std::string, int>{{"Cast", 2}, {"Tanh", 2}, {"Neg", 1}, {"Mul", 1}}));
}

TEST(StoredWeights, OfABlockAreWidenedOnceForEachDirection) {
  Model m;
  const ValueId x = m.input("x", {2, 4}, DType::f32), scale = m.weight("scale", {4});
  ValueId y = x;
  for (int i = 0; i < 4; ++i) {
    y = m.add("Mul", {y, scale});
    m.graph.node(m.graph.value(y).producer).block = i / 2;
  }
  EXPECT_EQ(histogram(m.widened({y})).at("Cast"), 2);
}

// A chain of nodes, and sums of a value with itself: what a reader needs is copied once, and without recursion.
TEST(StoredWeights, MayGoThroughManyNodesBeforeTheyMeetData) {
  constexpr int kNodes = 50'000, kSums = 64;
  Model m;
  ValueId at = m.weight("scale", {4});
  for (int i = 0; i < kNodes; ++i) at = m.add("Neg", {at});
  for (int i = 0; i < kSums; ++i) at = m.add("Add", {at, at});
  const Graph step = m.widened({m.add("Mul", {m.input("x", {2, 4}, DType::f32), at})});
  EXPECT_EQ(histogram(step), (std::map<std::string, int>{{"Cast", 1}, {"Neg", kNodes}, {"Add", kSums}, {"Mul", 1}}));
}

// A product's kernel can take stored weights only as its second operand, and only if the first operand is not
// transposed. In all other cases the weights must be widened by a Cast.
TEST(StoredWeights, OtherOperandsOfProductsAreFloats) {
  Model m;
  const ValueId x = m.input("x", {2, 4}, DType::f32), w = m.weight("w", {4, 2});
  const ValueId left = m.add("MatMul", {w, x}),
                across = m.add("MatMul", {x, m.weight("v", {2, 3})}, {{"trans_a", std::int64_t{1}}});
  const Graph step = m.widened({left, across});
  EXPECT_EQ(histogram(step).at("Cast"), 2);
  for (const graph::Node &node : step.nodes()) EXPECT_FALSE(node.attributes.has("stored"));
}

// A Reshape between the dequantised matrix and the product runs on floats, so the product takes floats too.
TEST(StoredWeights, AProductTakesNoIntegersThroughOtherNodes) {
  Model m;
  const ValueId q = m.weight("q", {2, 2, 3}), scale = m.weight("scale", {});
  m.graph.value(q).type.dtype = DType::i8;
  const ValueId w = m.reshape(m.add("DequantizeLinear", {q, scale}), {4, 3});
  m.graph.outputs = {m.add("MatMul", {m.input("x", {2, 4}, DType::f32), w})};
  passes::widen_inside(m.graph);
  EXPECT_EQ(histogram(m.graph), (std::map<std::string, int>{{"DequantizeLinear", 1}, {"Reshape", 1}, {"MatMul", 1}}));
  EXPECT_FALSE(only(m.graph, "MatMul").attributes.has("stored"));
}

// A product also takes integers as they are stored, together with their scales. The scales become the product's last
// input.
TEST(StoredWeights, IntegersBringTheirScalesWithThem) {
  Model m;
  const ValueId x = m.input("x", {2, 64}, DType::f32), scales = m.weight("scales", {8, 2}), q = m.weight("q", {256});
  m.graph.value(q).type.dtype = DType::u8;
  const ValueId floats = m.add("DequantizeLinear", {q, scales},
                               {{"axis", std::int64_t{1}},
                                {"block_size", std::int64_t{32}},
                                {"bits", std::int64_t{4}},
                                {"shape", Shape{8, 64}}});
  m.graph.outputs = {m.add("MatMul", {x, floats}, {{"trans_b", std::int64_t{1}}})};
  passes::widen_inside(m.graph);
  const graph::Node &product = only(m.graph, "MatMul");
  EXPECT_EQ(product.inputs, (std::vector<ValueId>{x, q, ValueId::none, scales}));
  EXPECT_EQ(ops::infer(m.graph, product)[0], (graph::Type{DType::f32, {2, 8}}));
  EXPECT_EQ(m.graph.node_count(), 1u);
}

}  // namespace
}  // namespace protrain::test::stored_weights_test
