// CumSum, ArgMax, ArgMin and TopK. One thread computes a whole line along the axis.
#include "backend/common/along_axis.h"

#include "backend/cuda/elementwise.h"

namespace protrain::backend::cuda {

namespace {
template <typename T>
class CumSum : public CudaKernel {
 public:
  explicit CumSum(const KernelRequest &request) : sums_(request) {}

  void run(Stream stream, const Launch &launch) override {
    const T *x = input<T>(launch, 0);
    T *y = output<T>(launch, 0);
    each(stream, sums_.lines.count, [x, y, sums = sums_] __device__(std::int64_t line) { sums.sum(x, y, line); });
  }

 private:
  const CumSumLine sums_;
};

template <typename T>
class Arg : public CudaKernel {
 public:
  explicit Arg(const KernelRequest &request) : best_(request) {}

  void run(Stream stream, const Launch &launch) override {
    const T *x = input<T>(launch, 0);
    auto *to = output<std::int64_t>(launch, 0);
    each(stream, best_.lines.count,
         [x, to, best = best_] __device__(std::int64_t line) { to[line] = best.index_of_best(x, line); });
  }

 private:
  const ArgLine best_;
};

// Finds the k largest or smallest elements of each line, in k passes. Each pass finds the element that comes next in
// sorted order.
template <typename T>
class TopK : public CudaKernel {
 public:
  explicit TopK(const KernelRequest &request) : top_(request) {}

  void run(Stream stream, const Launch &launch) override {
    const T *from = input<T>(launch, 0);
    T *values = optional_output<T>(launch, 0);
    auto *indices = optional_output<std::int64_t>(launch, 1);
    each(stream, top_.lines.count, [from, values, indices, top = top_] __device__(std::int64_t line) {
      const AxisLines &lines = top.lines;
      const T *x = from + lines.begin(line);
      std::int64_t before = -1;
      for (std::int64_t i = 0; i < top.k; ++i) {
        std::int64_t best = -1;
        for (std::int64_t j = 0; j < lines.length; ++j)
          if (j != before && (before < 0 || top.precedes(x, before, j)) && (best < 0 || top.precedes(x, j, best)))
            best = j;
        if (best < 0) best = before;  // only with NaNs, which have no order
        const std::int64_t to = lines.begin(line, top.k) + i * lines.inner;
        if (values != nullptr) values[to] = x[best * lines.inner];
        if (indices != nullptr) indices[to] = best;
        before = best;
      }
    });
  }

 private:
  const TopKLine top_;
};

template <template <typename> class KernelOf>
KernelPtr by_number(const KernelRequest &request) {
  const graph::Type &operand = request.inputs.at(0);
  if (operand.dtype == DType::i64) return std::make_unique<KernelOf<std::int64_t>>(request);
  if (operand.dtype == DType::i32) return std::make_unique<KernelOf<std::int32_t>>(request);
  return by_float(request, operand, [&]<typename T>(T) -> KernelPtr { return std::make_unique<KernelOf<T>>(request); });
}
}  // namespace

KernelPtr make_cumsum(const KernelRequest &request, DeviceState &) { return by_number<CumSum>(request); }

KernelPtr make_arg(const KernelRequest &request, DeviceState &) { return by_number<Arg>(request); }

KernelPtr make_topk(const KernelRequest &request, DeviceState &) { return by_number<TopK>(request); }

}  // namespace protrain::backend::cuda
