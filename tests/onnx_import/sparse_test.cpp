// Sparse initializers, and sparse values of Constant nodes, are read as dense tensors.
#include "onnx_import/wire.h"

namespace protrain::onnx_import::sparse_test {
namespace {

using test::attribute;
using test::Dims;
using test::field;
using test::floats;
using test::kInt64;
using test::node;
using test::raw;
using test::raw_data;
using test::Scratch;
using test::tensor;
using test::Wire;

std::string indices(const Dims &dims, const std::vector<std::int64_t> &values) {
  return tensor("i", kInt64, dims, raw_data(raw(values)));
}

std::string sparse(const std::string &values, const std::string &places, const Dims &dims) {
  std::string out = field(1, values) + field(2, places);
  for (const std::int64_t dim : dims) out += field(3, dim);
  return out;
}

// y = x * w with a sparse w (3, 4).
Wire with_weights(const std::string &weights) {
  Wire wire;
  wire.initializers.clear();
  wire.graph_extra = field(15, weights);
  return wire;
}

class Sparse : public testing::Test {
 protected:
  std::unique_ptr<Model> open(const Wire &wire) { return test::open_bytes(scratch_, wire.bytes()); }
  Error error(const std::string &weights) {
    return test::error_of([&] { open(with_weights(weights)); });
  }

  Scratch scratch_;
};

const std::vector<double> kDense = {0, 0, 5, 0, 0, 0, 0, 0, 0, -6, 0, 7};

TEST_F(Sparse, InitializersBecomeDense) {
  const std::string values = floats("w", {3}, {5, -6, 7});
  for (const std::string &places : {indices({3}, {2, 9, 11}), indices({3, 2}, {0, 2, 2, 1, 2, 3})}) {
    const auto model = open(with_weights(sparse(values, places, {3, 4})));
    const graph::Graph graph = model->graph({});
    EXPECT_EQ(graph.value(graph.find("w")).origin, graph::Origin::initializer);
    EXPECT_EQ(graph.value(graph.find("w")).type, (graph::Type{DType::f32, {3, 4}}));
    EXPECT_EQ(model->load("w").doubles(), kDense);
  }
}

TEST_F(Sparse, ConstantsBecomeDense) {
  Wire wire;
  wire.initializers.clear();
  const std::string value = sparse(floats("", {3}, {5, -6, 7}), indices({3}, {2, 9, 11}), {3, 4});
  wire.nodes.push_back(node("Constant", {}, {"w"}, {attribute("sparse_value", 11, field(22, value))}));
  const graph::Graph graph = open(wire)->graph({});
  EXPECT_EQ(graph.value(graph.find("w")).array.doubles(), kDense);
}

TEST_F(Sparse, ExportsAreDense) {
  const auto model = open(with_weights(sparse(floats("w", {1}, {5}), indices({1}, {2}), {3, 4})));
  const std::vector<float> trained(12, 0.5f);
  model->save(scratch_ / "out.onnx", [&](const std::string &, std::byte *out) {
    std::memcpy(out, trained.data(), 12 * sizeof(float));
    return true;
  });
  EXPECT_EQ(Model::open(scratch_ / "out.onnx")->load("w").doubles(), std::vector<double>(12, 0.5));
}

TEST_F(Sparse, IllegalOnesAreRefused) {
  const std::string values = floats("w", {2}, {1, 2});
  struct Case {
    std::string weights;
    Code code;
    const char *text;
  };
  const std::vector<Case> cases = {
      {sparse(values, indices({2}, {3, 2}), {3, 4}), Code::format, "ascending"},
      {sparse(values, indices({2}, {3, 3}), {3, 4}), Code::format, "ascending"},
      {sparse(values, indices({2}, {3, 12}), {3, 4}), Code::shape, "index 12"},
      {sparse(values, indices({2}, {-1, 3}), {3, 4}), Code::shape, "index -1"},
      {sparse(values, indices({2, 2}, {0, 4, 1, 0}), {3, 4}), Code::shape, "index 4"},
      {sparse(values, indices({3}, {0, 1, 2}), {3, 4}), Code::shape, "for 2 values"},
      {sparse(values, tensor("i", test::kInt32, {2}, raw_data(raw<std::int32_t>({0, 1}))), {3, 4}), Code::shape,
       "indices of int32"},
      {sparse(floats("w", {1, 2}, {1, 2}), indices({2}, {0, 1}), {3, 4}), Code::unsupported, "expected a list"},
      {sparse(values, indices({2}, {0, 1}), {3, -4}), Code::shape, "sparse tensor of"},
      {sparse(values, indices({2}, {0, 1}), {1 << 20, 1 << 20}), Code::limit, "store such large ones densely"},
      {sparse(values, indices({2}, {0, 1}), {1 << 13, 1 << 13}), Code::limit, "store such large ones densely"},
      {field(1, values), Code::type, "element type 0"},
      {"", Code::format, "required-field-empty"},
  };
  for (const Case &c : cases) {
    const Error found = error(c.weights);
    EXPECT_EQ(found.code, c.code) << c.text << ": " << found.text;
    EXPECT_NE(found.text.find(c.text), std::string::npos) << found.text;
  }
}

}  // namespace
}  // namespace protrain::onnx_import::sparse_test
