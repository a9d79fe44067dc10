// Small models in memory.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "onnx_import/model.h"
#include "onnx_import/wire.h"

namespace protrain::fuzz {

// The source of a model in memory. `external` is the directory of its external data; empty: none.
inline onnx_import::ModelSource in_memory(const std::string &bytes, const std::string &external = "") {
  const auto *begin = reinterpret_cast<const std::byte *>(bytes.data());
  return {std::make_shared<const std::vector<std::byte>>(begin, begin + bytes.size()), external};
}

// A model from x (batch, 4) to y for the loss mse. Each layer computes x + tanh(x a) b.
inline std::string layered_model(int layers) {
  using namespace test;
  Wire wire;
  wire.nodes.clear();
  wire.initializers.clear();
  wire.inputs = {value("x", kFloat, {"batch", "4"})};
  wire.outputs = {value("y", kFloat, {"batch", "4"})};
  const std::vector<float> weights = {1, -1, .5f, 0, .25f, 1, -.5f, 2, 0, 1, 1, -1, .5f, .5f, -.25f, 1};
  for (int i = 0; i < layers; ++i) {
    const std::string n = std::to_string(i), in = i == 0 ? "x" : "x" + n,
                      out = i + 1 == layers ? "y" : "x" + std::to_string(i + 1);
    wire.initializers.push_back(floats("a" + n, {4, 4}, weights));
    wire.initializers.push_back(floats("b" + n, {4, 4}, weights));
    wire.nodes.push_back(node("MatMul", {in, "a" + n}, {"p" + n}));
    wire.nodes.push_back(node("Tanh", {"p" + n}, {"t" + n}));
    wire.nodes.push_back(node("MatMul", {"t" + n, "b" + n}, {"q" + n}));
    wire.nodes.push_back(node("Add", {in, "q" + n}, {out}));
  }
  return wire.bytes();
}

// A model from ids (batch, 3) with a vocabulary of 5 to logits (batch, 3, 5), for the loss cross_entropy.
inline std::string token_model() {
  using namespace test;
  Wire wire;
  wire.initializers = {floats("table", {5, 4}, std::vector<float>(20, .5f)),
                       floats("head", {4, 5}, {1, 2, 3, 4, 5, 5, 4, 3, 2, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0})};
  wire.inputs = {value("ids", kInt64, {"batch", "3"})};
  wire.nodes = {node("Gather", {"table", "ids"}, {"rows"}), node("MatMul", {"rows", "head"}, {"logits"})};
  wire.outputs = {value("logits", kFloat, {"batch", "3", "5"})};
  return wire.bytes();
}

}  // namespace protrain::fuzz
