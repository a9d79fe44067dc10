// Accumulate, SumParts, CountTargets and CountedLoss. Each element of a sum is computed independently of the others, so
// that no bit depends on the team.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "backend/cpu/floats.h"

namespace protrain::backend::cpu {

namespace {
constexpr std::int64_t kLine = 16;     // elements in a cache line; no two members write to the same line
constexpr std::int64_t kBlock = 4096;  // elements of a sum that stay in cache until all parts are added
constexpr int kTogether = 4;           // most parts that one loop adds

// A term of the sum: a part of the input x, and the weight that multiplies each of its elements. T is the type of x, S
// the type of the sum.
template <typename T, typename S>
struct Part {
  const T *x;
  S weight;
};

template <typename T, typename S, int kCount>
struct Loop {
  // Multiplies element i of each part by the part's weight, and adds the products to `total`. Begins with part number
  // `first`. Returns the new total.
  PROTRAIN_INLINE static S added(const Part<T, S> *parts, int first, std::int64_t i, S total) {
    for (int k = first; k < kCount; ++k)
      if constexpr (std::is_same_v<S, float>)
        total = arith::fma(parts[k].weight, operand(parts[k].x[i]), total);
      else
        total += parts[k].weight * operand(parts[k].x[i]);
    return total;
  }
  // Adds kCount parts to `sum`. If `sets`, the old values of `sum` are ignored, so the parts alone make up the sum.
  PROTRAIN_CLONES static void add(const Part<T, S> *parts, bool sets, S *__restrict sum, Range range) {
    Part<T, S> own[kCount];  // a copy, which stays in registers
    for (int k = 0; k < kCount; ++k) own[k] = parts[k];
    if (sets)
      for (std::int64_t i = range.begin; i < range.end; ++i)
        sum[i] = added(own, 1, i, own[0].weight * operand(own[0].x[i]));
    else
      for (std::int64_t i = range.begin; i < range.end; ++i) sum[i] = added(own, 0, i, sum[i]);
  }
};

// Accumulate multiplies the parts of x (inputs[1], of type T) by weights and adds them to the sum (of type S), which is
// both inputs[0] and outputs[0]. In the first micro-batch the old sum is ignored. SumParts has no old sum: x is its
// inputs[0], and the parts alone make up the sum.
template <typename T, typename S>
class Accumulate : public CpuKernel {
 public:
  explicit Accumulate(const KernelRequest &request)
      : begins_(request.node.op == "SumParts"),
        x_(begins_ ? 0 : 1),
        elements_(element_count(request.outputs.at(0).shape)),
        parts_(request.node.attributes.integer("parts", 1)),
        stride_(element_count(request.inputs.at(x_).shape) / parts_),
        weighs_each_(has_input(request, x_ + 1) && !request.inputs[x_ + 1].shape.empty()) {}

  void run(Member &member, const Launch &launch) override {
    const Range own = share(elements_, kLine, member);
    for (std::int64_t begin = own.begin; begin < own.end; begin += kBlock)
      add_parts(launch, {begin, std::min(begin + kBlock, own.end)});
  }

 private:
  void add_parts(const Launch &launch, Range range) const {
    const auto *weights = optional_input<double>(launch, x_ + 1);
    S *sum = output<S>(launch, 0);
    bool sets = begins_ || launch.scalars->micro_batch == 0;
    Part<T, S> together[kTogether];
    int count = 0;
    for (std::int64_t part = 0; part < parts_; ++part) {
      const S weight = weights == nullptr ? S{1} : static_cast<S>(weights[weighs_each_ ? part : 0]);
      if (weight != 0) {
        together[count++] = {input<T>(launch, x_) + part * stride_, weight};
      } else if (part == 0 && sets) {
        std::fill(sum + range.begin, sum + range.end, S{0});
        sets = false;
      }
      if (count < kTogether && part + 1 < parts_) continue;
      add_together(together, std::exchange(count, 0), std::exchange(sets, false), sum, range);
    }
  }

  static void add_together(const Part<T, S> *parts, int count, bool sets, S *sum, Range range) {
    if (count == kTogether) return Loop<T, S, kTogether>::add(parts, sets, sum, range);
    if (count >= 2) Loop<T, S, 2>::add(parts, sets, sum, range);
    if (count % 2 == 1) Loop<T, S, 1>::add(parts + count - 1, sets && count == 1, sum, range);
  }

  const bool begins_;                             // the parts begin a new sum (SumParts)
  const std::size_t x_;                           // number of the input x
  const std::int64_t elements_, parts_, stride_;  // stride: elements of x from one part to the next
  const bool weighs_each_;                        // each part has a weight of its own
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
    const auto *weights = optional_input<float>(launch, 1);
    double count = 0;
    for (std::int64_t i = 0; i < rows_; ++i)
      if (!ignores_ || labels[i] != ignored_) count += weights != nullptr ? static_cast<double>(weights[i]) : 1;
    *output<double>(launch, 0) = count;
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
    *output<float>(launch, 0) = *input<double>(launch, 1) != 0 ? *input<float>(launch, 0) : 0.0F;
  }
};
}  // namespace

KernelPtr make_accumulate(const KernelRequest &request, int) {
  if (request.outputs.at(0).dtype == DType::f64) return std::make_unique<Accumulate<double, double>>(request);
  require_dtype(request, request.outputs[0], DType::f32);
  return make_by_float<AccumulateFloats>(request, request.inputs.at(request.node.op == "SumParts" ? 0 : 1));
}

KernelPtr make_count_targets(const KernelRequest &request, int) {
  if (request.inputs.at(0).dtype == DType::i32) return std::make_unique<CountTargets<std::int32_t>>(request);
  require_dtype(request, request.inputs[0], DType::i64);
  return std::make_unique<CountTargets<std::int64_t>>(request);
}

KernelPtr make_counted_loss(const KernelRequest &request, int) { return std::make_unique<CountedLoss>(request); }

}  // namespace protrain::backend::cpu
