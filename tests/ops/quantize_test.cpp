#include "ops/gradient_check.h"

namespace protrain::test::quantize_test {
namespace {

Array bytes(const Shape &shape, const std::vector<std::int64_t> &values, DType dtype = DType::i8) {
  return Array::from_integers({dtype, shape}, values);
}
Array reals(const Shape &shape, const std::vector<double> &values) {
  return Array::from_doubles({DType::f32, shape}, values);
}

// Evaluates one node on constants. Holds the type and the values of its output.
struct OneResult {
  OneResult(const std::string &op, const Attributes &attributes, const std::vector<Array> &operands) {
    Node node{.op = op, .name = "n", .attributes = attributes, .inputs = {}, .outputs = {}};
    for (const Array &operand : operands) node.inputs.push_back(graph.add_constant("c", operand));
    type = ops::infer(graph, node).at(0);
    const ValueId out = graph.node(graph.add_node(std::move(node), {"y"})).outputs[0];
    graph.value(out).type = type;
    result = ops::interpret(graph, {})[index(out)];
  }

  Graph graph;
  Type type;
  Array result;
};

std::vector<double> values_of(const std::string &op, const Attributes &attributes, const std::vector<Array> &operands) {
  return OneResult(op, attributes, operands).result.doubles();
}

Code code_of_node(const std::string &op, const Attributes &attributes, const std::vector<Array> &operands) {
  return code_of([&] { OneResult(op, attributes, operands); });
}

TEST(DequantizeOp, HasOneScaleForAllOrOneForEachIndex) {
  const Array q = bytes({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(values_of("DequantizeLinear", {}, {q, reals({}, {0.5}), bytes({}, {1})}),
            (std::vector<double>{0, 0.5, 1, 1.5}));
  EXPECT_EQ(values_of("DequantizeLinear", {{"axis", std::int64_t{0}}}, {q, reals({2}, {1, 10})}),
            (std::vector<double>{1, 2, 30, 40}));
  EXPECT_EQ(values_of("DequantizeLinear", {}, {q, reals({2}, {1, 10}), bytes({2}, {0, 1})}),
            (std::vector<double>{1, 10, 3, 30}));
}

TEST(DequantizeOp, HasOneScaleForEachBlock) {
  const Attributes rows{{"axis", std::int64_t{0}}, {"block_size", std::int64_t{2}}};
  const Array q = bytes({3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(values_of("DequantizeLinear", rows, {q, reals({2, 2}, {1, 10, 100, 1000})}),
            (std::vector<double>{1, 20, 3, 40, 500, 6000}));
}

// ONNX packs two int4 into a byte. The first one is the lower half of the byte.
TEST(DequantizeOp, ReadsTwoElementsOfAByte) {
  Attributes four{{"bits", std::int64_t{4}}, {"shape", Shape{3}}, {"signed", std::int64_t{1}}};
  const std::vector<Array> operands = {bytes({2}, {0x21, 0x0F}, DType::u8), reals({}, {1})};
  EXPECT_EQ(values_of("DequantizeLinear", four, operands), (std::vector<double>{1, 2, -1}));
  four.set("signed", std::int64_t{0});
  four.set("zero_point", std::int64_t{8});
  EXPECT_EQ(values_of("DequantizeLinear", four, operands), (std::vector<double>{-7, -6, 7}));
  four.set("shape", Shape{5});
  EXPECT_EQ(code_of_node("DequantizeLinear", four, operands), Code::shape);
}

TEST(DequantizeOp, RefusesWhatDoesNotFit) {
  const Array q = bytes({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(code_of_node("DequantizeLinear", {}, {q, reals({2}, {1, 1})}), Code::shape);
  EXPECT_EQ(code_of_node("DequantizeLinear", {{"axis", std::int64_t{2}}}, {q, reals({3}, {1, 1, 1})}), Code::shape);
  EXPECT_EQ(code_of_node("DequantizeLinear", {{"block_size", std::int64_t{2}}}, {q, reals({2, 1}, {1, 1})}),
            Code::shape);
  EXPECT_EQ(code_of_node("DequantizeLinear", {{"block_size", std::int64_t{-1}}}, {q, reals({}, {1})}), Code::arg);
  EXPECT_EQ(code_of_node("DequantizeLinear", {}, {q, reals({3}, {1, 1, 1}), bytes({2}, {0, 0})}), Code::shape);
  EXPECT_EQ(code_of_node("DequantizeLinear", {}, {reals({2}, {1, 2}), reals({}, {1})}), Code::type);
  EXPECT_EQ(code_of_node("DequantizeLinear", {{"output_dtype", "int8"}}, {q, reals({}, {1})}), Code::type);
  EXPECT_EQ(code_of_node("DequantizeLinear", {{"zero_row", std::int64_t{4}}},
                         {q, reals({3}, {1, 1, 1}), bytes({2}, {0, 0}, DType::u8)}),
            Code::shape);
}

TEST(QuantizeOp, RoundsTiesToEvenAndClips) {
  const std::vector<Array> operands = {reals({6}, {0.5, 1.5, -0.5, 300, -300, 2.4}), reals({}, {1}), bytes({}, {10})};
  EXPECT_EQ(values_of("QuantizeLinear", {}, operands), (std::vector<double>{10, 12, 10, 127, -128, 12}));
  EXPECT_EQ(values_of("QuantizeLinear", {{"bits", std::int64_t{4}}}, operands),
            (std::vector<double>{7, 7, 7, 7, -8, 7}));
  EXPECT_EQ(OneResult("QuantizeLinear", {}, operands).type.dtype, DType::i8);
  EXPECT_EQ(OneResult("QuantizeLinear", {}, {operands[0], operands[1]}).type.dtype, DType::u8);
}

// FakeQuantize must give what QuantizeLinear followed by DequantizeLinear gives.
TEST(FakeQuantizeOp, IsQuantizeAndDequantize) {
  const Attributes range{{"low", std::int64_t{-128}}, {"high", std::int64_t{127}}};
  const Array x = reals({2, 3}, {0.31, -7, 40, 2.2, 0.05, -0.3}), scale = reals({3}, {0.1, 0.05, 0.3}),
              zero = bytes({3}, {3, -4, 0});
  const OneResult integers("QuantizeLinear", {}, {x, scale, zero});
  EXPECT_EQ(values_of("FakeQuantize", range, {x, scale, zero}),
            values_of("DequantizeLinear", {}, {integers.result, scale, zero}));
}

// As in PyTorch's fake_quantize, the slope is 0 where the rounded integer is clipped to the range, and 1 elsewhere.
TEST(FakeQuantizeOp, ItsGradientIsStraightThrough) {
  const std::vector<double> x = {-8.4, -8.6, 0.3, 7.4, 7.6};
  const GradientCase given{.op = "FakeQuantize",
                           .attributes = {{"low", std::int64_t{-8}}, {"high", std::int64_t{7}}},
                           .inputs = {Array::from_doubles({DType::f64, {5}}, x), reals({}, {1})}};
  OneNodeGraph one(given);
  const ValueId dx = one.differentiate().at(0);
  const Node &gradient = one.graph.nodes().back();
  EXPECT_EQ(gradient.op, "FakeQuantizeGrad");
  const std::vector<Array> values = ops::interpret(one.graph, one.bound);
  const std::vector<double> dy = values[index(gradient.inputs[0])].doubles();
  EXPECT_EQ(values[index(dx)].doubles(), (std::vector<double>{dy[0], 0, dy[2], dy[3], 0}));
}

}  // namespace
}  // namespace protrain::test::quantize_test
