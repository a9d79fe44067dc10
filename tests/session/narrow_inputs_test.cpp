// Inputs of narrow integers, such as the bytes of an image, that the model casts to floats.
#include <gtest/gtest.h>

#include <cstring>

#include "errors.h"
#include "onnx_import/wire.h"
#include "session/session.h"

namespace protrain::session::narrow_inputs_test {
namespace {

using test::error_of;
using test::int_attribute;
using test::node;

// y = MatMul(Cast(Transpose(x)), w), where x has the element type `element` of ONNX and the shape (3, 2).
std::unique_ptr<Session> session_of(std::int64_t element, const test::Names &before = {}) {
  const test::Scratch scratch;
  test::Wire wire;
  wire.inputs = {test::value("x", element, {"3", "2"})};
  wire.nodes = before;
  const std::string read = before.empty() ? "x" : "x2";
  wire.nodes.push_back(node("Transpose", {read}, {"rows"}));
  wire.nodes.push_back(node("Cast", {"rows"}, {"floats"}, {int_attribute("to", test::kFloat)}));
  wire.nodes.push_back(node("MatMul", {"floats", "w"}, {"y"}));
  draft::Options options;
  options.set("loss", "mse");
  return Session::create(options, scratch.put("model.onnx", wire.bytes()), nullptr);
}

template <typename T>
std::vector<float> losses_of(std::int64_t element, DType dtype, const std::vector<T> &values) {
  const auto session = session_of(element);
  EXPECT_EQ(session->input_dtype(0), dtype);
  session->set_input("x", dtype, {3, 2}, values.data());
  const std::vector<float> labels(8, 100);
  session->set_input("labels", DType::f32, {2, 4}, labels.data());
  std::vector<float> losses;
  for (int step = 0; step < 3; ++step) losses.push_back(session->step().loss);
  return losses;
}

TEST(NarrowInputs, TrainAsTheSameFloats) {
  const std::vector<float> bytes = losses_of<float>(1, DType::f32, {0, 1, 127, 128, 200, 255});
  EXPECT_EQ(losses_of<std::uint8_t>(2, DType::u8, {0, 1, 127, 128, 200, 255}), bytes);
  EXPECT_EQ(losses_of<std::uint16_t>(4, DType::u16, {0, 1, 127, 128, 200, 255}), bytes);
  const std::vector<float> with_signs = losses_of<float>(1, DType::f32, {0, -1, 127, -128, 5, 6});
  EXPECT_EQ(losses_of<std::int8_t>(3, DType::i8, {0, -1, 127, -128, 5, 6}), with_signs);
  EXPECT_EQ(losses_of<std::int16_t>(5, DType::i16, {0, -1, 127, -128, 5, 6}), with_signs);
  const std::vector<float> large = losses_of<float>(1, DType::f32, {0, 4294967295.0f, 1, 2, 3, 4});
  EXPECT_EQ(losses_of<std::uint32_t>(12, DType::u32, {0, 4294967295u, 1, 2, 3, 4}), large);
}

// The model adds bytes. ONNX wraps such a sum around at 256, but the library computes with wider integers, which do not
// wrap there. So the model is refused.
TEST(NarrowInputs, ThatAreComputedWithAreRefused) {
  const Error error = error_of([] { session_of(2, {node("Add", {"x", "x"}, {"x2"})}); });
  EXPECT_EQ(error.code, Code::unsupported) << error.text;
}

}  // namespace
}  // namespace protrain::session::narrow_inputs_test
