// The names that exporters give to initializers, as evidence of what they are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace protrain::passes {

enum class Naming : std::uint8_t {
  own,      // a tensor of a framework's module: "h.0.attn.weight", "linear_0.b_0", ".../ReadVariableOp:0"
  made,     // named by the exporter or an optimizer: "val_12", "onnx::MatMul_7", "/h.0/Constant_output_0"
  unknown,  // anything else
};

Naming naming_of(std::string_view name);

// True for a name without dots, slashes and colons: "logit_scale".
bool is_plain(std::string_view name);

// True for names that PyTorch's older exporter gives to results of nodes. They begin with the name of the node's
// module: "/h.0/attn/MatMul_output_0".
bool names_scoped_result(std::string_view name);

// True for names that exporters give to literals of the model's source code, such as the 0.5 in x * 0.5. If an exporter
// makes up a name of another form, it does so for a value that it computed from stored values.
bool names_literal(std::string_view name);

// True for names of statistics of normalizations, which frameworks keep beside the weights: "bn.running_var". Also true
// for the vectors of PyTorch's parametrization spectral_norm: "m.parametrizations.weight.0._u".
bool names_statistic(std::string_view name);

// Returns the weight beside which PyTorch's older spectral_norm keeps a vector of this name: "m.weight_orig" for
// "m.weight_u" and "m.weight_v". Returns "" for other names.
std::string spectral_weight(std::string_view name);

// True for names of a BatchNorm's result. If a product's result has such a name, an exporter or optimizer folded a
// BatchNorm into the product.
bool names_normalization(std::string_view name);

// True for names in TensorFlow's form: "m/dense/MatMul:0".
bool names_tensorflow(std::string_view name);

// True if a value of this name was computed, not only moved, as with "mul_3", "m/truediv:0", or Paddle's "eager_tmp_1".
bool names_arithmetic(std::string_view name);

// True if a value of this name can be the result of an operation that only moves elements. PyTorch's exporter names the
// result of an operation after the operation ("transpose_3"), and a result within an operation "val_N". Also true for a
// tensor's own name in the framework ("h.0.attn.weight"), because such a name does not speak of arithmetic.
bool names_move(std::string_view name);

}  // namespace protrain::passes
