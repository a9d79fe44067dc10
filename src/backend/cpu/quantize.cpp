// DequantizeLinear, FakeQuantize and its gradient, and the reading of stored weights. All of them compute in float32,
// for a piece of neighbouring elements at a time. Integers and narrow floats are widened first, and results are rounded
// once.
#include <algorithm>
#include <array>
#include <cstring>

#include "backend/common/quantized.h"
#include "backend/cpu/elementwise.h"
#include "backend/cpu/floats.h"
#include "backend/cpu/stored_rows.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace protrain::backend::cpu {

namespace {
using arith::IntegerRange;

// Widens `count` elements from element `first` on.
using WidenElements = void (*)(const void *from, std::int64_t first, std::int64_t count, float *to);

template <typename T>
struct Integers {
  PROTRAIN_CLONES static void widen(const void *from, std::int64_t first, std::int64_t count, float *to) {
    const T *q = static_cast<const T *>(from) + first;
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(q[i]);
  }
};

template <bool kSigned>
struct HalfBytes {
  PROTRAIN_CLONES static void widen(const void *from, std::int64_t first, std::int64_t count, float *to) {
    constexpr int kFlip = kSigned ? 8 : 0;
    const std::uint8_t *q = static_cast<const std::uint8_t *>(from) + first / 2;
    if (first % 2 != 0 && count > 0) {
      *to++ = static_cast<float>((*q++ >> 4 ^ kFlip) - kFlip);
      --count;
    }
    for (std::int64_t i = 0; i < count / 2; ++i) {
      to[2 * i] = static_cast<float>(((q[i] & 15) ^ kFlip) - kFlip);
      to[2 * i + 1] = static_cast<float>((q[i] >> 4 ^ kFlip) - kFlip);
    }
    if (count % 2 != 0) to[count - 1] = static_cast<float>(((q[count / 2] & 15) ^ kFlip) - kFlip);
  }
};

// Widens nf4 or dynamic8 codes to the floats that they stand for. A byte holds kCodes codes. A table has the floats for
// each of a byte's 256 values.
template <StoredForm kForm>
struct Codes {
  static constexpr std::int64_t kCodes = kForm == StoredForm::nf4 ? 2 : 1;
  using Floats = std::array<float, kCodes>;

  static std::array<Floats, 256> floats_of_bytes() {
    std::array<Floats, 256> all;
    for (int byte = 0; byte < 256; ++byte) {
      if constexpr (kForm == StoredForm::nf4)
        all[static_cast<std::size_t>(byte)] = {arith::nf4(byte & 15), arith::nf4(byte >> 4)};
      else
        all[static_cast<std::size_t>(byte)] = {arith::dynamic8(byte)};
    }
    return all;
  }

  static void widen(const void *from, std::int64_t first, std::int64_t count, float *to) {
    static const std::array<Floats, 256> kFloats = floats_of_bytes();
    const auto *bytes = static_cast<const std::uint8_t *>(from) + first / kCodes;
    for (std::int64_t i = first % kCodes; i != 0 && count > 0; i = (i + 1) % kCodes, --count) {
      *to++ = kFloats[*bytes][static_cast<std::size_t>(i)];
      if (i + 1 == kCodes) ++bytes;
    }
    const std::int64_t whole = count / kCodes;
    for (std::int64_t i = 0; i < whole; ++i) std::memcpy(to + i * kCodes, &kFloats[bytes[i]], sizeof(Floats));
    for (std::int64_t i = whole * kCodes; i < count; ++i)
      to[i] = kFloats[bytes[whole]][static_cast<std::size_t>(i - whole * kCodes)];
  }
};

#if defined(__x86_64__)
// Widens nf4 codes on processors with AVX-512, where one instruction looks up 16 codes.
[[gnu::target("avx512f")]] void widen_nf4_in_vectors(const void *from, std::int64_t first, std::int64_t count,
                                                     float *to) {
  const auto one_by_one = Codes<StoredForm::nf4>::widen;
  const std::int64_t odd = std::min(first % 2, count), end = first + count;
  one_by_one(from, first, odd, to);
  alignas(64) float table[16];
  for (int code = 0; code < 16; ++code) table[code] = arith::nf4(code);
  const __m512 floats = _mm512_load_ps(table);
  const __m512i shifts = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
  std::int64_t i = first + odd;
  for (; i + 16 <= end; i += 16) {
    std::array<int, 2> eights;  // a number holds eight codes
    std::memcpy(eights.data(), static_cast<const std::uint8_t *>(from) + i / 2, sizeof(eights));
    const __m512i numbers = _mm512_inserti64x4(_mm512_set1_epi32(eights[0]), _mm256_set1_epi32(eights[1]), 1);
    // permutexvar_ps reads only the lowest four bits of each number.
    _mm512_storeu_ps(to + (i - first), _mm512_permutexvar_ps(_mm512_srlv_epi32(numbers, shifts), floats));
  }
  one_by_one(from, i, end - i, to + (i - first));
}
WidenElements nf4_widening() {
  return __builtin_cpu_supports("avx512f") ? widen_nf4_in_vectors : Codes<StoredForm::nf4>::widen;
}
#else
WidenElements nf4_widening() { return Codes<StoredForm::nf4>::widen; }
#endif

template <typename T>
void widen_floats(const void *from, std::int64_t first, std::int64_t count, float *to) {
  cpu::widen(static_cast<const T *>(from) + first, to, count);
}

WidenElements widening_of(StoredForm form) {
  switch (form) {
    case StoredForm::i8:
      return Integers<std::int8_t>::widen;
    case StoredForm::u8:
      return Integers<std::uint8_t>::widen;
    case StoredForm::i16:
      return Integers<std::int16_t>::widen;
    case StoredForm::u16:
      return Integers<std::uint16_t>::widen;
    case StoredForm::i4:
      return HalfBytes<true>::widen;
    case StoredForm::u4:
      return HalfBytes<false>::widen;
    case StoredForm::nf4:
      return nf4_widening();
    case StoredForm::dynamic8:
      return Codes<StoredForm::dynamic8>::widen;
    case StoredForm::bf16:
      return widen_floats<bf16>;
    case StoredForm::f16:
      return widen_floats<f16>;
    case StoredForm::f32:
      return widen_floats<float>;
    default:
      return Integers<std::int32_t>::widen;
  }
}

struct Dequantize {
  PROTRAIN_INLINE static float value(float q, float, float scale, float zero, IntegerRange) {
    return arith::dequantized(q, scale, zero);
  }
};
struct FakeQuantize {
  PROTRAIN_INLINE static float value(float x, float, float scale, float zero, IntegerRange range) {
    return arith::fake_quantized(x, scale, zero, range);
  }
};
struct FakeQuantizeGrad {
  PROTRAIN_INLINE static float value(float dy, float x, float scale, float zero, IntegerRange range) {
    return arith::fake_quantized_grad(dy, x, scale, zero, range);
  }
};

struct ScaleOperands {
  const float *scale;
  const void *zeros;  // nullptr: absent
};

// Writes the zero points of `count` elements from element `at` on, as floats. The scales of these elements lie next to
// each other in memory, and so do their zero points.
PROTRAIN_INLINE void widen_zeros(const QuantisedShape &shape, const void *zeros, std::int64_t at, std::int64_t count,
                                 float *to) {
  const std::int64_t first = zeros == nullptr ? 0 : shape.zero(at);
  if (zeros == nullptr)
    std::fill_n(to, count, shape.zero_point);
  else if (shape.zero_form == StoredForm::u8)
    for (std::int64_t j = 0; j < count; ++j) to[j] = static_cast<const std::uint8_t *>(zeros)[first + j];
  else
    for (std::int64_t j = 0; j < count; ++j) to[j] = stored_at(shape.zero_form, zeros, first + j);
}

// Replaces values[i] by F::value(values[i], others[i], scale, ...). values[0] belongs to element `first` of the tensor,
// and there are `count` values. ScaleBlocks sees the tensor as (outer, length, inner), and the loops go through it row
// by row. If the scale is the same along `inner`, a row has length * inner elements. Else it has `inner` elements.
template <typename F>
struct ScaledLoops {
  PROTRAIN_CLONES static void apply(const QuantisedShape &shape, const ScaleOperands &operands, std::int64_t first,
                                    std::int64_t count, float *values, const float *others) {
    const graph::ScaleBlocks &blocks = shape.blocks;
    const bool shared = blocks.inner_step == 0 || blocks.inner == 1;
    const std::int64_t row = shared ? blocks.length * blocks.inner : blocks.inner;
    for (std::int64_t i = 0; i < count;) {
      const std::int64_t at = first + i, some = std::min(row - at % row, count - i);
      shared ? by_blocks(shape, operands, at, some, values + i, others + i)
             : by_elements(shape, operands, at, some, values + i, others + i);
      i += some;
    }
  }

 private:
  // The elements of a block share a scale, and the next block has the next scale. The place of the first scale is
  // computed once for the row, because computing a place takes slow divisions.
  PROTRAIN_INLINE static void by_blocks(const QuantisedShape &shape, const ScaleOperands &operands, std::int64_t at,
                                        std::int64_t count, float *values, const float *others) {
    const graph::ScaleBlocks &blocks = shape.blocks;
    const std::int64_t size = blocks.block * blocks.inner, in_row = at % (blocks.length * blocks.inner);
    const float *scale = operands.scale + shape.scale(at);
    std::int64_t zero_at = operands.zeros == nullptr ? 0 : shape.zero(at);
    std::int64_t end = std::min(size - in_row % size, count);
    for (std::int64_t i = 0; i < count; end = std::min(end + size, count)) {
      const float s = *scale;
      const float zero =
          operands.zeros == nullptr ? shape.zero_point : stored_at(shape.zero_form, operands.zeros, zero_at);
      for (; i < end; ++i) values[i] = F::value(values[i], others[i], s, zero, shape.range);
      scale += blocks.block_step;
      zero_at += blocks.block_step;
    }
  }

  // Each element has its own scale. The scales of neighbouring elements lie next to each other.
  PROTRAIN_INLINE static void by_elements(const QuantisedShape &shape, const ScaleOperands &operands, std::int64_t at,
                                          std::int64_t count, float *values, const float *others) {
    const float *scale = operands.scale + shape.scale(at);
    float zeros[kPiece];
    widen_zeros(shape, operands.zeros, at, count, zeros);
    for (std::int64_t i = 0; i < count; ++i)
      values[i] = F::value(values[i], others[i], scale[i], zeros[i], shape.range);
  }
};

template <typename T>
class DequantizeKernel : public CpuKernel {
 public:
  explicit DequantizeKernel(const KernelRequest &request)
      : count_(element_count(request.outputs.at(0).shape)), rows_(StoredMatrix(request)) {}

  void run(Member &member, const Launch &launch) override {
    const Range mine = share(count_, kElementGrain, member);
    rows_.read(stored_operand(launch, {.matrix = 0, .scales = 1}), mine.begin, mine.size(),
               output<T>(launch, 0) + mine.begin);
  }

 private:
  const std::int64_t count_;
  const StoredRows rows_;
};

template <typename T>
class FakeQuantizeKernel : public CpuKernel {
 public:
  explicit FakeQuantizeKernel(const KernelRequest &request)
      : gradient_(request.node.op == "FakeQuantizeGrad"),
        shape_(request, request.outputs.at(0).shape, gradient_ ? 2 : 1) {}

  void run(Member &member, const Launch &launch) override {
    const Range mine = share(shape_.count, kElementGrain, member);
    const std::size_t scale = gradient_ ? 2 : 1;
    const ScaleOperands scales = {input<float>(launch, scale), optional_input<void>(launch, scale + 1)};
    std::array<float, kPiece> values, others;
    for_each_piece(mine.size(), [&](std::int64_t from, std::int64_t count) {
      const std::int64_t first = mine.begin + from;
      widen(input<T>(launch, 0) + first, values.data(), count);
      if (gradient_) {
        widen(input<T>(launch, 1) + first, others.data(), count);
        ScaledLoops<FakeQuantizeGrad>::apply(shape_, scales, first, count, values.data(), others.data());
      } else {
        ScaledLoops<FakeQuantize>::apply(shape_, scales, first, count, values.data(), values.data());
      }
      narrow(values.data(), output<T>(launch, 0) + first, count);
    });
  }

 private:
  const bool gradient_;
  const QuantisedShape shape_;
};

}  // namespace

StoredRows::StoredRows(const StoredMatrix &matrix) : matrix_(matrix), widening_(widening_of(matrix.form)) {}

template <typename T>
void StoredRows::read(const StoredOperand &from, std::int64_t first, std::int64_t count, T *to) const {
  alignas(64) std::array<float, kPiece> values;
  for_each_piece(count, [&](std::int64_t at, std::int64_t some) {
    widening_(from.elements, first + at, some, values.data());
    if (from.scales != nullptr)
      ScaledLoops<Dequantize>::apply(matrix_.shape, {from.scales, from.zeros}, first + at, some, values.data(),
                                     values.data());
    narrow(values.data(), to + at, some);
  });
}

template void StoredRows::read(const StoredOperand &, std::int64_t, std::int64_t, float *) const;
template void StoredRows::read(const StoredOperand &, std::int64_t, std::int64_t, bf16 *) const;
template void StoredRows::read(const StoredOperand &, std::int64_t, std::int64_t, f16 *) const;

KernelPtr make_dequantize(const KernelRequest &request, int) {
  return make_by_float<DequantizeKernel>(request, request.outputs.at(0));
}
KernelPtr make_fake_quantize(const KernelRequest &request, int) {
  return make_by_float<FakeQuantizeKernel>(request, request.outputs.at(0));
}

}  // namespace protrain::backend::cpu
