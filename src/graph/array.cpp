#include "graph/array.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace protrain::graph {

namespace {

constexpr std::uint64_t kLargest = 1ull << 33;  // bytes that one constant may hold

// Calls visit(T{}) with the C++ type of a dtype; float16 and bfloat16 have none.
template <typename Visit>
decltype(auto) with_type(DType dtype, Visit &&visit) {
  switch (dtype) {
    case DType::f32:
      return visit(float{});
    case DType::f64:
      return visit(double{});
    case DType::i8:
      return visit(std::int8_t{});
    case DType::i16:
      return visit(std::int16_t{});
    case DType::i32:
      return visit(std::int32_t{});
    case DType::i64:
      return visit(std::int64_t{});
    case DType::u8:
      return visit(std::uint8_t{});
    case DType::u16:
      return visit(std::uint16_t{});
    case DType::u32:
      return visit(std::uint32_t{});
    case DType::u64:
      return visit(std::uint64_t{});
    case DType::boolean:
      return visit(bool{});
    default:
      fail(Code::unsupported, "", "constants of type {} are not supported", name_of(dtype));
  }
}

template <typename T>
T load_as(const std::byte *at) {
  if constexpr (std::is_same_v<T, bool>)
    return *at != std::byte{0};
  else {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
}

template <typename T, typename From>
void store_as(std::byte *at, From value) {
  if constexpr (std::is_same_v<T, bool>) {
    *at = value != From{0} ? std::byte{1} : std::byte{0};
  } else {
    const T converted = static_cast<T>(value);
    std::memcpy(at, &converted, sizeof converted);
  }
}

std::vector<std::byte> room_for(DType dtype, const Shape &stored) {
  const std::uint64_t bytes = byte_count(dtype, stored);
  require(bytes <= kLargest, Code::limit, "", "a constant of {} bytes is larger than the {} that are allowed", bytes,
          kLargest);
  return std::vector<std::byte>(bytes);
}

// Copies the walk of `shape` over strided elements into consecutive ones.
void gather(const std::byte *from, const Shape &shape, const std::vector<std::int64_t> &strides, std::size_t element,
            std::byte *to) {
  const std::int64_t count = element_count(shape);
  if (count == 0) return;
  std::vector<std::int64_t> position(shape.size(), 0);
  const std::int64_t inner = shape.empty() ? 1 : shape.back();
  const std::int64_t step = shape.empty() ? 0 : strides.back();
  std::int64_t offset = 0;
  for (std::int64_t done = 0; done < count; done += inner) {
    const std::byte *row = from + static_cast<std::ptrdiff_t>(offset) * static_cast<std::ptrdiff_t>(element);
    if (step == 1) {
      std::memcpy(to, row, static_cast<std::size_t>(inner) * element);
      to += static_cast<std::size_t>(inner) * element;
    } else {
      for (std::int64_t i = 0; i < inner; ++i, to += element)
        std::memcpy(to, row + static_cast<std::size_t>(i * step) * element, element);
    }
    for (std::size_t axis = shape.empty() ? 0 : shape.size() - 1; axis-- > 0;) {  // the inner axis was walked whole
      offset += strides[axis];
      if (++position[axis] < shape[axis]) break;
      offset -= strides[axis] * shape[axis];
      position[axis] = 0;
    }
  }
}

}  // namespace

std::string to_text(const Type &type) { return std::string(name_of(type.dtype)) + to_text(type.shape); }

double load_double(DType dtype, const std::byte *at) {
  return with_type(dtype, [&](auto t) { return static_cast<double>(load_as<decltype(t)>(at)); });
}

std::int64_t load_integer(DType dtype, const std::byte *at) {
  return with_type(dtype, [&](auto t) { return static_cast<std::int64_t>(load_as<decltype(t)>(at)); });
}

void store_double(DType dtype, std::byte *at, double value) {
  with_type(dtype, [&](auto t) { store_as<decltype(t)>(at, value); });
}

void store_integer(DType dtype, std::byte *at, std::int64_t value) {
  with_type(dtype, [&](auto t) { store_as<decltype(t)>(at, value); });
}

Array::Array(Type type, Shape stored, std::vector<std::byte> bytes)
    : type_(std::move(type)),
      stored_(std::move(stored)),
      bytes_(std::make_shared<const std::vector<std::byte>>(std::move(bytes))) {
  require(stored_.size() == type_.shape.size() && bytes_->size() == byte_count(type_.dtype, stored_), Code::internal,
          "", "{} bytes do not hold {} stored as {}", bytes_->size(), to_text(type_), to_text(stored_));
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

Array Array::from_doubles(Type type, const std::vector<double> &values) {
  std::vector<std::byte> bytes = room_for(type.dtype, type.shape);
  const std::size_t element = size_of(type.dtype);
  require(values.size() * element == bytes.size(), Code::internal, "", "{} values do not fill {}", values.size(),
          to_text(type));
  for (std::size_t i = 0; i < values.size(); ++i) store_double(type.dtype, bytes.data() + i * element, values[i]);
  return dense(std::move(type), std::move(bytes));
}

Array Array::from_integers(Type type, const std::vector<std::int64_t> &values) {
  std::vector<std::byte> bytes = room_for(type.dtype, type.shape);
  const std::size_t element = size_of(type.dtype);
  require(values.size() * element == bytes.size(), Code::internal, "", "{} values do not fill {}", values.size(),
          to_text(type));
  for (std::size_t i = 0; i < values.size(); ++i) store_integer(type.dtype, bytes.data() + i * element, values[i]);
  return dense(std::move(type), std::move(bytes));
}

double Array::stored_double(std::int64_t i) const {
  return load_double(dtype(), bytes() + static_cast<std::size_t>(i) * size_of(dtype()));
}

std::int64_t Array::stored_integer(std::int64_t i) const {
  return load_integer(dtype(), bytes() + static_cast<std::size_t>(i) * size_of(dtype()));
}

std::vector<double> Array::doubles() const {
  const Array flat = densified();
  std::vector<double> values(static_cast<std::size_t>(element_count(shape())));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = flat.stored_double(static_cast<std::int64_t>(i));
  return values;
}

std::vector<std::int64_t> Array::integers() const {
  const Array flat = densified();
  std::vector<std::int64_t> values(static_cast<std::size_t>(element_count(shape())));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = flat.stored_integer(static_cast<std::int64_t>(i));
  return values;
}

std::vector<std::int64_t> Array::strides() const {
  std::vector<std::int64_t> strides = row_major_strides(stored_);
  for (std::size_t i = 0; i < strides.size(); ++i)
    if (stored_[i] != shape()[i] || shape()[i] == 1) strides[i] = 0;
  return strides;
}

void Array::write_dense(std::byte *out) const { gather(bytes(), shape(), strides(), size_of(dtype()), out); }

Array Array::densified() const {
  if (stored_ == shape()) return *this;
  std::vector<std::byte> all = room_for(dtype(), shape());
  write_dense(all.data());
  return dense(type_, std::move(all));
}

Array Array::compact() const {
  Array result = *this;
  for (std::size_t axis = 0; axis < stored_.size(); ++axis) {
    const std::int64_t length = result.stored_[axis];
    if (length <= 1) continue;
    // [outer][length][inner]: the axis repeats where every slice of an outer step equals the first.
    std::int64_t outer = 1;
    for (std::size_t i = 0; i < axis; ++i) outer *= result.stored_[i];
    const std::size_t slice = result.stored_bytes() / static_cast<std::size_t>(outer * length);
    const auto at = [&](std::int64_t o, std::int64_t i) {
      return result.bytes() + static_cast<std::size_t>(o * length + i) * slice;
    };
    bool repeats = true;
    for (std::int64_t o = 0; o < outer && repeats; ++o)
      for (std::int64_t i = 1; i < length && repeats; ++i) repeats = std::memcmp(at(o, 0), at(o, i), slice) == 0;
    if (!repeats) continue;
    std::vector<std::byte> once(static_cast<std::size_t>(outer) * slice);
    for (std::int64_t o = 0; o < outer; ++o)
      std::memcpy(once.data() + static_cast<std::size_t>(o) * slice, at(o, 0), slice);
    Shape stored = result.stored_;
    stored[axis] = 1;
    result = Array(type_, std::move(stored), std::move(once));
  }
  return result;
}

Array Array::reshaped(const Shape &shape) const {
  require(element_count(shape) == element_count(this->shape()), Code::shape, "", "{} elements cannot be seen as {}",
          element_count(this->shape()), to_text(shape));
  if (stored_count() == 1 && element_count(shape) > 0) {
    Array result = *this;
    result.type_.shape = shape;
    result.stored_.assign(shape.size(), 1);
    return result;
  }
  Array result = densified();
  // Dims of 1 may come and go without writing repeated axes out.
  const auto without_ones = [](Shape dims) {
    std::erase(dims, 1);
    return dims;
  };
  if (stored_ != this->shape() && without_ones(shape) == without_ones(this->shape())) {
    result = *this;
    std::vector<std::int64_t> kept;
    for (std::size_t i = 0; i < stored_.size(); ++i)
      if (this->shape()[i] != 1) kept.push_back(stored_[i]);
    result.stored_.clear();
    for (std::size_t i = 0, next = 0; i < shape.size(); ++i) result.stored_.push_back(shape[i] == 1 ? 1 : kept[next++]);
  } else {
    result.stored_ = shape;
  }
  result.type_.shape = shape;
  return result;
}

Array Array::expanded(const Shape &shape) const {
  Array result = *this;
  require(broadcast(this->shape(), shape, "") == shape, Code::shape, "", "{} does not stretch to {}",
          to_text(this->shape()), to_text(shape));
  result.type_.shape = shape;
  result.stored_.insert(result.stored_.begin(), shape.size() - stored_.size(), 1);
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (shape[i] == 0) return filled({dtype(), shape}, 0);
  return result;
}

bool Array::same_as(const Array &other) const {
  if (type_ != other.type_) return false;
  if (stored_ == other.stored_)
    return stored_bytes() == 0 || bytes_ == other.bytes_ || std::memcmp(bytes(), other.bytes(), stored_bytes()) == 0;
  const Array a = densified(), b = other.densified();
  return std::memcmp(a.bytes(), b.bytes(), a.stored_bytes()) == 0;
}

}  // namespace protrain::graph
