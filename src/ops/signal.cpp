// Fourier transforms, and window functions such as the Hann window. passes/canonical/signal.cpp turns transforms into
// products with matrices of constants.
#include "ops/signal.h"

#include <cmath>
#include <numbers>

#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

constexpr std::int64_t kLongestSignal = std::int64_t{1} << 24;

// Returns the attribute `name`, which was an input in the file, or `fallback` if the file had no such input. Throws
// Code::unsupported if the input is not constant.
std::int64_t number(const NodeTypes &types, std::size_t input, const char *name, std::int64_t fallback) {
  require(!types.has(input), Code::unsupported, types.subject(),
          "the {} of {} is computed from data; shapes that depend on data are not supported", name, types.node.op);
  const std::vector<std::int64_t> given = types.node.attributes.integers(name);
  const std::int64_t value = given.empty() ? fallback : given[0];
  require(value > 0 && value <= kLongestSignal, Code::graph, types.subject(), "{} is {}", name, value);
  return value;
}

void require_complex(const NodeTypes &types, const Type &x, std::size_t least_rank) {
  require(x.shape.size() >= least_rank && (x.shape.back() == 1 || x.shape.back() == 2), Code::shape, types.subject(),
          "{} takes (..., 1) for real and (..., 2) for complex numbers, not {}", types.node.op, to_text(x));
}

// x (..., length, ..., 1 or 2) -> (..., bins, ..., 1 or 2)
std::vector<Type> infer_dft(const NodeTypes &types) {
  Type x = float_input(types, 0);
  require_complex(types, x, 2);
  require(!types.has(2), Code::unsupported, types.subject(), "the axis is computed from data");
  const Fourier fourier = fourier_of(types.node, x.shape);
  number(types, 1, "dft_length", fourier.length);
  x.shape[fourier.axis] = fourier.bins;
  x.shape.back() = fourier.parts;
  return {x};
}

// signal (N, length, 1 or 2) -> (N, frames, bins, 2)
std::vector<Type> infer_stft(const NodeTypes &types) {
  const Type x = float_input(types, 0);
  require_complex(types, x, 3);
  require(x.shape.size() == 3, Code::shape, types.subject(), "STFT takes (batch, length, 1 or 2), not {}", to_text(x));
  const std::int64_t window = types.has(2) ? element_count(types.input(2).shape) : 0;
  const std::int64_t step = number(types, 1, "frame_step", 0), length = number(types, 3, "frame_length", window);
  require((!types.has(2) || types.input(2) == Type{x.dtype, {length}}) && length <= x.shape[1], Code::shape,
          types.subject(), "frames of {} with a window {} do not fit {}", length,
          types.has(2) ? to_text(types.input(2)) : "that is absent", to_text(x));
  const bool half = types.node.attributes.integer("onesided", 1) != 0;
  return {{x.dtype, {x.shape[0], (x.shape[1] - length) / step + 1, half ? length / 2 + 1 : length, 2}}};
}

// A window function: a[0] - a[1] cos(t) + a[2] cos(2 t), with t from 0 to 2 pi.
struct Window {
  std::string_view name;
  double a[3];
};
constexpr Window kWindows[] = {
    {"HannWindow", {0.5, 0.5, 0}}, {"HammingWindow", {25.0 / 46, 21.0 / 46, 0}}, {"BlackmanWindow", {0.42, 0.5, 0.08}}};

std::vector<Type> infer_window(const NodeTypes &types) {
  const DType dtype = dtype_named(types.node.attributes.text("output_datatype", "float32"));
  require(element_count(types.input(0).shape) == 1 && is_float(dtype), Code::type, types.subject(),
          "a window of floats takes one length, not {}", to_text(types.input(0)));
  const std::int64_t length = types.constant(0).integers().at(0);
  require(length > 0 && length <= kLongestSignal, Code::graph, types.subject(), "a window of {} elements", length);
  return {{dtype, {length}}};
}

std::vector<Array> evaluate_window(const Node &node, std::span<const Array *const>, std::span<const Type> out) {
  const auto *window = std::ranges::find(kWindows, std::string_view(node.op), &Window::name);
  const std::int64_t length = out[0].shape[0], period = length - (node.attributes.integer("periodic", 1) != 0 ? 0 : 1);
  std::vector<double> values;
  for (std::int64_t i = 0; i < length; ++i) {
    const double t = period == 0 ? 0 : 2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(period);
    values.push_back(window->a[0] - window->a[1] * std::cos(t) + window->a[2] * std::cos(2 * t));
  }
  return {array_of(out[0], values)};
}

}  // namespace

Fourier fourier_of(const Node &node, const Shape &x) {
  const std::string &subject = node.subject();
  const std::size_t axis = resolve_axis(node.attributes.integer("axis", -2), x.size(), subject);
  require(axis + 1 < x.size(), Code::graph, subject,
          "the last axis holds real and imaginary parts; {} cannot transform it", node.op);
  const bool inverse = node.attributes.integer("inverse", 0) != 0;
  const bool half = node.attributes.integer("onesided", 0) != 0, reads_half = half && inverse;
  require(!half || x.back() == (inverse ? 2 : 1), Code::graph, subject,
          "onesided transforms real numbers forwards and complex ones backwards, not {}", to_text(x));
  const std::vector<std::int64_t> given = node.attributes.integers("dft_length");
  const std::int64_t length = !given.empty() ? given[0] : reads_half ? 2 * (x[axis] - 1) : x[axis];
  return {.axis = axis,
          .length = length,
          .terms = reads_half ? length / 2 + 1 : length,
          .bins = half && !inverse ? length / 2 + 1 : length,
          .parts = reads_half ? 1 : 2,
          .inverse = inverse};
}

// If a transform reads half of the terms, each of the others is the conjugate of one that it reads, and the two add up
// to twice a real part. The first term and the middle one have no such partner.

std::vector<double> fourier_matrix(const Fourier &fourier, std::int64_t rows, std::int64_t parts) {
  const std::int64_t length = fourier.length;
  const double turn = (fourier.inverse ? 2 : -2) * std::numbers::pi / static_cast<double>(length);
  const double scale = fourier.inverse ? 1 / static_cast<double>(length) : 1;
  std::vector<double> matrix(static_cast<std::size_t>(rows * parts * fourier.bins * fourier.parts));
  for (std::int64_t i = 0, at = 0; i < rows; ++i) {
    const bool has_partner = fourier.parts == 1 && i != 0 && 2 * i != length;
    const double weight = has_partner ? 2 * scale : scale;
    for (std::int64_t part = 0; part < parts; ++part)
      for (std::int64_t bin = 0; bin < fourier.bins; ++bin) {
        const double angle = turn * static_cast<double>(i * bin % length);
        const double real = weight * std::cos(angle), imaginary = weight * std::sin(angle);
        matrix[static_cast<std::size_t>(at++)] = part == 0 ? real : -imaginary;
        if (fourier.parts == 2) matrix[static_cast<std::size_t>(at++)] = part == 0 ? imaginary : real;
      }
  }
  return matrix;
}

Family signal_family() {
  Family family = {{.name = "DFT", .infer = infer_dft, .absorbed = {{1, "dft_length"}, {2, "axis"}}, .file_only = true},
                   {.name = "STFT",
                    .infer = infer_stft,
                    .absorbed = {{1, "frame_step"}, {3, "frame_length"}},
                    .optional = {2},
                    .file_only = true}};
  for (const Window &window : kWindows)
    family.push_back({.name = window.name, .infer = infer_window, .evaluate = evaluate_window, .file_only = true});
  return family;
}

}  // namespace protrain::ops
