// DequantizeLinear, FakeQuantize and its gradient, and the reading of stored weights. All of them compute in float32,
// one piece of neighbours at a time. Integers and narrow floats are widened first, and results are rounded once.
#include <algorithm>
#include <array>
#include <cstring>

#include "backend/common/quantized.h"
#include "backend/cpu/elementwise.h"
#include "backend/cpu/floats.h"
#include "backend/cpu/stored_rows.h"

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
      to[2 * i] = static_cast<float>((q[i] & 15 ^ kFlip) - kFlip);
      to[2 * i + 1] = static_cast<float>((q[i] >> 4 ^ kFlip) - kFlip);
    }
    if (count % 2 != 0) to[count - 1] = static_cast<float>((q[count / 2] & 15 ^ kFlip) - kFlip);
  }
};

// Widens nf4 or dynamic8 codes to the floats that they stand for. A byte holds kCodes codes, and a table gives the
// floats of each of the 256 bytes.
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
      return Codes<StoredForm::nf4>::widen;
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

// Widens the zero points of `count` elements from element `at` on, whose scales are neighbours.
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

// Replaces values[i] by F::value(values[i], others[i], scale, ...) for the `count` elements from `first` on. The loops
// go from run to run. A run is a sequence of neighbours that either share one scale or have scales that are neighbours.
template <typename F>
struct ScaledLoops {
  PROTRAIN_CLONES static void apply(const QuantisedShape &shape, const ScaleOperands &operands, std::int64_t first,
                                    std::int64_t count, float *values, const float *others) {
    const graph::ScaleBlocks &blocks = shape.blocks;
    const bool shared = blocks.inner_step == 0 || blocks.inner == 1;
    const std::int64_t run = shared ? blocks.block * blocks.inner : blocks.inner;
    const std::int64_t rows = shared ? blocks.length * blocks.inner : blocks.inner;  // runs end at multiples of rows
    for (std::int64_t i = 0; i < count;) {
      const std::int64_t at = first + i, in_row = at % rows;
      const std::int64_t end = i + std::min({run - in_row % run, rows - in_row, count - i});
      const float *scale = operands.scale + shape.scale(at);
      if (shared) {
        const float s = *scale, zero = shape.zero_at(operands.zeros, at);
        for (; i < end; ++i) values[i] = F::value(values[i], others[i], s, zero, shape.range);
      } else {
        float zeros[kPiece];
        widen_zeros(shape, operands.zeros, at, end - i, zeros);
        for (std::int64_t j = 0; j < end - i; ++j)
          values[i + j] = F::value(values[i + j], others[i + j], scale[j], zeros[j], shape.range);
        i = end;
      }
    }
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
