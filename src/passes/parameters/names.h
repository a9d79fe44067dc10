// The names that exporters give to initializers, as evidence of what they are.
#pragma once

#include <cstdint>
#include <string_view>

namespace protrain::passes {

enum class Naming : std::uint8_t {
  own,   // a tensor that a framework's module holds: "h.0.attn.weight", "linear_0.b_0", ".../ReadVariableOp:0"
  made,  // a value that the exporter or an optimizer had to name: "val_12", "onnx::MatMul_7", "/h.0/Constant_output_0"
  unknown,  // anything else
};

Naming naming_of(std::string_view name);

// Whether the exporter wrote a number of the program down, rather than computed it from what is stored.
bool names_literal(std::string_view name);

// Frameworks keep the statistics of normalizations beside the weights: "bn.running_var".
bool names_statistic(std::string_view name);

// Whether the result of a product has the name of a BatchNorm's: an exporter or optimizer folded one into the product.
bool names_normalization(std::string_view name);

// Whether it has the form of TensorFlow's names: "m/dense/MatMul:0".
bool names_tensorflow(std::string_view name);

// Whether a value of this name, made by PyTorch's exporter, may have the same elements as what it was made from, in
// another order or a part of them. The exporter calls a value after the operation, or "val_N" where one operation takes
// several values.
bool names_move(std::string_view name);

}  // namespace protrain::passes
