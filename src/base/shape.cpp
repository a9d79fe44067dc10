#include "base/shape.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/error.h"

namespace protrain {

std::uint64_t checked_multiply(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) fail(Code::limit, "", "{} * {} does not fit 64 bits", a, b);
  return product;
}

std::uint64_t checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) fail(Code::limit, "", "{} + {} does not fit 64 bits", a, b);
  return sum;
}

std::int64_t element_count(const Shape &shape) {
  std::int64_t count = 1;
  for (std::int64_t dim : shape) {
    if (dim < 0) fail(Code::shape, "", "shape {} has a negative dimension", to_text(shape));
    if (__builtin_mul_overflow(count, dim, &count)) fail(Code::shape, "", "shape {} overflows 64 bits", to_text(shape));
  }
  return count;
}

std::uint64_t byte_count(DType dtype, const Shape &shape) {
  return checked_multiply(static_cast<std::uint64_t>(element_count(shape)), size_of(dtype));
}

std::string to_text(const Shape &shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::vector<std::int64_t> row_major_strides(const Shape &shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

Shape broadcast(const Shape &a, const Shape &b, const std::string &subject) {
  Shape out(std::max(a.size(), b.size()));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t da = i < a.size() ? a[a.size() - 1 - i] : 1;
    const std::int64_t db = i < b.size() ? b[b.size() - 1 - i] : 1;
    require(da == db || da == 1 || db == 1, Code::shape, subject, "shapes {} and {} do not broadcast", to_text(a),
            to_text(b));
    out[out.size() - 1 - i] = da == 1 ? db : da;
  }
  return out;
}

std::size_t resolve_axis(std::int64_t axis, std::size_t rank, const std::string &subject) {
  const auto signed_rank = static_cast<std::int64_t>(rank);
  require(axis >= -signed_rank && axis < signed_rank, Code::shape, subject, "axis {} is outside a tensor of rank {}",
          axis, rank);
  return static_cast<std::size_t>(axis < 0 ? axis + signed_rank : axis);
}

}  // namespace protrain
