// Rotary position embedding: pairs of the last dim are rotated by an angle that depends on the position. The gradient
// is the same operator with the negated angle.
#include <algorithm>

#include "backend/cpu/floats.h"
#include "base/shape.h"

namespace protrain::backend::cpu {

namespace {
// halves() and neighbours() rotate `half` pairs of one head at one position. A pair's elements are `half` apart in
// halves(), and next to each other in neighbours(). sign is 1, or -1 to rotate back.
template <typename T>
struct Turns {
  PROTRAIN_CLONES static void halves(const T *x, const T *cosine, const T *sine, float sign, T *y, std::int64_t half) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < half; ++i) {
      const float a = widened(x[i]), b = widened(x[half + i]), c = widened(cosine[i]), s = sign * widened(sine[i]);
      y[i] = narrowed<T>(a * c - b * s);
      y[half + i] = narrowed<T>(b * c + a * s);
    }
  }
  PROTRAIN_CLONES static void neighbours(const T *x, const T *cosine, const T *sine, float sign, T *y,
                                         std::int64_t half) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < half; ++i) {
      const float a = widened(x[2 * i]), b = widened(x[2 * i + 1]), c = widened(cosine[i]), s = sign * widened(sine[i]);
      y[2 * i] = narrowed<T>(a * c - b * s);
      y[2 * i + 1] = narrowed<T>(b * c + a * s);
    }
  }
};

template <typename T>
class RotaryKernel : public CpuKernel {
 public:
  explicit RotaryKernel(const KernelRequest &request) {
    const graph::Attributes &attributes = request.node.attributes;
    const Shape &shape = request.inputs.at(0).shape;  // (B, S, H, D)
    require(shape.size() == 4, Code::shape, subject(request), "x is {}, (B, S, H, D) is expected", to_text(shape));
    positions_ = shape[0] * shape[1];
    heads_ = shape[2];
    dims_ = shape[3];
    half_ = attributes.integer("rotary_dim", dims_) / 2;
    require(half_ >= 0 && 2 * half_ <= dims_, Code::shape, subject(request), "{} dims cannot turn in heads of {}",
            2 * half_, dims_);
    for (std::size_t i : {0, 1}) {
      const Shape &table = request.inputs.at(i + 1).shape;  // (1|B, S, R/2)
      require(table == Shape{1, shape[1], half_} || table == Shape{shape[0], shape[1], half_}, Code::shape,
              subject(request), "a table of {} for x of {}", to_text(table), to_text(shape));
      table_rows_[i] = table[0] * table[1];
    }
    sign_ = attributes.integer("inverse", 0) != 0 ? -1.0f : 1.0f;
    turn_ = attributes.integer("interleaved", 0) != 0 ? Turns<T>::neighbours : Turns<T>::halves;
  }

  void run(Member &member, const Launch &launch) override {
    const T *x = input<T>(launch, 0);
    T *y = output<T>(launch, 0);
    const Range mine = share(positions_ * heads_, 1, member);
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      const std::int64_t position = i / heads_;  // counted over all batch rows, which may share one table
      const T *cosine = input<T>(launch, 1) + position % table_rows_[0] * half_;
      const T *sine = input<T>(launch, 2) + position % table_rows_[1] * half_;
      const T *from = x + i * dims_;
      T *to = y + i * dims_;
      turn_(from, cosine, sine, sign_, to, half_);
      std::copy(from + 2 * half_, from + dims_, to + 2 * half_);
    }
  }

 private:
  std::int64_t positions_, heads_, dims_, half_;
  std::int64_t table_rows_[2];  // rows of the table of cosines; rows of the table of sines
  float sign_;
  void (*turn_)(const T *, const T *, const T *, float, T *, std::int64_t);
};
}  // namespace

KernelPtr make_rotary(const KernelRequest &request, int) {
  for (const graph::Type &operand : request.inputs) require_dtype(request, operand, request.inputs[0].dtype);
  return make_by_float<RotaryKernel>(request, request.inputs.at(0));
}

}  // namespace protrain::backend::cpu
