// Functions that the kernels of recurrent layers share with those of their gradients. Each member of the team computes
// some of the units, with all gates of these units. So members exchange results only once in a step, or twice in a GRU
// whose reset gate multiplies the states h. Sums and cells are float32 whatever the operands are.
#pragma once

#include <array>
#include <initializer_list>
#include <vector>

#include "backend/common/recurrent_shape.h"
#include "backend/common/scratch_layout.h"
#include "backend/cpu/floats.h"
#include "backend/cpu/step_product.h"

namespace protrain::backend::cpu {

// A member's units, and the products of a step for these units. A member without units has no products.
struct UnitPart {
  Range units;
  std::vector<StepProduct> products;
};

// The base of the kernels of recurrent layers and of their gradients. It keeps the units of each member, and the layout
// of scratch: first the part that all members share, then a part for each member.
class StepsKernel : public CpuKernel {
 protected:
  // Returns the shape of product number `product` (0 or 1) of a step, for `units` units.
  using ShapeOf = GemmShape (*)(const RecurrentShape &shape, int product, std::int64_t units);
  StepsKernel(const KernelRequest &request, int team_size, ShapeOf shape_of);

  std::int64_t most_units() const;
  // Sets scratch_bytes. `own` is the layout of a member's part without the scratch of the member's products, which this
  // function adds.
  void finish_layout(const ScratchLayout &whole, ScratchLayout own);

  UnitPart &part(const Member &member) { return parts_[static_cast<std::size_t>(member.index)]; }
  template <typename E>
  E *shared(const Launch &launch, std::uint64_t offset) const {
    return reinterpret_cast<E *>(static_cast<std::byte *>(launch.scratch) + offset);
  }
  template <typename E>
  E *own(const Member &member, const Launch &launch, std::uint64_t offset) const {
    return shared<E>(launch, whole_bytes_ + static_cast<std::uint64_t>(member.index) * own_bytes_ + offset);
  }
  // Lays out the second factors of the member's products, which do not change from step to step.
  void lay_out(const Member &member, const Launch &launch, std::initializer_list<const void *> factors);
  void run_product(const Member &member, const Launch &launch, std::size_t product, const GemmOperands &operands);

  const RecurrentShape shape_;

 private:
  std::vector<UnitPart> parts_;
  std::uint64_t whole_bytes_ = 0, own_bytes_ = 0, product_at_ = 0;
  std::array<std::uint64_t, 2> laid_at_{};  // where the factors of a member's products are laid out
};

// widen_gates() converts an operand's row to float32, for a member's units and `count` gates. narrow_gates() converts
// back. The row has the numbers of all units for the first gate, then those of all units for the next gate.
template <typename T>
void widen_gates(const T *row, const RecurrentShape &s, const UnitPart &part, std::int64_t count, float *to) {
  for (std::int64_t gate = 0; gate < count; ++gate)
    widen(row + gate * s.units + part.units.begin, to + gate * part.units.size(), part.units.size());
}
template <typename T>
void narrow_gates(const float *from, const RecurrentShape &s, const UnitPart &part, std::int64_t count, T *row) {
  for (std::int64_t gate = 0; gate < count; ++gate)
    narrow(from + gate * part.units.size(), row + gate * s.units + part.units.begin, part.units.size());
}
// Converts the numbers of a member's units to float32. Writes zeros if `row` is nullptr because the operand is absent.
template <typename T>
void widen_or_zero(const T *row, const UnitPart &part, float *to) {
  if (row == nullptr)
    std::fill_n(to, part.units.size(), 0.0f);
  else
    widen(row + part.units.begin, to, part.units.size());
}

// True if the sample is long enough to have the step at `time`. In later steps the sample keeps its state.
inline bool has_step(const Launch &launch, std::int64_t sample, std::int64_t time) {
  const auto *lengths = optional_input<std::int32_t>(launch, kLengths);
  return lengths == nullptr || time < lengths[sample];
}

// Elementwise functions of rows of `count` numbers. F is the activation function.
void activate(const arith::Activation &a, float *row, std::int64_t count);  // row = F(row)
// Multiplies `row` by the derivative of F, which is computed from `values`, the results of F.
void apply_slope(const arith::Activation &a, const float *values, float *row, std::int64_t count);
void multiply(const float *a, const float *b, float *to, std::int64_t count);         // to = a * b; `to` may be a or b
void add_products(const float *a, const float *b, float *to, std::int64_t count);     // to += a * b
void take_complement(const float *a, const float *b, float *to, std::int64_t count);  // to = (1 - a) * b
void mix(const float *z, const float *h, const float *fresh, float *to, std::int64_t count);  // z * h + (1 - z) * fresh

}  // namespace protrain::backend::cpu
