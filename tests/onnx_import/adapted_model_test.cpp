// Models that are exported with inputs for an adapter. These inputs have the element type of the adapted weight. If the
// weight consists of integers, they have the type that DequantizeLinear gives the integers.
#include <algorithm>
#include <set>

#include "onnx_import/wire.h"

namespace protrain::onnx_import::adapted_model_test {
namespace {

using test::node;
using test::Scratch;
using test::tensor;
using test::Wire;

const graph::LowRank kLowRank = {
    .initializers = {{"w", true}}, .a = "fc.lora_A.weight", .b = "fc.lora_B.weight", .in = 2, .out = 2};

// y = x * DequantizeLinear(w), where w holds integers of the type `element`. `scale` is the type of x and of the scale.
Wire dequantised(std::int64_t element, const std::string &w, std::int64_t scale, const std::string &attributes = "") {
  Wire wire;
  wire.initializers = {tensor("w", element, {2, 2}, test::raw_data(w)),
                       tensor("scale", scale, {}, test::raw_data(std::string(scale == test::kFloat ? 4 : 2, '\x3c')))};
  wire.inputs = {test::value("x", scale, {"2", "2"})};
  wire.nodes = {node("DequantizeLinear", {"w", "scale"}, {"floats"}) + attributes,
                node("MatMul", {"x", "floats"}, {"y"})};
  return wire;
}

class AdaptedModel : public testing::Test {
 protected:
  std::unique_ptr<Model> open(const Wire &wire) { return test::open_bytes(scratch_, wire.bytes()); }

  // Exports the model with inputs for an adapter of w. Returns their type.
  DType type_of_inputs(const Wire &wire) {
    const auto model = open(wire);
    model->save(scratch_ / "adapted.onnx", [](const std::string &, std::byte *) { return false; },
                {.adapters = {kLowRank}});
    const auto adapted = Model::open(scratch_ / "adapted.onnx");
    EXPECT_EQ(adapted->dtype_in_file(kLowRank.a), adapted->dtype_in_file(kLowRank.b));
    EXPECT_EQ(adapted->dtype_in_file(kLowRank.a), model->computed_dtype("w"));
    return adapted->dtype_in_file(kLowRank.a);
  }
  Scratch scratch_;
};

TEST_F(AdaptedModel, HasTheTypeOfTheScaleOfIntegers) {
  EXPECT_EQ(type_of_inputs(dequantised(test::kUint8, "abcd", test::kFloat)), DType::f32);
  EXPECT_EQ(type_of_inputs(dequantised(test::kUint8, "abcd", test::kHalf)), DType::f16);
  EXPECT_EQ(type_of_inputs(dequantised(test::kUint8, "abcd", test::kBrain)), DType::bf16);
}

TEST_F(AdaptedModel, HasTheTypeOfTheScaleOfFourBits) {
  for (const std::int64_t element : {test::kInt4, test::kUint4}) {
    EXPECT_EQ(type_of_inputs(dequantised(element, "ab", test::kFloat)), DType::f32);
    EXPECT_EQ(type_of_inputs(dequantised(element, "ab", test::kHalf)), DType::f16);
  }
}

TEST_F(AdaptedModel, HasTheTypeThatDequantizeLinearNames) {
  const std::string half = test::field(5, test::int_attribute("output_dtype", test::kHalf));
  Wire wire = dequantised(test::kUint8, "abcd", test::kFloat, half);
  wire.opset = test::field(8, test::field(2, 23));
  EXPECT_EQ(type_of_inputs(wire), DType::f16);
}

TEST_F(AdaptedModel, HasTheTypeOfFloats) {
  Wire wire;
  wire.initializers = {tensor("w", test::kHalf, {2, 2}, test::raw_data("abcdefgh"))};
  wire.inputs = {test::value("x", test::kHalf, {"2", "2"})};
  wire.nodes = {node("MatMul", {"x", "w"}, {"y"})};
  EXPECT_EQ(type_of_inputs(wire), DType::f16);
}

// The scale may come from a Constant node, and a Transpose may stand between the integer weights and the product.
TEST_F(AdaptedModel, FindsTheScaleOfAConstantNode) {
  Wire wire = dequantised(test::kUint8, "abcd", test::kHalf);
  wire.initializers.pop_back();
  const std::string half = tensor("", test::kHalf, {}, test::raw_data("\x01\x3c"));
  wire.nodes = {node("Constant", {}, {"scale"}, {test::tensor_attribute("value", half)}),
                node("Transpose", {"w"}, {"turned"}), node("DequantizeLinear", {"turned", "scale"}, {"floats"}),
                node("MatMul", {"x", "floats"}, {"y"})};
  EXPECT_EQ(type_of_inputs(wire), DType::f16);
}

TEST_F(AdaptedModel, IsFoundWhateverTheOrderOfTheNodes) {
  Wire wire = dequantised(test::kUint8, "abcd", test::kHalf);
  wire.nodes = {node("MatMul", {"x", "floats"}, {"y"}), node("DequantizeLinear", {"turned", "scale"}, {"floats"}),
                node("Transpose", {"w"}, {"turned"})};
  EXPECT_EQ(type_of_inputs(wire), DType::f16);
  const graph::Graph graph = Model::open(scratch_ / "adapted.onnx")->graph({});
  EXPECT_EQ(std::ranges::count(graph.nodes(), "MatMul", &graph::Node::op), 3);
}

TEST_F(AdaptedModel, MayNotBeReadByABodyBeforeIt) {
  Wire wire;
  wire.inputs.push_back(test::value("condition", test::kBool, {}));
  const std::string body = node("Identity", {"turned"}, {"result"});
  wire.nodes = {node("If", {"condition"}, {"again"},
                     {test::body_attribute("then_branch", {}, {body}, {"result"}),
                      test::body_attribute("else_branch", {}, {body}, {"result"})}),
                node("MatMul", {"x", "w"}, {"y"}), node("Transpose", {"w"}, {"turned"})};
  wire.outputs.push_back(test::value("again", test::kFloat, {"4", "3"}));
  const graph::LowRank adapter = {.initializers = {{"w", true}}, .a = "a", .b = "b", .in = 3, .out = 4};
  const auto model = open(wire);
  const Error error = test::error_of([&] {
    model->save(scratch_ / "adapted.onnx", [](const std::string &, std::byte *) { return false; },
                {.adapters = {adapter}});
  });
  EXPECT_EQ(error.code, Code::unsupported);
  EXPECT_EQ(error.subject, "turned");
}

// Converters to float16 add a Cast after a product, and give the Cast the name of the product's result. The nodes that
// the export adds must have other names, because ONNX Runtime refuses two nodes with the same name.
TEST_F(AdaptedModel, HasNoTwoNodesOfOneName) {
  Wire wire;
  wire.initializers = {tensor("w", test::kHalf, {2, 2}, test::raw_data("abcdefgh"))};
  wire.inputs = {test::value("x", test::kHalf, {"2", "2"})};
  wire.nodes = {
      node("MatMul", {"x", "w"}, {"product"}),
      node("Cast", {"product"}, {"y"}, {test::int_attribute("to", test::kFloat)}) + test::field(3, "product")};
  type_of_inputs(wire);
  const graph::Graph graph = Model::open(scratch_ / "adapted.onnx")->graph({});
  std::set<std::string> names;
  for (const graph::Node &node : graph.nodes()) EXPECT_TRUE(names.insert(node.name).second) << node.name;
  EXPECT_TRUE(names.contains("product"));
}

// Mixed precision: the weights have two bytes per element, and a Cast widens them for the product. So the adapter's
// inputs must have two bytes per element too, and must be widened in the same way.
TEST_F(AdaptedModel, IsCastAsTheWeightsAre) {
  Wire floats;
  floats.initializers = {tensor("w", test::kHalf, {2, 2}, test::raw_data("abcdefgh"))};
  floats.inputs = {test::value("x", test::kFloat, {"2", "2"})};
  floats.nodes = {node("Cast", {"w"}, {"wide"}, {test::int_attribute("to", test::kFloat)}),
                  node("MatMul", {"x", "wide"}, {"y"})};
  Wire integers = dequantised(test::kUint8, "abcd", test::kHalf);
  integers.inputs = floats.inputs;
  integers.nodes[1] = node("Cast", {"floats"}, {"wide"}, {test::int_attribute("to", test::kFloat)});
  integers.nodes.push_back(floats.nodes[1]);
  for (const Wire &wire : {floats, integers}) {
    EXPECT_EQ(type_of_inputs(wire), DType::f16);
    const graph::Graph graph = Model::open(scratch_ / "adapted.onnx")->graph({});
    std::multiset<std::string> cast;
    for (const graph::Node &node : graph.nodes())
      if (node.op == "Cast") cast.insert(graph.value(node.inputs[0]).name);
    const char *weights = wire.initializers.size() == 1 ? "w" : "floats";
    EXPECT_EQ(cast,
              (std::multiset<std::string>{"fc.lora_A.weight/transposed", "fc.lora_B.weight/transposed", weights}));
  }
}

// No adapter can be merged into integers. So the error must not advise a merge, and must name --save-adapter instead.
TEST_F(AdaptedModel, SaysWhatWorksForIntegers) {
  Wire cast = dequantised(test::kUint8, "abcd", test::kFloat), sum = cast;
  cast.nodes[0] = node("Cast", {"w"}, {"floats"}, {test::int_attribute("to", test::kFloat)});
  sum.nodes[1] = node("Add", {"x", "floats"}, {"y"});
  for (const Wire &wire : {cast, sum}) {
    const Error error = test::error_of([&] { type_of_inputs(wire); });
    EXPECT_EQ(error.code, Code::unsupported);
    EXPECT_EQ(error.text.find("merge"), std::string::npos) << error.text;
    EXPECT_NE(error.text.find("--save-adapter"), std::string::npos) << error.text;
  }
}

}  // namespace
}  // namespace protrain::onnx_import::adapted_model_test
