#include "passes/parameters/names.h"

#include <algorithm>

#include "base/text.h"

namespace protrain::passes {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool all_digits(std::string_view text) { return !text.empty() && std::ranges::all_of(text, is_digit); }

// Returns a name without the number at its end: "view_12" -> "view".
std::string_view without_number(std::string_view name) {
  std::string_view stem = name;
  while (!stem.empty() && is_digit(stem.back())) stem.remove_suffix(1);
  return stem.size() < name.size() && stem.ends_with('_') ? stem.substr(0, stem.size() - 1) : name;
}

// True for an operation of PyTorch. PyTorch's exporter names a folded value after the operation that made it.
bool is_operation(std::string_view stem) {
  return one_of(stem, {"add",     "sub",      "mul",        "div",       "neg",
                       "exp",     "pow",      "sqrt",       "rsqrt",     "reciprocal",
                       "sigmoid", "softplus", "clamp",      "where",     "expand",
                       "view",    "permute",  "transpose",  "unsqueeze", "squeeze",
                       "cat",     "stack",    "zeros_like", "ones_like", "scalar_tensor_default",
                       "index",   "select",   "embedding",  "getitem",   "clone",
                       "alias",   "slice",    "flatten",    "reshape",   "repeat"});
}

// Returns the operation in a name of TensorFlow, which names a value after the operation that made it:
// "m/dense/MatMul/ReadVariableOp:0" -> "ReadVariableOp". Returns "" for other names.
std::string_view operation_of(std::string_view name) {
  const std::size_t colon = name.rfind(':'), slash = name.rfind('/');
  if (colon == std::string_view::npos || slash == std::string_view::npos || slash > colon) return {};
  if (!all_digits(name.substr(colon + 1))) return {};
  return without_number(name.substr(slash + 1, colon - slash - 1));
}

Naming naming_of_operation(std::string_view operation) {
  return one_of(operation, {"ReadVariableOp", "Reshape", "Squeeze", "ExpandDims"}) ? Naming::own : Naming::made;
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace

// True for names that optimizers of ONNX files give to folded values: "ConvBnFusion_W_conv.weight" by ONNX Runtime,
// "linear_weight_fused", "mul_2_weight" by onnxslim.
bool is_folded(std::string_view name) {
  if (contains(name, "Fusion_") || name.ends_with("_fused")) return true;
  for (const std::string_view part : {"_weight", "_bias"})
    if (name.ends_with(part)) return is_operation(without_number(name.substr(0, name.size() - part.size())));
  return false;
}

Naming naming_of(std::string_view name) {
  if (const std::string_view operation = operation_of(name); !operation.empty()) return naming_of_operation(operation);
  const std::string_view stem = without_number(name);
  const bool made = name.starts_with('/') || name.ends_with(".weight_bias") || name.ends_with("_output_0") ||
                    contains(name, "::") || contains(name, "Constant") || contains(name, "const_fold") ||
                    contains(name, "helper.constant.") || all_digits(name) ||
                    (stem != name && one_of(stem, {"val", "const", "ortshared", "_v", "eager_tmp"})) ||
                    is_operation(stem) || is_folded(name);
  if (made) return Naming::made;
  const std::size_t dot = name.rfind('.');
  const bool dotted = dot != std::string_view::npos && dot > 0 && is_plain(name.substr(dot + 1));
  return dotted && !contains(name, "/") && !contains(name, ":") ? Naming::own : Naming::unknown;
}

bool is_plain(std::string_view text) {
  return !text.empty() && !is_digit(text[0]) && std::ranges::all_of(text, [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  });
}

bool names_scoped_result(std::string_view name) { return name.starts_with('/') && contains(name, "_output_"); }

bool names_literal(std::string_view name) {
  return contains(name, "Constant") || contains(name, "helper.constant.") || all_digits(name) ||
         one_of(operation_of(name), {"x", "y", "Const"}) ||
         one_of(without_number(name), {"val", "const", "ortshared", "scalar_tensor_default"});
}

bool names_statistic(std::string_view name) {
  for (const std::string_view statistic :
       {"running_mean", "running_var", "num_batches_tracked", "moving_mean", "moving_variance"}) {
    const std::size_t at = name.rfind(statistic);
    if (at != std::string_view::npos && (at == 0 || one_of(name.substr(at - 1, 1), {".", "/", "_"}))) return true;
  }
  return contains(name, "parametrizations.") && (name.ends_with("._u") || name.ends_with("._v"));
}

std::string spectral_weight(std::string_view name) {
  if (!name.ends_with("_u") && !name.ends_with("_v")) return "";
  return std::string(name.substr(0, name.size() - 1)) + "orig";
}

bool names_normalization(std::string_view name) {
  // Accepts the name `getitem`. PyTorch's BatchNorm has three results, and the exporter gives this name to the node
  // that picks the first one.
  if (without_number(name) == "getitem") return true;
  return contains(name, "batch_norm") || contains(name, "batchnorm") || contains(name, "BatchNorm");
}

// True for names of TensorFlow that end in ":0". Names that end in another number (":1", ":2") do not count, because
// this library adds such numbers to make names unique.
bool names_tensorflow(std::string_view name) { return name.ends_with(":0") && !operation_of(name).empty(); }

bool names_arithmetic(std::string_view name) {
  std::string_view stem = name.substr(name.rfind('/') + 1);  // the whole name if it has no slash
  if (const std::size_t colon = stem.rfind(':'); colon != std::string_view::npos && all_digits(stem.substr(colon + 1)))
    stem = stem.substr(0, colon);
  return one_of(without_number(stem),
                {"add",          "AddV2",   "clamp",   "div",      "eager_tmp",     "einsum", "exp",  "Exp",
                 "l2_normalize", "MatMul",  "mul",     "Mul",      "neg",           "pow",    "Pow",  "reciprocal",
                 "rsqrt",        "sigmoid", "Sigmoid", "softplus", "Softplus",      "sqrt",   "Sqrt", "Square",
                 "sub",          "Sub",     "Tanh",    "truediv",  "truediv_recip", "where"});
}

bool names_move(std::string_view name) {
  if (naming_of(name) == Naming::own) return true;  // a tensor, not an operation
  return one_of(without_number(name), {"val",       "t",          "transpose",   "permute",      "numpy_T",
                                       "view",      "reshape",    "unsafe_view", "_unsafe_view", "flatten",
                                       "unflatten", "squeeze",    "unsqueeze",   "select",       "slice",
                                       "split",     "getitem",    "embedding",   "clone",        "alias",
                                       "detach",    "contiguous", "to",          "_to_copy",     "lift_fresh_copy"});
}

}  // namespace protrain::passes
