// Opens damaged copies of a small model: every prefix, and copies with one bit flipped. None may crash the library.
#include "onnx_import/wire.h"

namespace protrain::onnx_import::damage_test {
namespace {

using test::field;
using test::node;
using test::Scratch;
using test::Wire;

// A model with one part of each kind: constants of two kinds, attributes, symbolic dims, typed data, and a tensor that
// is large enough to stay in the file when the model is opened.
std::string sample() {
  Wire wire;
  wire.inputs = {test::value("x", test::kFloat, {"n", "3"})};
  wire.initializers.push_back(test::tensor("i", test::kInt64, {2}, field(7, test::varint(1) + test::varint(300))));
  wire.initializers.push_back(test::tensor("big", test::kFloat, {300}, field(9, std::string(1200, '\0'))));
  wire.nodes = {
      node("Constant", {}, {"c"}, {test::tensor_attribute("value", test::floats("", {1}, {2}))}),
      node("MatMul", {"x", "w"}, {"z"}), node("Reshape", {"z", "i"}, {"r"}, {test::int_attribute("allowzero", 0)}),
      node("Cast", {"big"}, {"d"}, {test::int_attribute("to", test::kDouble)}), node("Mul", {"r", "c"}, {"y"})};
  return wire.bytes();
}

// Reads everything in the model. Returns false if the library throws an Error.
bool reads(const Scratch &scratch, const std::string &bytes) {
  try {
    const auto model = test::open_bytes(scratch, bytes);
    DimBindings dims;
    for (const std::string &name : model->symbolic_dims()) dims[name] = 2;
    const graph::Graph graph = model->graph(dims);
    for (const graph::Value &value : graph.values())
      if (value.origin == graph::Origin::initializer) model->load(value.name);
    return true;
  } catch (const Error &error) {
    EXPECT_NE(error.code, Code::internal) << error.subject << ": " << error.text;
    EXPECT_NE(error.text, "");
    return false;
  }
}

TEST(Damage, EveryPrefixIsRefused) {
  const Scratch scratch;
  const std::string bytes = sample();
  ASSERT_TRUE(reads(scratch, bytes));
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(reads(scratch, bytes.substr(0, length))) << length;
}

TEST(Damage, PrefixSaysWhereTheFileEnds) {
  const Scratch scratch;
  const std::string bytes = sample();
  for (const std::size_t length : {std::size_t{1}, bytes.size() / 3, bytes.size() - 1}) {
    const Error error = test::error_of([&] { test::open_bytes(scratch, bytes.substr(0, length)); });
    EXPECT_EQ(error.code, Code::format);
    EXPECT_NE(error.text.find("truncated at byte " + std::to_string(length)), std::string::npos) << error.text;
  }
}

TEST(Damage, EveryFlippedBitIsSurvived) {
  const Scratch scratch;
  const std::string bytes = sample();
  std::size_t refused = 0, accepted = 0;
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    (reads(scratch, flipped) ? accepted : refused) += 1;
  }
  EXPECT_GT(refused, 8 * 100u);    // bits of the structure
  EXPECT_GT(accepted, 8 * 1200u);  // bits of weights, which have no checksum
}

}  // namespace
}  // namespace protrain::onnx_import::damage_test
