// A float32 model that first scales its input in float64, as Hummingbird writes scikit-learn's scalers.
#pragma once

#include <string>
#include <vector>

#include "onnx_import/wire.h"

namespace protrain::test {

inline const std::vector<double> kFloat64Scale = {0.5, 1.0 / 3, -2};

// y = float32(float64(x) * scale) w, with x (2, 3), scale (3) in float64, and w (3, 4).
inline Wire float64_scale() {
  std::vector<float> w;
  for (int i = 0; i < 12; ++i) w.push_back(0.1f * static_cast<float>(i * i % 7) - 0.3f);
  Wire wire;
  wire.nodes = {
      node("Cast", {"x"}, {"wide"}, {int_attribute("to", kDouble)}), node("Mul", {"wide", "scale"}, {"scaled"}),
      node("Cast", {"scaled"}, {"narrow"}, {int_attribute("to", kFloat)}), node("MatMul", {"narrow", "w"}, {"y"})};
  wire.initializers = {tensor("scale", kDouble, {3}, raw_data(raw(kFloat64Scale))), floats("w", {3, 4}, w)};
  return wire;
}

}  // namespace protrain::test
