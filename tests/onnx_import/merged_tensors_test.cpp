// Tensors that PyTorch's older exporter merged. The first model has two linear layers, copies of each other, of which
// the file stores one.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "onnx_import/wire.h"

namespace protrain::test::merged_tensors_test {

namespace {

using Copies = std::map<std::string, graph::MergedTensor>;

const graph::MergedTensor kBias = {"layers.0.bias", "layers.1.bias", "layers.0.bias"},
                          kMatrix = {"onnx::MatMul_7", "layers.1.computed", "layers.0.computed"};

// A node with a scope in its name, as the exporter writes them: "/layers.0/MatMul".
std::string scoped(const std::string &name, const std::string &op, const Names &inputs, const std::string &output) {
  return node(op, inputs, {output}) + field(3, name);
}

struct TwoLayers : Wire {
  TwoLayers() {
    head = field(1, 8) + field(2, "pytorch");
    inputs = {value("x", kFloat, {"2", "3"})};
    outputs = {value("y", kFloat, {"2", "3"})};
    nodes = {
        node("Identity", {"layers.0.bias"}, {"layers.1.bias"}),
        node("Identity", {"onnx::MatMul_7"}, {"onnx::MatMul_9"}),
        scoped("/layers.0/MatMul", "MatMul", {"x", "onnx::MatMul_7"}, "/layers.0/MatMul_output_0"),
        scoped("/layers.0/Add", "Add", {"/layers.0/MatMul_output_0", "layers.0.bias"}, "/layers.0/Add_output_0"),
        scoped("/layers.1/MatMul", "MatMul", {"/layers.0/Add_output_0", "onnx::MatMul_9"}, "/layers.1/MatMul_output_0"),
        scoped("/layers.1/Add", "Add", {"/layers.1/MatMul_output_0", "layers.1.bias"}, "y")};
    initializers = {floats("layers.0.bias", {3}, {1, 2, 3}),
                    floats("onnx::MatMul_7", {3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9})};
  }
  Copies copies() const {
    const Scratch scratch;
    return open_bytes(scratch, bytes())->declared().merged;
  }
};

}  // namespace

TEST(MergedTensors, AreTheIdentitiesOfStoredOnesThatHaveATensorsName) {
  EXPECT_EQ(TwoLayers().copies(), (Copies{{"layers.1.bias", kBias}, {"onnx::MatMul_9", kMatrix}}));
}

TEST(MergedTensors, AreOnlyInFilesOfPytorchsOlderExporter) {
  TwoLayers model;
  model.head = field(1, 8) + field(2, "paddle2onnx");
  EXPECT_EQ(model.copies(), Copies{});
  TwoLayers newer;
  newer.nodes[0] += field(9, pair("namespace", "layers.1"));
  EXPECT_EQ(newer.copies(), Copies{});
}

TEST(MergedTensors, AreNoValuesThatTheModelComputes) {
  TwoLayers model;
  model.nodes[0] = node("Identity", {"layers.0.bias"}, {"/layers.1/Identity_output_0"});
  model.nodes[5] = scoped("/layers.1/Add", "Add", {"/layers.1/MatMul_output_0", "/layers.1/Identity_output_0"}, "y");
  EXPECT_EQ(model.copies(), (Copies{{"onnx::MatMul_9", kMatrix}}));
  model.nodes[0] = node("Identity", {"layers.0.bias"}, {"12"});
  model.nodes[5] = scoped("/layers.1/Add", "Add", {"/layers.1/MatMul_output_0", "12"}, "y");
  EXPECT_EQ(model.copies(), (Copies{{"onnx::MatMul_9", kMatrix}}));
}

// A matrix that one layer applies twice is transposed twice, and both results are stored.
TEST(MergedTensors, AreNoMatricesOfOneLayer) {
  TwoLayers model;
  model.nodes[4] =
      scoped("/layers.0/MatMul_1", "MatMul", {"/layers.0/Add_output_0", "onnx::MatMul_9"}, "/layers.1/MatMul_output_0");
  EXPECT_EQ(model.copies(), (Copies{{"layers.1.bias", kBias}}));
}

TEST(MergedTensors, AreNotInFilesWhoseNodesHaveNoScopes) {
  TwoLayers model;
  for (std::size_t n = 2; n < 6; ++n) model.nodes[n] += field(3, "Node_" + std::to_string(n));
  EXPECT_EQ(model.copies(), Copies{});
}

}  // namespace protrain::test::merged_tensors_test
