// Files whose floats have 16 or 64 bits. The graph has float32 in their place.
//
// Weights of 16 bits keep their values exactly. Weights of 64 bits are rounded, and clamped to the finite numbers of
// float32. Saving rounds weights to the file's types again. A file of float32 can also hold a few values in float64.
// These stay float64.
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "onnx_import/floats.h"
#include "onnx_import/wire.h"

namespace protrain::onnx_import::floats_test {
namespace {

using test::field;
using test::int_attribute;
using test::node;
using test::Scratch;
using test::tensor;
using test::Wire;

constexpr std::uint16_t kHalfOne = 0x3C00, kHalfLargest = 0x7BFF, kHalfTiny = 0x0001, kBrainOne = 0x3F80;

// A model y = x * w + c in the 16-bit type `element`. A Cast gives x this type, and c is a Constant.
Wire of_type(std::int64_t element, const std::vector<std::uint16_t> &w, const std::string &data) {
  Wire wire;
  wire.initializers = {tensor("w", element, {3, static_cast<std::int64_t>(w.size()) / 3}, data)};
  wire.inputs = {test::value("x", element, {"2", "3"})};
  const std::string constant = tensor("", element, {1}, test::raw_data(test::raw<std::uint16_t>({0xFC00})));
  wire.nodes = {node("Cast", {"x"}, {"narrow"}, {int_attribute("to", element)}),
                node("Constant", {}, {"c"}, {test::tensor_attribute("value", constant)}),
                node("MatMul", {"narrow", "w"}, {"z"}), node("Add", {"z", "c"}, {"y"})};
  return wire;
}

std::string as_words(const std::vector<std::uint16_t> &values) {
  std::string packed;
  for (const std::uint16_t value : values) packed += test::varint(value);
  return field(5, packed);
}

std::vector<float> all_of(const Model &model, std::size_t count) {
  std::vector<float> values(count);
  model.read("w", 0, std::as_writable_bytes(std::span(values)));
  return values;
}

class FloatTypes : public testing::Test {
 protected:
  Scratch scratch_;
};

TEST_F(FloatTypes, GraphOfAHalfFileIsFloat32) {
  const auto model = test::open_bytes(
      scratch_, of_type(test::kHalf, {1, 2, 3}, test::raw_data(test::raw<std::uint16_t>({1, 2, 3}))).bytes());
  const graph::Graph graph = model->graph({});
  for (const graph::Value &value : graph.values())
    EXPECT_TRUE(value.type.dtype == DType::none || value.type.dtype == DType::f32) << value.name;
  EXPECT_EQ(graph.nodes()[0].attributes.text("to", ""), "float32");
  EXPECT_EQ(graph.value(graph.find("c")).array.doubles()[0], -std::numeric_limits<double>::infinity());
  EXPECT_EQ(model->inputs()[0].dtype, DType::f16);
  EXPECT_EQ(model->replaced_floats(), std::set<DType>{DType::f16});
}

// The file holds the weights either as raw data or, as onnx.helper writes them, as 32-bit integers. A tensor of 6
// elements is loaded when the model is opened, and one of 3000 stays in the file.
TEST_F(FloatTypes, WeightsEnterExactly) {
  for (const std::size_t count : {6, 3000}) {
    std::vector<std::uint16_t> bits(count, kHalfOne);
    bits[0] = kHalfLargest;
    bits[1] = kHalfTiny;
    bits[count - 1] = 0xBC01;
    for (const std::string &data : {test::raw_data(test::raw(bits)), as_words(bits)}) {
      const auto model = test::open_bytes(scratch_, of_type(test::kHalf, bits, data).bytes());
      const std::vector<float> read = all_of(*model, count);
      EXPECT_EQ(read[0], 65504);
      EXPECT_EQ(read[1], 0x1p-24f);
      EXPECT_EQ(read[2], 1);
      EXPECT_EQ(read[count - 1], -1.0009765625f);
      std::array<float, 2> part{};
      model->read("w", 4, std::as_writable_bytes(std::span(part)));
      EXPECT_EQ(part, (std::array<float, 2>{0x1p-24f, 1}));
      const graph::Array loaded = model->load("w");
      EXPECT_EQ(loaded.dtype(), DType::f32);
      EXPECT_EQ(loaded.doubles(), std::vector<double>(read.begin(), read.end()));
    }
  }
}

TEST_F(FloatTypes, SavedWeightsAreRoundedToTheFilesType) {
  for (const std::size_t count : {6, 3000}) {
    const std::vector<std::uint16_t> bits(count, kBrainOne);
    const auto model = test::open_bytes(scratch_, of_type(test::kBrain, bits, test::raw_data(test::raw(bits))).bytes());
    const Model::Weights weights = [&](const std::string &name, std::byte *out) {
      std::vector<float> values(count, 1.0078125f + 0x1p-9f);  // nearer to 1.0078125 than to the next
      values[1] = 3e38f;
      values[2] = std::numeric_limits<float>::max();
      if (name == "w") std::memcpy(out, values.data(), count * sizeof(float));
      return name == "w";
    };
    for (const std::uint64_t inline_bytes : {kInlineBytes, std::uint64_t{0}}) {
      model->save(scratch_ / "out.onnx", weights, {.inline_bytes = inline_bytes});
      const auto again = Model::open(scratch_ / "out.onnx");
      EXPECT_EQ(again->inputs()[0].dtype, DType::bf16);
      const std::vector<float> read = all_of(*again, count);
      EXPECT_EQ(read[0], 1.0078125f);
      EXPECT_NEAR(read[1], 3e38f, 1e36f);
      EXPECT_EQ(read[2], 0x1.FEp127f);  // finite
    }
  }
}

// The model multiplies data that are rounded to four bits by a weight that DequantizeLinear turns into float16.
TEST_F(FloatTypes, SavedAsComputedADequantizedWeightIsFloat32) {
  const auto typed = [](std::int64_t type) { return test::Names{int_attribute("output_dtype", type)}; };
  Wire wire;
  wire.opset = field(8, field(2, 23));
  wire.initializers = {tensor("w", test::kUint8, {3, 4}, test::raw_data(std::string(12, '\1'))),
                       tensor("s", test::kHalf, {}, test::raw_data(test::raw<std::uint16_t>({kHalfOne})))};
  wire.inputs = {test::value("x", test::kHalf, {"2", "3"})};
  wire.nodes = {node("DequantizeLinear", {"w", "s"}, {"wide"}, typed(test::kHalf)),
                node("QuantizeLinear", {"x", "s"}, {"q"}, typed(test::kInt4)),
                node("DequantizeLinear", {"q", "s"}, {"rounded"}, typed(0)),
                node("MatMul", {"rounded", "wide"}, {"y"})};
  const auto model = test::open_bytes(scratch_, wire.bytes());
  EXPECT_EQ(model->computed_dtype("w"), DType::f16);
  model->save(scratch_ / "out.onnx", [](const std::string &, std::byte *) { return false; }, {.as_computed = true});
  const std::string bytes = scratch_.get("out.onnx");
  EXPECT_EQ(bytes.find(typed(test::kHalf)[0]), std::string::npos);
  EXPECT_NE(bytes.find(typed(test::kInt4)[0]), std::string::npos);
  const auto again = Model::open(scratch_ / "out.onnx");
  EXPECT_EQ(again->computed_dtype("w"), DType::f32);
  EXPECT_TRUE(again->replaced_floats().empty());
}

TEST_F(FloatTypes, ModelOfFloat64IsFloat32) {
  Wire wire;
  const std::vector<double> w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, -std::numeric_limits<double>::max()};
  wire.initializers = {tensor("w", test::kDouble, {3, 4}, test::raw_data(test::raw(w)))};
  wire.inputs = {test::value("x", test::kDouble, {"2", "3"})};
  const auto model = test::open_bytes(scratch_, wire.bytes());
  const graph::Graph graph = model->graph({});
  EXPECT_EQ(graph.value(graph.find("w")).type.dtype, DType::f32);
  EXPECT_EQ(graph.value(graph.find("x")).type.dtype, DType::f32);
  EXPECT_EQ(model->replaced_floats(), std::set<DType>{DType::f64});
  const std::vector<float> read = all_of(*model, 12);
  EXPECT_EQ(read[10], 11);
  EXPECT_EQ(read[11], -std::numeric_limits<float>::max());
}

// Exporters compute tables of a float32 model in float64. Such a table stays float64.
TEST_F(FloatTypes, Float64IsLeftInModelsOfFloat32) {
  Wire wire;
  wire.initializers.push_back(tensor("s", test::kDouble, {1}, test::raw_data(test::raw<double>({0.1}))));
  wire.nodes = {node("Cast", {"s"}, {"t"}, {int_attribute("to", test::kFloat)}), node("MatMul", {"x", "w"}, {"z"}),
                node("Mul", {"z", "t"}, {"y"})};
  const auto model = test::open_bytes(scratch_, wire.bytes());
  const graph::Graph graph = model->graph({});
  EXPECT_EQ(graph.value(graph.find("s")).type.dtype, DType::f64);
  EXPECT_EQ(model->load("s").doubles()[0], 0.1);
  EXPECT_TRUE(model->replaced_floats().empty());
}

}  // namespace
}  // namespace protrain::onnx_import::floats_test
