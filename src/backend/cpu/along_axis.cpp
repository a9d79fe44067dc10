// CumSum, ArgMax, ArgMin and TopK. Members share the lines along the axis, and one member computes a whole line.
#include "backend/common/along_axis.h"

#include <algorithm>

#include "backend/cpu/floats.h"

namespace protrain::backend::cpu {

namespace {
template <typename T>
class CumSumKernel : public CpuKernel {
 public:
  explicit CumSumKernel(const KernelRequest &request) : sums_(request) {}

  void run(Member &member, const Launch &launch) override {
    const Range mine = share(sums_.lines.count, 1, member);
    for (std::int64_t line = mine.begin; line < mine.end; ++line)
      sums_.sum(input<T>(launch, 0), output<T>(launch, 0), line);
  }

 private:
  const CumSumLine sums_;
};

template <typename T>
class ArgKernel : public CpuKernel {
 public:
  explicit ArgKernel(const KernelRequest &request) : best_(request) {}

  void run(Member &member, const Launch &launch) override {
    const Range mine = share(best_.lines.count, 1, member);
    for (std::int64_t line = mine.begin; line < mine.end; ++line)
      output<std::int64_t>(launch, 0)[line] = best_.index_of_best(input<T>(launch, 0), line);
  }

 private:
  const ArgLine best_;
};

// Computes TopK. Each member keeps the indices of one line in scratch, and sorts only until the first k are in order.
template <typename T>
class TopKKernel : public CpuKernel {
 public:
  TopKKernel(const KernelRequest &request, int team_size) : top_(request) {
    scratch_bytes = checked_multiply(static_cast<std::uint64_t>(top_.lines.length) * sizeof(std::int64_t),
                                     static_cast<std::uint64_t>(members_at_work(top_.lines.count, team_size)));
  }

  void run(Member &member, const Launch &launch) override {
    const AxisLines &lines = top_.lines;
    const Range mine = share(lines.count, 1, member);
    std::int64_t *order = static_cast<std::int64_t *>(launch.scratch) + member.index * lines.length;
    T *values = optional_output<T>(launch, 0);
    auto *indices = optional_output<std::int64_t>(launch, 1);
    for (std::int64_t line = mine.begin; line < mine.end; ++line) {
      const T *x = input<T>(launch, 0) + lines.begin(line);
      for (std::int64_t i = 0; i < lines.length; ++i) order[i] = i;
      std::partial_sort(order, order + top_.k, order + lines.length,
                        [&](std::int64_t a, std::int64_t b) { return top_.precedes(x, a, b); });
      for (std::int64_t i = 0; i < top_.k; ++i) {
        const std::int64_t to = lines.begin(line, top_.k) + i * lines.inner;
        if (values != nullptr) values[to] = x[order[i] * lines.inner];
        if (indices != nullptr) indices[to] = order[i];
      }
    }
  }

 private:
  const TopKLine top_;
};

template <template <typename> class KernelOf, typename... Arguments>
KernelPtr make_by_number(const KernelRequest &request, Arguments... arguments) {
  const graph::Type &operand = request.inputs.at(0);
  if (operand.dtype == DType::i64) return std::make_unique<KernelOf<std::int64_t>>(request, arguments...);
  if (operand.dtype == DType::i32) return std::make_unique<KernelOf<std::int32_t>>(request, arguments...);
  return make_by_float<KernelOf>(request, operand, arguments...);
}
}  // namespace

KernelPtr make_cumsum(const KernelRequest &request, int) { return make_by_number<CumSumKernel>(request); }

KernelPtr make_arg(const KernelRequest &request, int) { return make_by_number<ArgKernel>(request); }

KernelPtr make_topk(const KernelRequest &request, int team_size) {
  return make_by_number<TopKKernel>(request, team_size);
}

}  // namespace protrain::backend::cpu
