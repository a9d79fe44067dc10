// Accumulate, CountTargets and CountedLoss. Each element of a sum is computed by itself, so that no bit depends on the
// team.
#include <algorithm>
#include <type_traits>

#include "backend/cpu/floats.h"

namespace protrain::backend::cpu {

namespace {
constexpr std::int64_t kLine = 16;  // elements in a cache line; no two members write to the same line

// scale() sets the sum, add() adds to it. T is the type of x, S the type of the sum.
template <typename T, typename S>
struct Loops {
  PROTRAIN_CLONES static void scale(const T *__restrict x, S weight, S *__restrict sum, Range range) {
    for (std::int64_t i = range.begin; i < range.end; ++i) sum[i] = weight * operand(x[i]);
  }
  PROTRAIN_CLONES static void add(const T *__restrict x, S weight, S *__restrict sum, Range range) {
    for (std::int64_t i = range.begin; i < range.end; ++i)
      if constexpr (std::is_same_v<S, float>)
        sum[i] = arith::fma(weight, operand(x[i]), sum[i]);
      else
        sum[i] += weight * operand(x[i]);
  }
};

// Adds x (inputs[1], of type T) times a weight to the sum (of type S), which is both inputs[0] and outputs[0]. The
// first micro-batch sets the sum.
template <typename T, typename S>
class Accumulate : public CpuKernel {
 public:
  explicit Accumulate(const KernelRequest &request) : elements_(element_count(request.inputs.at(0).shape)) {}

  void run(Member &member, const Launch &launch) override {
    const Range own = share(elements_, kLine, member);
    const auto *weight = optional_input<double>(launch, 2);
    const S factor = weight == nullptr ? S{1} : static_cast<S>(*weight);
    const T *x = input<T>(launch, 1);
    S *sum = output<S>(launch, 0);
    const bool first = launch.scalars->micro_batch == 0;
    if (factor == 0 && first) std::fill(sum + own.begin, sum + own.end, S{0});
    if (factor == 0) return;
    (first ? Loops<T, S>::scale : Loops<T, S>::add)(x, factor, sum, own);
  }

 private:
  const std::int64_t elements_;
};

template <typename T>
using AccumulateFloats = Accumulate<T, float>;

template <typename Label>
class CountTargets : public CpuKernel {
 public:
  explicit CountTargets(const KernelRequest &request) : rows_(element_count(request.inputs.at(0).shape)) {
    ignores_ = request.node.attributes.has("ignore_index");
    ignored_ = request.node.attributes.integer("ignore_index", 0);
  }

  void run(Member &member, const Launch &launch) override {
    if (member.index != 0) return;
    const Label *labels = input<Label>(launch, 0);
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < rows_; ++i) count += !ignores_ || labels[i] != ignored_;
    *output<double>(launch, 0) = static_cast<double>(count);
  }

 private:
  const std::int64_t rows_;
  bool ignores_;
  std::int64_t ignored_;
};

class CountedLoss : public CpuKernel {
 public:
  explicit CountedLoss(const KernelRequest &request) { require_dtype(request, request.inputs.at(0), DType::f32); }

  void run(Member &member, const Launch &launch) override {
    if (member.index != 0) return;
    *output<float>(launch, 0) = *input<double>(launch, 1) > 0 ? *input<float>(launch, 0) : 0.0F;
  }
};
}  // namespace

KernelPtr make_accumulate(const KernelRequest &request, int) {
  if (request.inputs.at(0).dtype == DType::f64) return std::make_unique<Accumulate<double, double>>(request);
  require_dtype(request, request.inputs[0], DType::f32);
  return make_by_float<AccumulateFloats>(request, request.inputs.at(1));
}

KernelPtr make_count_targets(const KernelRequest &request, int) {
  if (request.inputs.at(0).dtype == DType::i32) return std::make_unique<CountTargets<std::int32_t>>(request);
  require_dtype(request, request.inputs[0], DType::i64);
  return std::make_unique<CountTargets<std::int64_t>>(request);
}

KernelPtr make_counted_loss(const KernelRequest &request, int) { return std::make_unique<CountedLoss>(request); }

}  // namespace protrain::backend::cpu
