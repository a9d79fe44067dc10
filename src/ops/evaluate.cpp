// Arrays, strides and types for reference evaluation.
#include "ops/evaluate.h"

namespace protrain::ops {

namespace {

constexpr std::uint64_t kLargest = 1ull << 33;  // bytes of one array
// make_array() compacts an array only if it has at most this many elements. To find the axes on which values repeat, it
// reads all elements, which would take too long in a larger array.
constexpr std::int64_t kLargestCompacted = 1 << 26;

}  // namespace

std::vector<std::byte> room_for(DType dtype, const Shape &stored) {
  const std::uint64_t bytes = byte_count(dtype, stored);
  require(bytes <= kLargest, Code::limit, "", "a constant of {} bytes is larger than the {} that are allowed", bytes,
          kLargest);
  return std::vector<std::byte>(bytes);
}

Array make_array(Type type, Shape stored, std::vector<std::byte> bytes) {
  const Array array(std::move(type), std::move(stored), std::move(bytes));
  return array.stored_count() <= kLargestCompacted ? array.compact() : array;
}

Strides strides_over(const Shape &stored, const Shape &shape) {
  const Strides own = row_major_strides(stored);
  Strides strides(shape.size(), 0);
  const std::size_t lead = shape.size() - stored.size();
  for (std::size_t i = 0; i < stored.size(); ++i)
    if (stored[i] != 1) strides[lead + i] = own[i];
  return strides;
}

Shape stored_union(const Shape &shape, Inputs arrays) {
  Shape stored(shape.size(), 1);
  for (const Array *array : arrays) {
    const Shape &own = array->stored();
    const std::size_t lead = shape.size() - own.size();
    for (std::size_t i = 0; i < own.size(); ++i)
      if (own[i] != 1) stored[lead + i] = own[i];
  }
  return stored;
}

Type float_input(const NodeTypes &types, std::size_t i) {
  const Type &type = types.input(i);
  require(is_float(type.dtype), Code::type, types.subject(), "input {} of {} is {}, not a float", i, types.node.op,
          to_text(type));
  return type;
}

std::vector<Type> same_as_input(const NodeTypes &types) { return {types.input(0)}; }

std::vector<Type> infer_rewritten(const NodeTypes &types) {
  fail(Code::unsupported, types.subject(), "{} has a form that is not supported", types.node.op);
}

}  // namespace protrain::ops
