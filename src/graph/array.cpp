// Array: construction, reading, and changes of shape. If all slices along an axis are equal, an array can store a
// single one. A change of shape keeps this form where it can.
#include "graph/array.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "graph/runs.h"

namespace protrain::graph {

namespace {

constexpr std::uint64_t kLargest = 1ull << 33;  // bytes that one constant may hold

std::vector<std::byte> room_for(DType dtype, const Shape &stored) {
  const std::uint64_t bytes = byte_count(dtype, stored);
  require(bytes <= kLargest, Code::limit, "", "a constant of {} bytes is larger than the {} that are allowed", bytes,
          kLargest);
  return std::vector<std::byte>(bytes);
}

template <typename T>
Array from_values(Type type, const std::vector<T> &values) {
  std::vector<std::byte> bytes = room_for(type.dtype, type.shape);
  require(values.size() * size_of(type.dtype) == bytes.size(), Code::internal, "", "{} values do not fill {}",
          values.size(), to_text(type));
  store(type.dtype, values.data(), static_cast<std::int64_t>(values.size()), bytes.data());
  return Array::dense(std::move(type), std::move(bytes));
}

template <typename T>
std::vector<T> all_values(const Array &array) {
  const Array flat = array.densified();
  std::vector<T> values(static_cast<std::size_t>(flat.stored_count()));
  load(flat.dtype(), flat.bytes(), 1, flat.stored_count(), values.data());
  return values;
}

bool is_empty(const Shape &shape) { return std::ranges::find(shape, 0) != shape.end(); }

// A group of axes that a change of shape turns into another group: axes [old_begin, old_end) of the old shape become
// axes [new_begin, new_end) of the new one. Both groups have equally many elements.
struct AxisGroup {
  std::size_t old_begin, old_end, new_begin, new_end;
};

// Divides the axes of both shapes into groups, as small as possible. A group has the same element count in both shapes.
// The shapes must have the same element count, not 0.
std::vector<AxisGroup> matching_groups(const Shape &from, const Shape &to) {
  std::vector<AxisGroup> groups;
  AxisGroup at{0, 0, 0, 0};
  while (at.old_end < from.size() || at.new_end < to.size()) {
    std::int64_t left = 1, right = 1;
    do {
      if (left < right || (left == right && at.old_end < from.size()))
        left *= from[at.old_end++];
      else
        right *= to[at.new_end++];
    } while (left != right);
    groups.push_back(at);
    at.old_begin = at.old_end;
    at.new_begin = at.new_end;
  }
  return groups;
}

}  // namespace

std::string to_text(const Type &type) { return std::string(name_of(type.dtype)) + to_text(type.shape); }

Array::Array(Type type, Shape stored, std::vector<std::byte> bytes)
    : type_(std::move(type)),
      stored_(std::move(stored)),
      bytes_(std::make_shared<const std::vector<std::byte>>(std::move(bytes))) {
  const bool fits = std::ranges::equal(stored_, type_.shape, [](auto s, auto d) { return s == d || s == 1; });
  require(fits && bytes_->size() == byte_count(type_.dtype, stored_), Code::internal, "",
          "{} bytes do not hold {} stored as {}", bytes_->size(), to_text(type_), to_text(stored_));
}

Array Array::dense(Type type, std::vector<std::byte> bytes) {
  Shape stored = type.shape;
  return Array(std::move(type), std::move(stored), std::move(bytes));
}

Array Array::scalar(DType dtype, double value) { return filled({dtype, {}}, value); }

Array Array::filled(Type type, double value) {
  Shape stored(type.shape.size(), 1);
  std::ranges::transform(type.shape, stored.begin(), [](std::int64_t dim) { return std::min<std::int64_t>(dim, 1); });
  std::vector<std::byte> bytes = room_for(type.dtype, stored);
  if (!bytes.empty()) store_double(type.dtype, bytes.data(), value);
  return Array(std::move(type), std::move(stored), std::move(bytes));
}

Array Array::integers(const std::vector<std::int64_t> &values) {
  return from_integers({DType::i64, {static_cast<std::int64_t>(values.size())}}, values);
}

Array Array::from_doubles(Type type, const std::vector<double> &values) { return from_values(std::move(type), values); }

Array Array::from_integers(Type type, const std::vector<std::int64_t> &values) {
  return from_values(std::move(type), values);
}

double Array::stored_double(std::int64_t i) const {
  return load_double(dtype(), bytes() + static_cast<std::size_t>(i) * size_of(dtype()));
}

std::int64_t Array::stored_integer(std::int64_t i) const {
  return load_integer(dtype(), bytes() + static_cast<std::size_t>(i) * size_of(dtype()));
}

std::vector<double> Array::doubles() const { return all_values<double>(*this); }

std::vector<std::int64_t> Array::integers() const { return all_values<std::int64_t>(*this); }

std::vector<std::int64_t> Array::strides() const {
  std::vector<std::int64_t> strides = row_major_strides(stored_);
  for (std::size_t i = 0; i < strides.size(); ++i)
    if (stored_[i] == 1) strides[i] = 0;
  return strides;
}

void Array::write_dense(std::byte *out) const {
  copy_elements(shape(), size_of(dtype()), {bytes(), strides()}, {out, row_major_strides(shape())});
}

Array Array::densified() const { return stored_as(shape()); }

Array Array::stored_as(const Shape &stored) const {
  if (stored_ == stored) return *this;
  std::vector<std::byte> out = room_for(dtype(), stored);
  copy_elements(stored, size_of(dtype()), {bytes(), strides()}, {out.data(), row_major_strides(stored)});
  return Array(type_, stored, std::move(out));
}

Array Array::compact() const {
  if (stored_bytes() == 0) return *this;
  Array result = *this;
  for (std::size_t axis = 0; axis < stored_.size(); ++axis) {
    const std::int64_t length = result.stored_[axis];
    if (length == 1) continue;
    // The stored data is seen as `outer` steps of `length` slices each, where `length` is the size of the axis. The
    // axis repeats if all slices of a step are equal, in each step. They are equal if the bytes of the step without its
    // last slice equal the bytes of the step without its first slice.
    std::int64_t outer = 1;
    for (std::size_t i = 0; i < axis; ++i) outer *= result.stored_[i];
    const std::size_t step = result.stored_bytes() / static_cast<std::size_t>(outer);
    const std::size_t slice = step / static_cast<std::size_t>(length);
    const auto at = [&](std::int64_t o) { return result.bytes() + static_cast<std::size_t>(o) * step; };
    bool repeats = true;
    for (std::int64_t o = 0; o < outer && repeats; ++o) repeats = std::memcmp(at(o), at(o) + slice, step - slice) == 0;
    if (!repeats) continue;
    std::vector<std::byte> once(static_cast<std::size_t>(outer) * slice);
    for (std::int64_t o = 0; o < outer; ++o)
      std::memcpy(once.data() + static_cast<std::size_t>(o) * slice, at(o), slice);
    Shape stored = result.stored_;
    stored[axis] = 1;
    result = Array(type_, std::move(stored), std::move(once));
  }
  return result;
}

Array Array::reshaped(const Shape &shape) const {
  require(element_count(shape) == element_count(this->shape()), Code::shape, "", "{} elements cannot be seen as {}",
          element_count(this->shape()), to_text(shape));
  if (is_empty(shape)) return filled({dtype(), shape}, 0);
  // If the array stores only one slice along each old axis of a group, it also stores only one along each new axis of
  // the group. Otherwise all axes of the group are stored in full.
  Shape wanted = stored_, stored(shape.size(), 1);
  for (const AxisGroup &group : matching_groups(this->shape(), shape)) {
    bool once = true;
    for (std::size_t i = group.old_begin; i < group.old_end; ++i) once = once && stored_[i] == 1;
    if (once) continue;
    for (std::size_t i = group.old_begin; i < group.old_end; ++i) wanted[i] = this->shape()[i];
    for (std::size_t i = group.new_begin; i < group.new_end; ++i) stored[i] = shape[i];
  }
  Array result = stored_as(wanted);
  result.type_.shape = shape;
  result.stored_ = std::move(stored);
  return result;
}

Array Array::expanded(const Shape &shape) const {
  require(shape.size() >= stored_.size() && broadcast(this->shape(), shape, "") == shape, Code::shape, "",
          "{} does not stretch to {}", to_text(this->shape()), to_text(shape));
  if (is_empty(shape)) return filled({dtype(), shape}, 0);
  Array result = *this;
  result.type_.shape = shape;
  result.stored_.insert(result.stored_.begin(), shape.size() - stored_.size(), 1);
  return result;
}

bool Array::same_as(const Array &other) const {
  if (type_ != other.type_) return false;
  if (is_empty(shape())) return true;
  Shape both = stored_;
  for (std::size_t i = 0; i < both.size(); ++i) both[i] = std::max(both[i], other.stored_[i]);
  const Array a = stored_as(both), b = other.stored_as(both);
  return a.bytes_ == b.bytes_ || std::memcmp(a.bytes(), b.bytes(), a.stored_bytes()) == 0;
}

}  // namespace protrain::graph
