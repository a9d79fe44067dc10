// The float types of operands: float32, bfloat16 and float16. Kernels widen the narrow types and compute in float32.
//
// A kernel is a template over the type T of its operands' elements. It computes with `widened` elements, and each
// result is `narrowed` once when it is stored. Sums that are kept from one block, row or micro-batch to the next are
// float32 for every T. Hot loops are static members of a class template, because function templates cannot have clones
// (clones.h).
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "arith/f16.h"
#include "backend/common/clones.h"
#include "backend/cpu/kernel.h"
#include "base/shape.h"

namespace protrain::backend::cpu {

using arith::bf16;
using arith::f16;
using arith::narrowed;
using arith::operand;
using arith::result;
using arith::widened;

template <typename T>
inline constexpr DType kDTypeOf = DType::f32;
template <>
inline constexpr DType kDTypeOf<bf16> = DType::bf16;
template <>
inline constexpr DType kDTypeOf<f16> = DType::f16;

// Calls act(T{}) with the C++ type T of `dtype`, which is float32, bfloat16 or float16.
template <typename Act>
auto with_float(DType dtype, Act act) {
  if (dtype == DType::bf16) return act(bf16{});
  if (dtype == DType::f16) return act(f16{});
  return act(float{});
}

// Returns true for the types that kernels of floats take.
inline bool is_computed(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

// Calls make(T{}) with the C++ type T of the operand's elements. Fails with Code::unsupported if they are not float32,
// bfloat16 or float16.
template <typename Make>
auto by_float(const KernelRequest &request, const graph::Type &type, Make make) {
  require(is_computed(type.dtype), Code::unsupported, subject(request),
          "{} on the cpu takes float32, bfloat16 and float16, this operand is {}", request.node.op,
          name_of(type.dtype));
  return with_float(type.dtype, make);
}

// Makes KernelOf<T>(request, arguments...), where T is the C++ type of the operand's elements.
template <template <typename> class KernelOf, typename... Arguments>
KernelPtr make_by_float(const KernelRequest &request, const graph::Type &type, Arguments &&...arguments) {
  return by_float(request, type, [&]<typename T>(T) -> KernelPtr {
    return std::make_unique<KernelOf<T>>(request, std::forward<Arguments>(arguments)...);
  });
}

// Convert `count` contiguous elements: widen() from T to float32, and narrow() from float32 to T.
template <typename T>
void widen(const T *from, float *to, std::int64_t count);
template <typename T>
void narrow(const float *from, T *to, std::int64_t count);

// Calls act(first element, number of elements) for every piece of a loop over `count` elements. Elementwise loops over
// float16 convert one piece at a time to float32, compute, and convert back. If each of these loops contained
// conversions of its own, conversions would make up a third of the library's code.
inline constexpr std::int64_t kPiece = 1024;
template <typename Act>
void for_each_piece(std::int64_t count, Act act) {
  for (std::int64_t first = 0; first < count; first += kPiece) act(first, std::min(kPiece, count - first));
}

// Gives kernels rows of `length` elements, which lie `stride` apart, as contiguous float32. Rows that are already
// contiguous float32 are used where they lie. Other rows are converted into a buffer in scratch, called a room, and
// back. Each member has `rooms` such buffers.
template <typename T>
class FloatRows {
 public:
  FloatRows(std::int64_t length, std::int64_t stride, int rooms)
      : length_(length),
        stride_(stride),
        rooms_(rooms),
        in_place_(std::is_same_v<T, float> && stride == 1),
        room_bytes_(round_up(byte_count(DType::f32, {length}), kAlignment)) {}

  std::uint64_t scratch_bytes(int members) const {
    return in_place_ ? 0 : checked_multiply(room_bytes_, static_cast<std::uint64_t>(rooms_ * members));
  }
  // Returns the member's buffer `number`; nullptr if rows are used where they lie.
  float *room(void *scratch, const Member &member, int number) const {
    if (in_place_) return nullptr;
    const auto index = static_cast<std::uint64_t>(member.index * rooms_ + number);
    return reinterpret_cast<float *>(static_cast<std::byte *>(scratch) + index * room_bytes_);
  }
  const float *read(const T *row, float *room) const {
    if constexpr (std::is_same_v<T, float>)
      if (in_place_) return row;
    if (stride_ == 1)
      widen(row, room, length_);
    else
      for (std::int64_t i = 0; i < length_; ++i) room[i] = widened(row[i * stride_]);
    return room;
  }
  // Returns where to compute a result row: in `row` itself, or in `room`. If it is `room`, write() later converts the
  // result into `row`.
  float *place(T *row, float *room) const {
    if constexpr (std::is_same_v<T, float>)
      if (in_place_) return row;
    return room;
  }
  void write(const float *room, T *row) const {
    if (in_place_) return;
    if (stride_ == 1)
      narrow(room, row, length_);
    else
      for (std::int64_t i = 0; i < length_; ++i) row[i * stride_] = narrowed<T>(room[i]);
  }

 private:
  std::int64_t length_, stride_;
  int rooms_;
  bool in_place_;
  std::uint64_t room_bytes_;
};

}  // namespace protrain::backend::cpu
