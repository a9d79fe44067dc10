#include "ops/evaluate.h"

namespace protrain::ops {

namespace {

template <typename T>
Array store(Type type, Shape stored, const std::vector<T> &values) {
  const std::size_t element = size_of(type.dtype);
  std::vector<std::byte> bytes(values.size() * element);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if constexpr (std::is_same_v<T, double>)
      graph::store_double(type.dtype, bytes.data() + i * element, values[i]);
    else
      graph::store_integer(type.dtype, bytes.data() + i * element, values[i]);
  }
  const bool small = static_cast<std::int64_t>(values.size()) <= kCompactLimit;
  Array array(std::move(type), std::move(stored), std::move(bytes));
  return small ? array.compact() : array;
}

}  // namespace

template <>
std::vector<double> stored_values(const Array &array) {
  std::vector<double> values(static_cast<std::size_t>(array.stored_count()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = array.stored_double(static_cast<std::int64_t>(i));
  return values;
}

template <>
std::vector<std::int64_t> stored_values(const Array &array) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(array.stored_count()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = array.stored_integer(static_cast<std::int64_t>(i));
  return values;
}

Array make_array(Type type, Shape stored, const std::vector<double> &values) {
  return store(std::move(type), std::move(stored), values);
}

Array make_array(Type type, Shape stored, const std::vector<std::int64_t> &values) {
  return store(std::move(type), std::move(stored), values);
}

Array make_dense(Type type, const std::vector<double> &values) {
  Shape stored = type.shape;
  return store(std::move(type), std::move(stored), values);
}

std::vector<std::int64_t> strides_over(const Shape &stored, const Shape &shape) {
  std::vector<std::int64_t> strides(shape.size(), 0);
  const std::vector<std::int64_t> own = row_major_strides(stored);
  const std::size_t lead = shape.size() - stored.size();
  for (std::size_t i = 0; i < stored.size(); ++i)
    if (stored[i] != 1) strides[lead + i] = own[i];
  return strides;
}

}  // namespace protrain::ops
