#include "onnx_import/floats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/text.h"
#include "graph/array.h"

namespace protrain::onnx_import {

namespace {

constexpr std::int64_t kAtOnce = 1024;  // elements

double largest_of(DType dtype) {
  if (dtype == DType::f16) return 65504;
  if (dtype == DType::bf16) return 0x1.FEp127;
  return dtype == DType::f32 ? static_cast<double>(std::numeric_limits<float>::max())
                             : std::numeric_limits<double>::max();
}

}  // namespace

void convert_floats(DType from, const std::byte *in, std::int64_t count, DType to, std::byte *out) {
  const double largest = largest_of(to);
  std::array<double, kAtOnce> values{};
  for (std::int64_t at = 0; at < count; at += kAtOnce) {
    const std::int64_t some = std::min(kAtOnce, count - at);
    graph::load(from, in + static_cast<std::size_t>(at) * size_of(from), 1, some, values.data());
    for (double &value : values)
      if (std::isfinite(value)) value = std::clamp(value, -largest, largest);
    graph::store(to, values.data(), some, out + static_cast<std::size_t>(at) * size_of(to));
  }
}

DType Floats::computed(DType dtype) const {
  const bool changes = dtype == DType::f16 || dtype == DType::bf16 || (dtype == DType::f64 && doubles_);
  return changes ? DType::f32 : dtype;
}

graph::Array Floats::computed(const graph::Array &array) const {
  const DType to = computed(array.dtype());
  if (to == array.dtype()) return array;
  std::vector<std::byte> bytes(static_cast<std::size_t>(array.stored_count()) * size_of(to));
  convert_floats(array.dtype(), array.bytes(), array.stored_count(), to, bytes.data());
  return {{to, array.shape()}, array.stored(), std::move(bytes)};
}

void Floats::compute(graph::Attributes &attributes) const {
  const graph::Attributes given = attributes;
  for (const auto &[key, value] : given.items()) {
    if (const auto *array = std::get_if<graph::Array>(&value)) attributes.set(key, computed(*array));
    const auto *text = std::get_if<std::string>(&value);
    if (text == nullptr || !one_of(key, {"to", "dtype", "output_dtype", "output_datatype"}) ||
        !is_float(dtype_named(*text)))
      continue;
    attributes.set(key, std::string(name_of(computed(dtype_named(*text)))));
  }
}

}  // namespace protrain::onnx_import
