// The operands of DequantizeLinear, FakeQuantize and FakeQuantizeGrad.
#pragma once

#include <cstdint>

#include "arith/codes.h"
#include "arith/f16.h"
#include "arith/quantize.h"
#include "backend/request.h"
#include "graph/scale_blocks.h"

namespace protrain::backend {

// The forms in which quantised elements, zero points and frozen weights lie in memory: integers, the codes nf4 and
// dynamic8 (arith/codes.h), or floats. A byte holds two elements of four bits, the first of them in its lower half.
enum class StoredForm : std::uint8_t { i8, u8, i16, u16, i32, i4, u4, nf4, dynamic8, bf16, f16, f32 };

// Returns element i as a float. Integers of up to 16 bits are exact. An nf4 or dynamic8 code becomes the float that it
// stands for.
PROTRAIN_HD float stored_at(StoredForm form, const void *data, std::int64_t i) {
  const auto half = [&] { return static_cast<const std::uint8_t *>(data)[i / 2] >> (i % 2 * 4) & 15; };
  switch (form) {
    case StoredForm::i8:
      return static_cast<const std::int8_t *>(data)[i];
    case StoredForm::u8:
      return static_cast<const std::uint8_t *>(data)[i];
    case StoredForm::i16:
      return static_cast<const std::int16_t *>(data)[i];
    case StoredForm::u16:
      return static_cast<const std::uint16_t *>(data)[i];
    case StoredForm::i32:
      return static_cast<float>(static_cast<const std::int32_t *>(data)[i]);
    case StoredForm::i4:
      return static_cast<float>((half() ^ 8) - 8);
    case StoredForm::u4:
      return static_cast<float>(half());
    case StoredForm::nf4:
      return arith::nf4(half());
    case StoredForm::dynamic8:
      return arith::dynamic8(static_cast<const std::uint8_t *>(data)[i]);
    case StoredForm::bf16:
      return arith::widened(static_cast<const arith::bf16 *>(data)[i]);
    case StoredForm::f16:
      return arith::widened(static_cast<const arith::f16 *>(data)[i]);
    default:
      return static_cast<const float *>(data)[i];
  }
}

// The layout of a node's scales and zero points. scale() returns the place of an element's scale, and zero() that of
// its zero point.
struct QuantisedShape {
  // `tensor` is the shape of the tensor that is scaled. Input number `scales` of the request holds the scales, and the
  // next input the zero points.
  QuantisedShape(const KernelRequest &request, const Shape &tensor, std::size_t scales);
  explicit QuantisedShape(const Shape &tensor);  // without scales

  PROTRAIN_HD std::int64_t scale(std::int64_t element) const { return place(element, blocks.outer_step); }
  PROTRAIN_HD std::int64_t zero(std::int64_t element) const { return place(element, zero_outer_step); }
  PROTRAIN_HD float zero_at(const void *zeros, std::int64_t element) const {
    return zeros == nullptr ? zero_point : stored_at(zero_form, zeros, zero(element));
  }

  std::int64_t count;  // elements
  graph::ScaleBlocks blocks;
  StoredForm zero_form = StoredForm::u8;
  std::int64_t zero_outer_step;  // as blocks.outer_step, but in the array of zero points
  float zero_point = 0;          // of all elements, if the input with zero points is absent
  arith::IntegerRange range;     // of the integers that a FakeQuantize rounds to

 private:
  PROTRAIN_HD std::int64_t place(std::int64_t element, std::int64_t outer_step) const {
    const std::int64_t row = element / blocks.inner;
    return row / blocks.length * outer_step + row % blocks.length / blocks.block * blocks.block_step +
           element % blocks.inner * blocks.inner_step;
  }
};

// Returns the form of the integers or codes that a DequantizeLinear reads. Code::unsupported for types that no kernel
// reads.
StoredForm quantised_form(const KernelRequest &request);

}  // namespace protrain::backend
