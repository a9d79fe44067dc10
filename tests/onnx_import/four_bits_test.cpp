// Tensors of int4 and uint4, which have two elements in a byte. Those that only DequantizeLinear reads stay packed.
#include <array>

#include "onnx_import/wire.h"

namespace protrain::onnx_import::four_bits_test {
namespace {

using test::int_attribute;
using test::node;
using test::Scratch;
using test::tensor;
using test::Wire;

// A model y = x * DequantizeLinear(w), where w (3, 3) has four bits an element and the bytes `data`. `more` are further
// nodes.
Wire dequantized(std::int64_t element, const std::string &data, std::vector<std::string> more = {}) {
  Wire wire;
  wire.initializers = {tensor("w", element, {3, 3}, data), test::floats("scale", {}, {0.5}),
                       tensor("zero", element, {}, test::raw_data("\x02"))};
  wire.inputs = {test::value("x", test::kFloat, {"2", "3"})};
  wire.nodes = {node("DequantizeLinear", {"w", "scale", "zero"}, {"floats"}), node("MatMul", {"x", "floats"}, {"y"})};
  for (std::string &another : more) wire.nodes.push_back(std::move(another));
  return wire;
}

const std::string kBytes = std::string("\x21\x43\x65\x87\x09", 5);  // 1 to 9, which as int4 are 1 to 7, -8 and -7

class FourBits : public testing::Test {
 protected:
  std::unique_ptr<Model> open(const Wire &wire) { return test::open_bytes(scratch_, wire.bytes()); }
  Scratch scratch_;
};

TEST_F(FourBits, StayPackedForDequantizeLinear) {
  std::string words;
  for (const char byte : kBytes) words += test::varint(static_cast<unsigned char>(byte));
  for (const std::string &data : {test::raw_data(kBytes), test::field(5, words)}) {
    const auto model = open(dequantized(test::kInt4, data));
    const graph::Graph graph = model->graph({});
    const graph::Value &w = graph.value(graph.find("w"));
    EXPECT_EQ(w.type, (graph::Type{DType::u8, {5}}));
    EXPECT_EQ(w.origin, graph::Origin::initializer);
    EXPECT_EQ(model->load("w").integers(), (std::vector<std::int64_t>{0x21, 0x43, 0x65, 0x87, 0x09}));
    std::array<std::byte, 2> part{};
    model->read("w", 3, part);
    EXPECT_EQ(part, (std::array{std::byte{0x87}, std::byte{0x09}}));
    const graph::Attributes &attributes = graph.nodes()[0].attributes;
    EXPECT_EQ(attributes.integer("bits", 0), 4);
    EXPECT_EQ(attributes.integer("signed", 0), 1);
    EXPECT_EQ(attributes.integers("shape"), (Shape{3, 3}));
  }
}

TEST_F(FourBits, StayPackedForGatherBlockQuantized) {
  Wire wire = dequantized(test::kUint4, test::raw_data(kBytes));
  wire.opset += test::field(8, test::field(1, "com.microsoft") + test::field(2, 1));
  wire.nodes[0] =
      node("GatherBlockQuantized", {"w", "i", "scale", "zero"}, {"floats"}) + test::field(7, "com.microsoft");
  wire.inputs.push_back(test::value("i", test::kInt64, {"2"}));
  const auto model = open(wire);
  const graph::Graph graph = model->graph({});
  EXPECT_EQ(graph.value(graph.find("w")).type, (graph::Type{DType::u8, {5}}));
  EXPECT_EQ(graph.nodes()[0].attributes.integers("shape"), (Shape{3, 3}));
}

// Zero points of four bits are unpacked to a byte each. Like the weights, they can be read in parts.
TEST_F(FourBits, ZeroPointsHaveAByteEach) {
  Wire wire = dequantized(test::kInt4, test::raw_data(kBytes));
  wire.initializers[2] = tensor("zero", test::kInt4, {3}, test::raw_data("\x21\x0f"));
  const auto model = open(wire);
  std::array<std::byte, 2> part{};
  model->read("zero", 1, part);
  EXPECT_EQ(part, (std::array{std::byte{2}, std::byte{0xff}}));
  EXPECT_EQ(test::error_of([&] { model->read("zero", 2, part); }).code, Code::internal);
}

TEST_F(FourBits, HaveAByteEachForOtherNodes) {
  const Wire wire = dequantized(test::kInt4, test::raw_data(kBytes), {node("Identity", {"w"}, {"again"})});
  const auto model = open(wire);
  const graph::Graph graph = model->graph({});
  EXPECT_EQ(graph.value(graph.find("w")).type, (graph::Type{DType::i8, {3, 3}}));
  EXPECT_EQ(model->load("w").integers(), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, -8, -7}));
  EXPECT_FALSE(graph.nodes()[0].attributes.has("bits"));
  EXPECT_EQ(model->load("zero").integers(), (std::vector<std::int64_t>{2}));
}

TEST_F(FourBits, WithoutASignAreUpTo15) {
  const auto model = open(dequantized(test::kUint4, test::raw_data(kBytes), {node("Identity", {"w"}, {"again"})}));
  EXPECT_EQ(model->load("w").integers(), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST_F(FourBits, AreTheRangeOfAQuantizeLinear) {
  const std::string quantize = node("QuantizeLinear", {"x", "scale", "zero"}, {"q"});
  const auto model = open(dequantized(test::kInt4, test::raw_data(kBytes), {quantize}));
  const graph::Graph graph = model->graph({});
  EXPECT_EQ(graph.nodes().back().attributes.integer("bits", 0), 4);
  EXPECT_EQ(graph.value(graph.find("zero")).type.dtype, DType::i8);
}

TEST_F(FourBits, AreSavedAsTheyAre) {
  const auto model = open(dequantized(test::kInt4, test::raw_data(kBytes)));
  model->save(scratch_ / "out.onnx", [](const std::string &, std::byte *) { return false; });
  const auto again = Model::open(scratch_ / "out.onnx");
  EXPECT_EQ(again->graph({}).print(), model->graph({}).print());
  EXPECT_TRUE(again->load("w").same_as(model->load("w")));
}

TEST_F(FourBits, AreNoTypeOfInputs) {
  Wire wire = dequantized(test::kInt4, test::raw_data(kBytes));
  wire.inputs.push_back(test::value("q", test::kInt4, {"2"}));
  const Error found = test::error_of([&] { open(wire); });
  EXPECT_EQ(found.code, Code::type);
  EXPECT_NE(found.text.find("int4"), std::string::npos) << found.text;
}

// Files of earlier opsets use ONNX Runtime's operators of the same names, in the domain com.microsoft.
TEST_F(FourBits, AreReadInTheDomainOfOnnxRuntimeToo) {
  Wire wire = dequantized(test::kInt4, test::raw_data(kBytes));
  wire.nodes[0] = node("DequantizeLinear", {"w", "scale", "zero"}, {"floats"}) + test::field(7, "com.microsoft");
  wire.opset += test::field(8, test::field(1, "com.microsoft") + test::field(2, 1));
  EXPECT_EQ(open(wire)->graph({}).nodes()[0].op, "DequantizeLinear");
}

}  // namespace
}  // namespace protrain::onnx_import::four_bits_test
