// Frozen weights that are rounded when they are loaded. fixtures/make_rounded.py recorded what bitsandbytes and ONNX
// Runtime make of the same matrices.
#include "passes/parameters/rounded.h"

#include <bit>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "errors.h"
#include "fixtures.h"
#include "passes/hand_built.h"
#include "passes/parameters/stored.h"

namespace protrain::test::rounded_test {
namespace {

using passes::RoundedMatrix;
using passes::RoundedValues;

// The numbers of matrix_of() in make_rounded.py.
std::vector<float> matrix_of(std::int64_t rows, std::int64_t columns, std::int64_t seed) {
  std::vector<float> values;
  std::int64_t state = seed;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column) {
      double sum = 0;
      for (int i = 0; i < 3; ++i) {
        state = state * 48271 % 2147483647;
        sum += static_cast<double>(state) / 2147483648.0 - 0.5;
      }
      values.push_back(static_cast<float>(std::ldexp(sum, static_cast<int>(row % 5) - 6)));
    }
  return values;
}

std::vector<float> transposed(const std::vector<float> &from, std::int64_t rows, std::int64_t columns) {
  std::vector<float> to(from.size());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      to[static_cast<std::size_t>(j * rows + i)] = from[static_cast<std::size_t>(i * columns + j)];
  return to;
}

RoundedMatrix matrix(const char *form, Shape shape, std::size_t axis) {
  return {passes::find_rounding(form), "w", std::move(shape), axis};
}

RoundedValues rounded(const RoundedMatrix &matrix, const std::vector<float> &floats) {
  return passes::round(matrix, [&](std::int64_t first, std::span<float> out) {
    std::copy_n(floats.begin() + first, out.size(), out.begin());
  });
}

std::vector<std::uint8_t> unpacked(const RoundedMatrix &matrix, const RoundedValues &values) {
  if (matrix.rounding->bits == 8) return {values.elements().begin(), values.elements().end()};
  std::vector<std::uint8_t> all;
  for (std::int64_t i = 0; i < element_count(matrix.shape); ++i)
    all.push_back(values.elements()[static_cast<std::size_t>(i / 2)] >> (i % 2 * 4) & 15);
  return all;
}

std::string hex(const std::vector<std::uint8_t> &bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::vector<std::uint32_t> bits(const std::vector<float> &values) {
  std::vector<std::uint32_t> found;
  for (const float value : values) found.push_back(std::bit_cast<std::uint32_t>(value));
  return found;
}

class RoundedBlocks : public testing::TestWithParam<const char *> {
 protected:
  RoundedBlocks() {
    std::ifstream file(fixture("rounded/blocks.json"));
    golden_ = nlohmann::json::parse(file)[GetParam()];
    rows_ = golden_["rows"];
    columns_ = golden_["columns"];
    floats_ = matrix_of(rows_, columns_, golden_["seed"]);
  }
  nlohmann::json golden_;
  std::int64_t rows_ = 0, columns_ = 0;
  std::vector<float> floats_;
};

TEST_P(RoundedBlocks, AreThoseOfTheOriginalBitForBit) {
  const RoundedMatrix m = matrix(GetParam(), {rows_, columns_}, 1);
  const RoundedValues values = rounded(m, floats_);
  EXPECT_EQ(hex(unpacked(m, values)), golden_["elements"].get<std::string>());
  const bool codes = m.rounding->codes;
  EXPECT_EQ(bits(values.scales), golden_[codes ? "scale_scales" : "scales"].get<std::vector<std::uint32_t>>());
  EXPECT_EQ(hex(values.bytes), golden_[codes ? "scale_codes" : "zero_points"].get<std::string>());
  if (codes) {
    EXPECT_EQ(bits(values.offset), golden_["offset"].get<std::vector<std::uint32_t>>());
  }
  std::vector<float> floats = floats_;
  passes::round_floats(m, floats);
  const std::string_view bytes(reinterpret_cast<const char *>(floats.data()), floats.size() * sizeof(float));
  EXPECT_EQ(fnv1a(bytes), golden_["floats"].get<std::uint64_t>());
}

// Blocks lie along the inner axis of the product. So a matrix and its transpose have the same blocks, and rounding
// gives both the same integers or NF4 codes. The test compares these numbers, but not the scales. nf4 compresses scales
// in groups, and the groups of the transpose hold other scales, so the compressed scales may differ.
TEST_P(RoundedBlocks, LieAlongTheInnerAxisEitherWay) {
  const RoundedMatrix m = matrix(GetParam(), {rows_, columns_}, 1), across = matrix(GetParam(), {columns_, rows_}, 0);
  const auto straight = unpacked(m, rounded(m, floats_));
  const auto other = unpacked(across, rounded(across, transposed(floats_, rows_, columns_)));
  for (std::int64_t i = 0; i < rows_; ++i)
    for (std::int64_t j = 0; j < columns_; ++j)
      ASSERT_EQ(straight[static_cast<std::size_t>(i * columns_ + j)], other[static_cast<std::size_t>(j * rows_ + i)]);
}

// The graph has operators that turn the rounded values into floats. These must be the floats that round_floats()
// returns.
TEST_P(RoundedBlocks, StandForTheFloatsThatTheGraphComputes) {
  for (const std::size_t axis : {0, 1}) {
    HandBuilt m;
    const Shape shape = {rows_, columns_};
    const ValueId w = m.parameter("w", shape);
    m.graph.value(w).type.dtype = DType::f32;
    m.graph.value(w).frozen = true;
    const ValueId x = m.input("x", {2, shape[axis]}, DType::f32);
    const Attributes attributes = {{"trans_b", static_cast<std::int64_t>(axis)}};
    m.graph.outputs = {m.add("MatMul", {x, w}, attributes)};
    std::vector<RoundedMatrix> found = passes::find_rounded(m.graph, *passes::find_rounding(GetParam()));
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].axis, axis);
    passes::round_frozen(m.graph, found);
    EXPECT_EQ(m.graph.parameters.size(), 1 + found[0].others.size());
    const ValueId product = m.graph.outputs[0], floats = m.graph.node(m.graph.value(product).producer).inputs[1];
    std::vector<float> expected = floats_;
    passes::round_floats(found[0], expected);
    const RoundedValues values = rounded(found[0], floats_);
    std::map<ValueId, Array> bound;
    for (std::size_t i = 0; i < m.graph.parameters.size(); ++i) {
      const graph::Type &type = m.graph.value(m.graph.parameters[i]).type;
      const std::span<const std::byte> bytes = values.part(i);
      ASSERT_EQ(bytes.size(), byte_count(type.dtype, type.shape)) << m.graph.value(m.graph.parameters[i]).name;
      bound.emplace(m.graph.parameters[i], Array(type, type.shape, {bytes.begin(), bytes.end()}));
    }
    bound.emplace(x, Array::filled({DType::f32, {2, shape[axis]}}, 1));
    const std::vector<double> computed = ops::interpret(m.graph, bound)[index(floats)].doubles();
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_EQ(static_cast<float>(computed[i]), expected[i]) << "axis " << axis << ", element " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, RoundedBlocks, testing::Values("nf4", "int4", "int8"));

TEST(RoundedWeights, OfZerosAndOfOneNumberAreExact) {
  for (const char *form : {"nf4", "int4", "int8"}) {
    std::vector<float> zeros(4 * 130, 0);
    passes::round_floats(matrix(form, {4, 130}, 1), zeros);
    EXPECT_EQ(zeros, std::vector<float>(4 * 130, 0)) << form;
    std::vector<float> halves(2 * 64, -0.5F);
    passes::round_floats(matrix(form, {2, 64}, 1), halves);
    for (const float value : halves) EXPECT_FLOAT_EQ(value, -0.5F) << form;
  }
}

TEST(RoundedWeights, AreRefusedIfTheyAreNotFinite) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> floats(300, 1);
    floats[299] = bad;
    const Error error = error_of([&] { passes::round_floats(matrix("nf4", {3, 100}, 1), floats); });
    EXPECT_EQ(error.code, Code::nonfinite);
    EXPECT_EQ(error.subject, "w");
  }
}

// A model whose parameter `v` is trained, while all others are frozen.
struct Model : HandBuilt {
  ValueId weight(const std::string &name, Shape shape, bool frozen = true) {
    const ValueId id = parameter(name, std::move(shape));
    graph.value(id).type.dtype = DType::f32;
    graph.value(id).frozen = frozen;
    return id;
  }
  std::vector<std::string> found(const char *form) const {
    std::vector<std::string> names;
    for (const RoundedMatrix &matrix : passes::find_rounded(graph, *passes::find_rounding(form)))
      names.push_back(matrix.parameter);
    return names;
  }
};

TEST(RoundedFloats, OfBfloat16TakeTheEvenOneOfTwoThatAreAsNear) {
  std::vector<float> floats = {1 + 0x1p-8f, 1 + 3 * 0x1p-8f, -1 - 0x1p-8f, 0.1f};
  passes::round_floats(matrix("bf16", {1, 4}, 0), floats);
  EXPECT_EQ(floats, (std::vector<float>{1, 1 + 0x1p-6f, -1, 0.10009765625f}));
}

using Names = std::vector<std::string>;

TEST(RoundedWeights, AreFrozenRightOperandsOfProductsAlone) {
  Model m;
  const ValueId ids = m.input("ids", {2, 3}, DType::i64), table = m.weight("table", {50, 8});
  const ValueId tied = m.weight("tied", {50, 8});
  const ValueId x = m.add("Add", {m.add("Gather", {table, ids}, {{"axis", std::int64_t{0}}}),
                                  m.add("Gather", {tied, ids}, {{"axis", std::int64_t{0}}})});
  const ValueId h = m.add("Add", {m.add("MatMul", {x, m.weight("w", {8, 8})}), m.weight("bias", {8})});
  const ValueId y = m.add("MatMul", {h, m.weight("v", {8, 8}, false)});
  m.graph.outputs = {m.add("MatMul", {y, tied}, {{"trans_b", std::int64_t{1}}})};
  for (const char *form : {"int8", "nf4", "int4"}) EXPECT_EQ(m.found(form), Names{"w"}) << form;
  EXPECT_EQ(m.found("bf16"), (Names{"table", "tied", "w"}));
}

TEST(RoundedWeights, AreNeverInFloat64) {
  Model m;
  const ValueId w = m.weight("w", {8, 8});
  m.graph.value(w).type.dtype = DType::f64;
  m.graph.outputs = {m.add("MatMul", {m.input("x", {2, 8}, DType::f64), w})};
  for (const char *form : {"bf16", "int8", "nf4", "int4"}) EXPECT_EQ(m.found(form), Names{}) << form;
}

// The product's kernel reads the integers in the form in which they are stored. It cannot read scales that are stored
// as codes, so a DequantizeLinear right before the product turns such scales into floats.
TEST(RoundedWeights, AreWidenedInsideTheProducts) {
  for (const char *form : {"int8", "nf4", "int4"}) {
    Model m;
    m.graph.outputs = {m.add("MatMul", {m.input("x", {2, 128}, DType::f32), m.weight("w", {128, 6})})};
    auto found = passes::find_rounded(m.graph, *passes::find_rounding(form));
    passes::round_frozen(m.graph, found);
    passes::widen_inside(m.graph);
    const std::map<std::string, int> nodes = histogram(m.graph);
    EXPECT_EQ(nodes.at("MatMul"), 1);
    EXPECT_EQ(nodes.contains("DequantizeLinear"), found[0].rounding->codes) << form;
    const graph::Node &product = only(m.graph, "MatMul");
    EXPECT_EQ(product.attributes.text("stored", ""), "DequantizeLinear");
    EXPECT_EQ(m.graph.value(product.inputs[1]).name, "w");
    EXPECT_EQ(m.graph.value(product.inputs[1]).type.dtype, DType::u8);
  }
}

}  // namespace
}  // namespace protrain::test::rounded_test
