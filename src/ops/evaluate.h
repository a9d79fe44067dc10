// Reference evaluation over compact arrays: elementwise functions touch each stored element once, whatever the axes
// they are repeated along. Arithmetic is in double or int64; results are rounded to the output's dtype.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/array.h"
#include "ops/op.h"

namespace protrain::ops {

inline constexpr std::int64_t kCompactLimit = 1ll << 26;  // elements; looking for repeated axes costs a pass

template <typename T>  // double or std::int64_t
std::vector<T> stored_values(const Array &array);
Array make_array(Type type, Shape stored, const std::vector<double> &values);
Array make_array(Type type, Shape stored, const std::vector<std::int64_t> &values);
Array make_dense(Type type, const std::vector<double> &values);

// A walk over `shape` that carries one offset for each of N operands.
template <std::size_t N>
class Walk {
 public:
  Walk(Shape shape, std::array<std::vector<std::int64_t>, N> strides)
      : offsets{}, shape_(std::move(shape)), strides_(std::move(strides)), position_(shape_.size(), 0) {}
  void next() {
    for (std::size_t axis = shape_.size(); axis-- > 0;) {
      for (std::size_t n = 0; n < N; ++n) offsets[n] += strides_[n][axis];
      if (++position_[axis] < shape_[axis]) return;
      for (std::size_t n = 0; n < N; ++n) offsets[n] -= strides_[n][axis] * shape_[axis];
      position_[axis] = 0;
    }
  }
  const std::vector<std::int64_t> &position() const { return position_; }

  std::array<std::int64_t, N> offsets;

 private:
  Shape shape_;
  std::array<std::vector<std::int64_t>, N> strides_;
  std::vector<std::int64_t> position_;
};

// Strides for walking `shape` over an array stored as `stored` (right-aligned, 0 where it is stored once).
std::vector<std::int64_t> strides_over(const Shape &stored, const Shape &shape);

// Applies f to N operands that broadcast to `type.shape`; T is what they are read as, f's result is stored.
template <typename T, typename F, std::size_t N>
Array map_elements(const Type &type, const std::array<const Array *, N> &operands, F f) {
  Shape stored(type.shape.size(), 1);
  for (const Array *operand : operands) {
    const std::size_t lead = stored.size() - operand->stored().size();
    for (std::size_t i = 0; i < operand->stored().size(); ++i)
      if (operand->stored()[i] != 1) stored[lead + i] = operand->stored()[i];
  }
  std::array<std::vector<T>, N> values;
  std::array<std::vector<std::int64_t>, N> strides;
  for (std::size_t n = 0; n < N; ++n) {
    values[n] = stored_values<T>(*operands[n]);
    strides[n] = strides_over(operands[n]->stored(), stored);
  }
  using R =
      std::conditional_t<std::is_same_v<decltype(std::apply(f, std::array<T, N>{})), double>, double, std::int64_t>;
  std::vector<R> result(static_cast<std::size_t>(element_count(stored)));
  Walk<N> walk(stored, strides);
  for (R &out : result) {
    std::array<T, N> at;
    for (std::size_t n = 0; n < N; ++n) at[n] = values[n][static_cast<std::size_t>(walk.offsets[n])];
    out = static_cast<R>(std::apply(f, at));
    walk.next();
  }
  return make_array(type, std::move(stored), result);
}

}  // namespace protrain::ops
