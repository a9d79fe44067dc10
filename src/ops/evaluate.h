// Functions that reference evaluations share. Arrays stay compact: along an axis on which no operand varies, one
// element is computed. Arithmetic is in double or int64, and each result is rounded once, to the output's type.
#pragma once

#include <algorithm>
#include <array>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "graph/array.h"
#include "graph/runs.h"
#include "ops/op.h"

namespace protrain::ops {

using graph::copy_elements;
using graph::Runs;
using graph::Strides;
using Arrays = std::vector<Array>;
using Inputs = std::span<const Array *const>;
using Types = std::span<const Type>;

// Returns memory for the stored data of an array whose stored shape is `stored`. Code::limit above 2^33 bytes.
std::vector<std::byte> room_for(DType dtype, const Shape &stored);

// Returns an array of stored shape `stored`, with `bytes` as its stored data. Unless the array is large, it is
// compacted: along an axis on which the values repeat, only one element is stored.
Array make_array(Type type, Shape stored, std::vector<std::byte> bytes);
// Returns the stored data, converted to T.
template <typename T>  // double or std::int64_t
std::vector<T> stored_values(const Array &array) {
  std::vector<T> values(static_cast<std::size_t>(array.stored_count()));
  graph::load(array.dtype(), array.bytes(), 1, array.stored_count(), values.data());
  return values;
}
// Returns an array whose stored data is `values`, in row-major order, converted to the type.
template <typename T>
Array array_of(Type type, Shape stored, const std::vector<T> &values) {
  std::vector<std::byte> bytes = room_for(type.dtype, stored);
  graph::store(type.dtype, values.data(), static_cast<std::int64_t>(values.size()), bytes.data());
  return make_array(std::move(type), std::move(stored), std::move(bytes));
}
template <typename T>
Array array_of(Type type, const std::vector<T> &values) {
  Shape stored = type.shape;
  return array_of(std::move(type), std::move(stored), values);
}

// Returns the strides with which a walk over `shape` reads data of shape `stored`, which broadcasts to `shape`
// (right-aligned).
Strides strides_over(const Shape &stored, const Shape &shape);
// Returns the stored shape of an elementwise result of shape `shape`: 1 along axes on which no array varies. All arrays
// broadcast to `shape`.
Shape stored_union(const Shape &shape, Inputs arrays);

// Applies f(T...) -> T element by element to N operands that broadcast to type.shape.
template <typename T, typename F, std::size_t N>
Array map_elements(const Type &type, const std::array<const Array *, N> &operands, F f) {
  constexpr std::int64_t kBlock = 1024;  // elements converted at a time, so that they stay in the nearest cache
  Shape stored = stored_union(type.shape, operands);
  Runs<N + 1> runs{stored, {}};
  for (std::size_t n = 0; n < N; ++n) runs.strides[n] = strides_over(operands[n]->stored(), stored);
  runs.strides[N] = row_major_strides(stored);
  runs.simplify();
  std::vector<std::byte> bytes = room_for(type.dtype, stored);
  std::byte *out = bytes.data();
  std::array<std::array<T, kBlock>, N> at;
  std::array<T, kBlock> result;
  runs.for_each([&](std::int64_t count, const auto &offsets, const auto &steps) {
    for (std::int64_t begin = 0; begin < count; begin += kBlock) {
      const std::int64_t block = std::min(kBlock, count - begin);
      for (std::size_t n = 0; n < N; ++n) {
        const auto element = static_cast<std::int64_t>(size_of(operands[n]->dtype()));
        const std::byte *from = operands[n]->bytes() + (offsets[n] + begin * steps[n]) * element;
        graph::load(operands[n]->dtype(), from, steps[n], block, at[n].data());
      }
      for (std::size_t i = 0; i < static_cast<std::size_t>(block); ++i)
        result[i] = [&]<std::size_t... n>(std::index_sequence<n...>) { return static_cast<T>(f(at[n][i]...)); }
      (std::make_index_sequence<N>{});
      graph::store(type.dtype, result.data(), block, out);
      out += block * static_cast<std::int64_t>(size_of(type.dtype));
    }
  });
  return make_array(type, std::move(stored), std::move(bytes));
}

// Returns input i, or nullptr if the node lacks it.
inline const Array *optional_input(Inputs in, std::size_t i) { return i < in.size() ? in[i] : nullptr; }

// Helpers of functions that infer types.
Type float_input(const NodeTypes &types, std::size_t i);  // Code::type unless a float
std::vector<Type> same_as_input(const NodeTypes &types);  // one output, of the type of input 0
// Throws Code::unsupported. This is the Op::infer of operators that passes/canonical rewrites. It is called only for
// nodes that the operator's rule could not rewrite.
std::vector<Type> infer_rewritten(const NodeTypes &types);

}  // namespace protrain::ops
