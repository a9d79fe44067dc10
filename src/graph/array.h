// Array: the values of a constant tensor, kept compact. If the values do not change along an axis, the stored data have
// length 1 along this axis. So a (B, 1, S, S) mask that does not depend on the batch holds S * S elements, and Expand
// costs nothing. Constant folding is therefore as cheap for a large batch as for a small one.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"

namespace protrain::graph {

struct Type {
  DType dtype = DType::none;  // none: not inferred yet
  Shape shape;
  bool operator==(const Type &) const = default;
};

using protrain::to_text;
std::string to_text(const Type &type);  // "float32[2, 32]"

class Array {
 public:
  Array() = default;
  Array(Type type, Shape stored, std::vector<std::byte> bytes);  // stored[i] is type.shape[i] or 1; same rank
  static Array dense(Type type, std::vector<std::byte> bytes);
  static Array scalar(DType dtype, double value);
  static Array filled(Type type, double value);                                    // one stored element
  static Array integers(const std::vector<std::int64_t> &values);                  // int64, rank 1
  static Array from_doubles(Type type, const std::vector<double> &values);         // dense, rounded to type.dtype
  static Array from_integers(Type type, const std::vector<std::int64_t> &values);  // dense, int or bool

  const Type &type() const { return type_; }
  const Shape &shape() const { return type_.shape; }
  DType dtype() const { return type_.dtype; }
  const Shape &stored() const { return stored_; }
  std::int64_t stored_count() const { return element_count(stored_); }
  const std::byte *bytes() const { return bytes_ ? bytes_->data() : nullptr; }
  std::size_t stored_bytes() const { return bytes_ ? bytes_->size() : 0; }

  // Return element i of the stored data, in row-major order of the stored shape.
  double stored_double(std::int64_t i) const;
  std::int64_t stored_integer(std::int64_t i) const;  // floats are truncated

  // Return all elements in row-major order, with repeated axes written out.
  std::vector<double> doubles() const;
  std::vector<std::int64_t> integers() const;
  void write_dense(std::byte *out) const;  // writes byte_count(dtype, shape) bytes

  // Returns the strides of type().shape in the stored data, in elements. They are 0 along repeated axes.
  std::vector<std::int64_t> strides() const;

  // Returns the same values, stored with length 1 along each axis on which the values do not change.
  Array compact() const;
  // Returns the same values in another shape of equal element count. A repeated axis is written out only if the new
  // shape joins it with an axis that does not repeat.
  Array reshaped(const Shape &shape) const;
  // Returns the values broadcast to `shape`. Copies no data.
  Array expanded(const Shape &shape) const;
  Array densified() const;
  // Returns the same values with the stored shape `stored`. Every axis that is stored in full now must be full in
  // `stored` too.
  Array stored_as(const Shape &stored) const;
  // True if types and values are equal, bit by bit.
  bool same_as(const Array &other) const;

 private:
  Type type_;
  Shape stored_;
  // The stored data. Arrays share it: folding hands data from array to array, and all copies of a graph hold the same
  // constants.
  std::shared_ptr<const std::vector<std::byte>> bytes_;
};

// Read and write elements of any dtype. Floats are rounded to nearest even. A float stored as an integer is truncated
// and clamped to the integer's range, and NaN becomes 0. An integer that is too large keeps its low bits.
double load_double(DType dtype, const std::byte *at);
std::int64_t load_integer(DType dtype, const std::byte *at);
void store_double(DType dtype, std::byte *at, double value);
void store_integer(DType dtype, std::byte *at, std::int64_t value);
// Read and write `count` elements. load() reads elements that lie `step` apart; store() writes them side by side.
void load(DType dtype, const std::byte *at, std::int64_t step, std::int64_t count, double *to);
void load(DType dtype, const std::byte *at, std::int64_t step, std::int64_t count, std::int64_t *to);
void store(DType dtype, const double *from, std::int64_t count, std::byte *at);
void store(DType dtype, const std::int64_t *from, std::int64_t count, std::byte *at);

}  // namespace protrain::graph
