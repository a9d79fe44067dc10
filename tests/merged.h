// An untrained model of pre-norm residual layers, as an exporter for inference writes it: all vectors of ones are
// merged into one initializer, and all vectors of zeros into another.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "onnx_import/wire.h"

namespace protrain::test {

constexpr int kMergedRows = 2, kMergedWidth = 8, kMergedLayers = 3;

inline std::vector<float> merged_matrix(int layer) {
  std::vector<float> values;
  for (int i = 0; i < kMergedWidth * kMergedWidth; ++i)
    values.push_back(0.25f * std::sin(static_cast<float>(7 * i * i + 3 * layer + 1)));
  return values;
}

// A model from x (rows, width) to y: layers that compute x + norm(x) w + b, and a last norm. Norms and biases
// share vectors, as if the exporter had merged equal ones. If `apart`, each norm and each bias has its own.
inline Wire merged(bool apart = false) {
  Wire wire;
  wire.nodes.clear();
  wire.initializers.clear();
  const std::vector<float> ones(kMergedWidth, 1), zeros(kMergedWidth, 0);
  const auto vector = [&](const std::string &base, const std::string &own, const std::vector<float> &values) {
    const std::string name = apart ? own : base;
    if (apart || wire.initializers.size() < 2) wire.initializers.push_back(floats(name, {kMergedWidth}, values));
    return name;
  };
  const auto norm = [&](const std::string &in, const std::string &out) {
    const std::string scale = vector("ones", out + ".scale", ones);
    wire.nodes.push_back(node("LayerNormalization", {in, scale, vector("zeros", out + ".bias", zeros)}, {out}));
  };
  std::string x = "x";
  for (int layer = 0; layer < kMergedLayers; ++layer) {
    const std::string l = std::to_string(layer);
    norm(x, "n" + l);
    wire.initializers.push_back(floats("w" + l, {kMergedWidth, kMergedWidth}, merged_matrix(layer)));
    wire.nodes.push_back(node("MatMul", {"n" + l, "w" + l}, {"m" + l}));
    wire.nodes.push_back(node("Add", {"m" + l, vector("zeros", "b" + l, zeros)}, {"a" + l}));
    wire.nodes.push_back(node("Add", {x, "a" + l}, {"x" + l}));
    x = "x" + l;
  }
  norm(x, "y");
  wire.inputs = {value("x", kFloat, {std::to_string(kMergedRows), std::to_string(kMergedWidth)})};
  wire.outputs = {value("y", kFloat, {std::to_string(kMergedRows), std::to_string(kMergedWidth)})};
  return wire;
}

}  // namespace protrain::test
