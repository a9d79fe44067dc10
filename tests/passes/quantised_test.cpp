// Weights that a file holds as integers are frozen parameters, and pairs of QuantizeLinear and DequantizeLinear on
// floats become FakeQuantize.
#include "passes/parameters/quantised.h"

#include <optional>

#include "errors.h"
#include "passes/hand_built.h"
#include "passes/passes.h"

namespace protrain::test::quantised_test {
namespace {

using passes::Finding;
using passes::PreparedModel;

constexpr std::int64_t kZero = 0;

// Returns small numbers for an initializer. They depend only on the initializer's type.
Array numbers_of(const Graph &graph, const std::string &name) {
  const graph::Type &type = graph.value(graph.find(name)).type;
  std::vector<double> values = some_values(type, 5).doubles();
  for (double &value : values) value = is_float(type.dtype) ? 0.01 + value * value : value;
  return Array::from_doubles(type, values);
}

// Builds graphs of nodes as a file has them: their results have no types yet.
struct FromFile : HandBuilt {
  ValueId stored(const std::string &name, Shape shape, DType dtype = DType::f32) {
    return initializer(name, std::move(shape), dtype);
  }
  ValueId file_node(const std::string &op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    graph::Node node{.op = op, .name = "/" + op, .attributes = std::move(attributes), .inputs = std::move(inputs)};
    return graph.node(graph.add_node(std::move(node), {op + "_out"})).outputs[0];
  }
  // Makes the mean of squares the loss, and runs all passes.
  PreparedModel prepared(ValueId y, const passes::Choices &choices = {}) {
    graph.outputs = {file_node("ReduceMean", {file_node("Mul", {y, y})}, {{"keepdims", kZero}})};
    const Graph before = graph;
    return passes::prepare(
        graph, [&](const std::string &name) { return numbers_of(before, name); }, choices);
  }
};

const Finding &finding(const std::vector<Finding> &findings, const std::string &name) {
  for (const Finding &one : findings)
    if (one.initializer == name) return one;
  throw std::runtime_error("nothing was found about " + name);
}

// The parts of a product h * w. The left operand h is x * v, and v is trained. The right operand w is a quantised
// matrix, with its scale and zero point.
struct QuantisedProduct : FromFile {
  QuantisedProduct() {
    const ValueId v = stored("v", {4, 6});
    h = file_node("MatMul", {input("x", {2, 4}, DType::f32), v});
    w = stored("w", {6, 8}, DType::i8);
    scale = stored("scale", {8});
    zero = stored("zero", {8}, DType::i8);
  }
  ValueId h, w, scale, zero;
};

TEST(Quantised, WeightsAreFrozenAndStayIntegers) {
  QuantisedProduct b;
  const ValueId floats = b.file_node("DequantizeLinear", {b.w, b.scale, b.zero});
  const PreparedModel model = b.prepared(b.file_node("MatMul", {b.h, floats}));
  for (const char *name : {"w", "scale", "zero"}) {
    const graph::Value &value = model.graph.value(model.graph.find(name));
    EXPECT_EQ(value.origin, Origin::parameter) << name;
    EXPECT_TRUE(value.frozen && finding(model.findings, name).frozen) << name;
  }
  EXPECT_EQ(model.graph.value(model.graph.find("w")).type, (graph::Type{DType::i8, {6, 8}}));
  EXPECT_EQ(finding(model.findings, "w").reason,
            "quantised weights, int8[6, 8], of DequantizeLinear at /DequantizeLinear");
  EXPECT_FALSE(finding(model.findings, "v").frozen);
  EXPECT_EQ(histogram(model.graph).at("DequantizeLinear"), 1);
}

TEST(Quantised, VectorsAreConstants) {
  QuantisedProduct b;
  const ValueId bias = b.file_node("DequantizeLinear", {b.stored("b", {6}, DType::i8), b.stored("one", {})});
  const PreparedModel model = b.prepared(b.file_node("Add", {b.h, bias}));
  EXPECT_EQ(histogram(model.graph).count("DequantizeLinear"), 0u);
  EXPECT_EQ(model.graph.parameters.size(), 1u);
}

TEST(Quantised, IntegersThatOthersReadAreConstants) {
  QuantisedProduct b;
  const ValueId floats = b.file_node("DequantizeLinear", {b.w, b.scale, b.zero});
  const ValueId numbers = b.file_node("Cast", {b.file_node("Equal", {b.w, b.w})}, {{"to", "float32"}});
  const PreparedModel model = b.prepared(b.file_node("MatMul", {b.h, b.file_node("Mul", {floats, numbers})}));
  EXPECT_EQ(model.graph.parameters.size(), 1u);
}

// The rows of a table may be picked before they are dequantised, as here.
TEST(Quantised, TablesAreFrozenToo) {
  FromFile b;
  const ValueId ids = b.input("ids", {2, 3}, DType::i64), table = b.stored("table", {5, 4}, DType::u8);
  const ValueId rows = b.file_node("Gather", {table, ids}, {{"axis", kZero}});
  const ValueId floats =
      b.file_node("DequantizeLinear", {rows, b.stored("scale", {}), b.stored("zero", {}, DType::u8)});
  const PreparedModel model = b.prepared(b.file_node("MatMul", {floats, b.stored("v", {4, 6})}));
  EXPECT_TRUE(model.graph.value(model.graph.find("table")).frozen);
  EXPECT_EQ(only(model.graph, "DequantizeLinear").inputs[0], only(model.graph, "Gather").outputs[0]);
}

TEST(Quantised, PairsOnFloatsBecomeFakeQuantize) {
  FromFile b;
  const ValueId x = b.input("x", {2, 4}, DType::f32), w = b.stored("w", {4, 6});
  const ValueId scale = b.stored("scale", {}), zero = b.stored("zero", {}, DType::u8), scales = b.stored("scales", {6}),
                zeros = b.stored("zeros", {6}, DType::i8);
  const auto pair = [&](ValueId of, ValueId s, ValueId z) {
    return b.file_node("DequantizeLinear", {b.file_node("QuantizeLinear", {of, s, z}), s, z});
  };
  const PreparedModel model = b.prepared(b.file_node("MatMul", {pair(x, scale, zero), pair(w, scales, zeros)}));
  EXPECT_FALSE(finding(model.findings, "w").frozen);
  EXPECT_TRUE(finding(model.findings, "w").parameter);
  EXPECT_FALSE(finding(model.findings, "scales").parameter);
  EXPECT_EQ(finding(model.findings, "scales").reason, "scale of QuantizeLinear at /QuantizeLinear");
  EXPECT_EQ(histogram(model.graph).at("FakeQuantize"), 2);
  for (const graph::Node &node : model.graph.nodes()) {
    if (node.op != "FakeQuantize") continue;
    const bool weights = model.graph.value(node.inputs[0]).name == "w";
    EXPECT_EQ(node.attributes.integer("low", 1), weights ? -128 : 0);
    EXPECT_EQ(node.attributes.integer("high", 1), weights ? 127 : 255);
  }
}

TEST(Quantised, FourBitsOfAQuantizeLinearHaveTheirRange) {
  FromFile b;
  const ValueId w = b.stored("w", {4, 6}), scale = b.stored("scale", {});
  const ValueId q = b.file_node("QuantizeLinear", {w, scale}, {{"bits", std::int64_t{4}}, {"output_dtype", "int8"}});
  const ValueId x = b.input("x", {2, 4}, DType::f32);
  const PreparedModel model = b.prepared(b.file_node("MatMul", {x, b.file_node("DequantizeLinear", {q, scale})}));
  EXPECT_EQ(only(model.graph, "FakeQuantize").attributes.integer("low", 0), -8);
  EXPECT_EQ(only(model.graph, "FakeQuantize").attributes.integer("high", 0), 7);
}

// PyTorch writes the range from 0 to 127 as QuantizeLinear, Clip and DequantizeLinear.
TEST(Quantised, AClipBetweenAPairNarrowsItsRange) {
  using Range = std::pair<std::int64_t, std::int64_t>;
  const auto range = [](std::optional<double> low, std::optional<double> high, DType integers) {
    FromFile b;
    const ValueId w = b.stored("w", {4, 6}), scale = b.stored("scale", {}), zero = b.number(0, integers);
    std::vector<ValueId> clip = {b.file_node("QuantizeLinear", {w, scale, zero}), ValueId::none, ValueId::none};
    if (low) clip[1] = b.number(*low, integers);
    if (high) clip[2] = b.number(*high, integers);
    const ValueId floats = b.file_node("DequantizeLinear", {b.file_node("Clip", clip), scale, zero});
    const PreparedModel model = b.prepared(b.file_node("MatMul", {b.input("x", {2, 4}, DType::f32), floats}));
    EXPECT_TRUE(finding(model.findings, "w").parameter);
    EXPECT_EQ(histogram(model.graph).count("Min") + histogram(model.graph).count("Max"), 0u);
    const Attributes &attributes = only(model.graph, "FakeQuantize").attributes;
    return Range(attributes.integer("low", 1), attributes.integer("high", 1));
  };
  EXPECT_EQ(range({}, 127, DType::u8), Range(0, 127));
  EXPECT_EQ(range(-127, 127, DType::i8), Range(-127, 127));
  EXPECT_EQ(range(-128, {}, DType::i8), Range(-128, 127));
  EXPECT_EQ(range(9, 7, DType::u8), Range(7, 7));  // the upper bound wins, as in ONNX
}

// A Clip by one number for each column of the integers has no form as a FakeQuantize.
TEST(Quantised, AClipByManyNumbersIsRefused) {
  FromFile b;
  const ValueId x = b.input("x", {2, 4}, DType::f32), scale = b.stored("scale", {}), zero = b.number(0, DType::u8);
  const ValueId many = b.constant(Array::from_integers({DType::u8, {4}}, {1, 2, 3, 4}));
  const ValueId clipped = b.file_node("Min", {b.file_node("QuantizeLinear", {x, scale, zero}), many});
  const ValueId floats = b.file_node("DequantizeLinear", {clipped, scale, zero});
  const ValueId y = b.file_node("MatMul", {floats, b.stored("w", {4, 6})});
  EXPECT_EQ(error_of([&] { b.prepared(y); }).code, Code::unsupported);
}

// The search for the QuantizeLinear before a DequantizeLinear is short, so that a file with a long chain of nodes that
// clip integers takes no time that grows with its square.
TEST(Quantised, ManyClipsBetweenAPairAreRefused) {
  const auto code_after = [](int clips) {
    FromFile b;
    const ValueId x = b.input("x", {2, 4}, DType::f32), scale = b.stored("scale", {}), zero = b.number(0, DType::u8);
    ValueId integers = b.file_node("QuantizeLinear", {x, scale, zero});
    for (int i = 0; i < clips; ++i) integers = b.file_node("Min", {integers, b.number(200 - i, DType::u8)});
    const ValueId floats = b.file_node("DequantizeLinear", {integers, scale, zero});
    const ValueId y = b.file_node("MatMul", {floats, b.stored("w", {4, 6})});
    return error_of([&] { b.prepared(y); }).code;
  };
  EXPECT_EQ(code_after(4), Code::ok);
  EXPECT_EQ(code_after(5), Code::unsupported);
}

// Files that ONNX Runtime has quantised begin with the nodes that widen weights. A step must widen each matrix right
// before its product, so that few wide matrices are in memory at a time.
TEST(Quantised, WeightsAreWidenedWhereTheyAreUsed) {
  QuantisedProduct b;
  const ValueId second = b.file_node("DequantizeLinear", {b.stored("w2", {8, 3}, DType::i8), b.stored("scale2", {3})}),
                first = b.file_node("DequantizeLinear", {b.w, b.scale, b.zero});
  const ValueId across = b.file_node("Transpose", {second}, {{"perm", Integers{1, 0}}});
  const ValueId y = b.file_node("MatMul", {b.h, first}), squared = b.file_node("Mul", {y, y});
  const PreparedModel model =
      b.prepared(b.file_node("MatMul", {squared, b.file_node("Transpose", {across}, {{"perm", Integers{1, 0}}})}));
  std::vector<std::string> order;
  for (const graph::Node &node : model.graph.nodes()) order.push_back(node.op);
  EXPECT_EQ(order, (std::vector<std::string>{"MatMul", "DequantizeLinear", "MatMul", "Mul", "DequantizeLinear",
                                             "MatMul", "Mul", "ReduceMean"}))
      << model.graph.print();
}

std::string refusal_of(FromFile &b, ValueId y) {
  try {
    b.prepared(y);
  } catch (const passes::Untrainable &error) {
    return error.text;
  }
  return "";
}

// The chain is so long that a recursion over its nodes would overflow the stack.
TEST(Quantised, ALongChainBehindWeightsMovesAsAWhole) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 4}, DType::f32), w = b.initializer("w", {4, 4}, DType::i8);
  ValueId wide = b.add("DequantizeLinear", {w, b.number(0.5, DType::f32)});
  for (int i = 0; i < 200'000; ++i) wide = b.add("Neg", {wide});
  const ValueId early = b.add("Neg", {x});
  b.graph.outputs = {b.add("MatMul", {early, wide})};
  passes::widen_late(b.graph);
  graph::verify(b.graph);
  EXPECT_EQ(b.graph.node_count(), 200'003u);
  EXPECT_EQ(b.graph.nodes().front().outputs[0], early);
  EXPECT_EQ(b.graph.nodes().back().op, "MatMul");
}

TEST(Quantised, IntegersThatNothingDequantisesAreRefused) {
  QuantisedProduct b;
  const ValueId q = b.file_node("QuantizeLinear", {b.h, b.stored("one", {}), b.stored("no", {}, DType::i8)});
  const std::string text = refusal_of(b, b.file_node("DequantizeLinear", {q, b.stored("other", {1})}));
  EXPECT_NE(text.find("QuantizeLinear: no DequantizeLinear of the same scale"), std::string::npos) << text;
}

TEST(Quantised, WhatComputesWithIntegersIsRefusedWithAWayOut) {
  for (const char *op : {"MatMulInteger", "QLinearMatMul", "DynamicQuantizeLinear", "com.microsoft::QGemm",
                         "com.microsoft::DynamicQuantizeMatMul", "com.microsoft::QLinearAdd"}) {
    QuantisedProduct b;
    const std::string text = refusal_of(b, b.file_node(op, {b.h, b.w}));
    EXPECT_NE(text.find("before quantisation"), std::string::npos) << text;
    EXPECT_NE(text.find("QuantFormat.QDQ"), std::string::npos) << text;
  }
  QuantisedProduct b;
  const std::string text = refusal_of(b, b.file_node("com.microsoft::MatMulBnb4", {b.h, b.w}));
  EXPECT_NE(text.find("in a form that is not read"), std::string::npos) << text;
}

// MatMulNBits with 5 rows of 40 weights, in blocks of 16. Each row has three blocks, and the last one is half empty.
struct NBits : FromFile {
  NBits() {
    a = file_node("MatMul", {input("x", {2, 4}, DType::f32), stored("v", {4, 40})});
    weights = stored("w", {5, 3, 8}, DType::u8);
    scales = stored("scales", {15});
  }
  ValueId product(std::vector<ValueId> inputs, std::int64_t bits = 4) {
    return file_node(
        "com.microsoft::MatMulNBits", std::move(inputs),
        {{"K", std::int64_t{40}}, {"N", std::int64_t{5}}, {"bits", bits}, {"block_size", std::int64_t{16}}});
  }
  ValueId a, weights, scales;
};

TEST(Quantised, MatMulNBitsIsAProductWithDequantisedWeights) {
  NBits b;
  const PreparedModel model = b.prepared(b.product({b.a, b.weights, b.scales, b.stored("zeros", {10}, DType::u8)}));
  const graph::Node &node = only(model.graph, "DequantizeLinear");
  EXPECT_EQ(node.attributes.integer("zero_row", 0), 4);
  EXPECT_EQ(node.attributes.integers("shape"), (Shape{5, 48}));
  EXPECT_EQ(model.graph.value(only(model.graph, "Slice").outputs[0]).type.shape, (Shape{5, 40}));
  EXPECT_EQ(finding(model.findings, "w").reason,
            "quantised weights, 4-bit, of com.microsoft::MatMulNBits at /com.microsoft::MatMulNBits");
  for (const char *name : {"w", "scales", "zeros"}) EXPECT_TRUE(model.graph.value(model.graph.find(name)).frozen);
}

TEST(Quantised, AGroupIndexMustNotReorder) {
  std::vector<std::int64_t> groups;
  for (std::int64_t i = 0; i < 40; ++i) groups.push_back(i / 16);
  const auto text_with = [&](const std::vector<std::int64_t> &values) {
    NBits b;
    const ValueId index = b.constant(Array::from_integers({DType::i32, {40}}, values));
    return refusal_of(b, b.product({b.a, b.weights, b.scales, ValueId::none, index}));
  };
  EXPECT_EQ(text_with(groups), "");
  std::swap(groups[0], groups[39]);
  EXPECT_NE(text_with(groups).find("g_idx"), std::string::npos) << text_with(groups);
}

TEST(Quantised, MatMulNBitsOfOtherSizesIsRefused) {
  NBits two;
  EXPECT_NE(refusal_of(two, two.product({two.a, two.weights, two.scales}, 2)).find("2 bits"), std::string::npos);
  NBits eight;
  EXPECT_EQ(code_of([&] { eight.prepared(eight.product({eight.a, eight.weights, eight.scales}, 8)); }), Code::shape);
}

// A table (7, 20) of four-bit elements in blocks of 16. Each zero point takes a whole byte, because the importer gives
// a byte to each zero point of four bits.
struct Table : FromFile {
  Table() { v = stored("v", {20, 4}); }
  PreparedModel rows(const Attributes &more = {}) {
    Attributes attributes = {{"block_size", std::int64_t{16}}, {"bits", std::int64_t{4}}, {"shape", Shape{7, 20}}};
    for (const auto &[key, value] : more.items()) attributes.set(key, value);
    const ValueId picked = file_node("com.microsoft::GatherBlockQuantized",
                                     {stored("w", {70}, DType::u8), input("i", {2, 3}, DType::i64),
                                      stored("scales", {7, 2}), stored("zeros", {7, 2}, DType::u8)},
                                     attributes);
    return prepared(file_node("MatMul", {picked, v}));
  }
  ValueId v;
};

TEST(Quantised, RowsOfATableAreGatheredBeforeTheyAreWidened) {
  Table table;
  PreparedModel model = table.rows();
  EXPECT_EQ(histogram(model.graph)["Gather"], 3);
  EXPECT_EQ(only(model.graph, "DequantizeLinear").attributes.integers("shape"), (Shape{2, 3, 20}));
  EXPECT_NE(finding(model.findings, "w").reason.find("uint4"), std::string::npos);
  passes::to_narrow(model.graph, model.graph.outputs[0], DType::bf16);
  EXPECT_EQ(model.graph.value(model.graph.find("scales")).type.dtype, DType::f32);
  EXPECT_EQ(model.graph.value(only(model.graph, "DequantizeLinear").outputs[0]).type.dtype, DType::bf16);
}

TEST(Quantised, OnlyRowsOfATableAreGathered) {
  for (const char *axis : {"gather_axis", "quantize_axis"}) {
    Table table;
    const Error error = error_of([&] { table.rows({{axis, std::int64_t{axis[0] == 'g'}}}); });
    EXPECT_EQ(error.code, Code::unsupported);
    EXPECT_NE(error.text.find("otherwise than by rows"), std::string::npos) << error.text;
  }
}

// When a step computes in 16 bits, the widened matrix has 16 bits, but the scales keep float32.
TEST(Quantised, ScalesStayFloat32) {
  QuantisedProduct b;
  const ValueId floats = b.file_node("DequantizeLinear", {b.w, b.scale, b.zero});
  PreparedModel model = b.prepared(b.file_node("MatMul", {b.h, floats}));
  passes::to_narrow(model.graph, model.graph.outputs[0], DType::bf16);
  EXPECT_EQ(model.graph.value(model.graph.find("scale")).type.dtype, DType::f32);
  EXPECT_EQ(model.graph.value(model.graph.find("w")).type.dtype, DType::i8);
  EXPECT_EQ(model.graph.value(only(model.graph, "DequantizeLinear").outputs[0]).type.dtype, DType::bf16);
}

}  // namespace
}  // namespace protrain::test::quantised_test
