// CumSum, ArgMax, ArgMin and TopK: each lane along one axis is walked by one thread, from one end to the other.
#include "backend/axes.h"
#include "backend/cuda/elementwise.h"

namespace protrain::backend::cuda {

namespace {
template <typename T>
class CumSum : public CudaKernel {
 public:
  explicit CumSum(const KernelRequest &request)
      : lanes_(request, request.inputs.at(0).shape, 0),
        exclusive_(request.node.attributes.integer("exclusive", 0) != 0),
        reverse_(request.node.attributes.integer("reverse", 0) != 0) {}

  void run(Stream stream, const Launch &launch) override {
    const T *x = input<T>(launch, 0);
    T *y = output<T>(launch, 0);
    each(stream, lanes_.count,
         [x, y, lanes = lanes_, exclusive = exclusive_, reverse = reverse_] __device__(std::int64_t lane) {
           const std::int64_t step = reverse ? -lanes.inner : lanes.inner;
           std::int64_t at = lanes.begin(lane, lanes.length) + (reverse ? (lanes.length - 1) * lanes.inner : 0);
           decltype(operand(T{})) total{};
           for (std::int64_t i = 0; i < lanes.length; ++i, at += step) {
             const auto before = total;
             total += operand(x[at]);
             y[at] = result<T>(exclusive ? before : total);
           }
         });
  }

 private:
  const Lanes lanes_;
  const bool exclusive_, reverse_;
};

template <typename T>
class Arg : public CudaKernel {
 public:
  explicit Arg(const KernelRequest &request)
      : lanes_(request, request.inputs.at(0).shape, 0),
        largest_(request.node.op == "ArgMax"),
        last_(request.node.attributes.integer("select_last_index", 0) != 0) {}

  void run(Stream stream, const Launch &launch) override {
    const T *from = input<T>(launch, 0);
    auto *to = output<std::int64_t>(launch, 0);
    each(stream, lanes_.count,
         [from, to, lanes = lanes_, largest = largest_, last = last_] __device__(std::int64_t lane) {
           const T *x = from + lanes.begin(lane, lanes.length);
           std::int64_t best = 0;
           for (std::int64_t i = 1; i < lanes.length; ++i) {
             const auto found = operand(x[best * lanes.inner]), next = operand(x[i * lanes.inner]);
             if ((largest ? next > found : next < found) || (last && next == found)) best = i;
           }
           to[lane] = best;
         });
  }

 private:
  const Lanes lanes_;
  const bool largest_, last_;
};

// Of equal elements the first ones: each pass finds what follows the element of the pass before.
template <typename T>
class TopK : public CudaKernel {
 public:
  explicit TopK(const KernelRequest &request)
      : lanes_(request, request.inputs.at(0).shape, -1),
        k_(request.node.attributes.integer("k", 0)),
        largest_(request.node.attributes.integer("largest", 1) != 0) {}

  void run(Stream stream, const Launch &launch) override {
    const T *from = input<T>(launch, 0);
    T *values = optional_output<T>(launch, 0);
    auto *indices = optional_output<std::int64_t>(launch, 1);
    each(stream, lanes_.count,
         [from, values, indices, lanes = lanes_, k = k_, largest = largest_] __device__(std::int64_t lane) {
           const T *x = from + lanes.begin(lane, lanes.length);
           // Whether element a comes before element b.
           const auto precedes = [&](std::int64_t a, std::int64_t b) {
             const auto left = operand(x[a * lanes.inner]), right = operand(x[b * lanes.inner]);
             return left == right ? a < b : (largest ? left > right : left < right);
           };
           std::int64_t before = -1;
           for (std::int64_t i = 0; i < k; ++i) {
             std::int64_t best = -1;
             for (std::int64_t j = 0; j < lanes.length; ++j)
               if (j != before && (before < 0 || precedes(before, j)) && (best < 0 || precedes(j, best))) best = j;
             if (best < 0) best = before;  // of elements that no order holds for
             const std::int64_t to = lanes.begin(lane, k) + i * lanes.inner;
             if (values != nullptr) values[to] = x[best * lanes.inner];
             if (indices != nullptr) indices[to] = best;
             before = best;
           }
         });
  }

 private:
  const Lanes lanes_;
  const std::int64_t k_;
  const bool largest_;
};

template <template <typename> class KernelOf>
Made by_number(const KernelRequest &request) {
  const graph::Type &operand = request.inputs.at(0);
  if (operand.dtype == DType::i64) return std::make_unique<KernelOf<std::int64_t>>(request);
  if (operand.dtype == DType::i32) return std::make_unique<KernelOf<std::int32_t>>(request);
  return by_float(request, operand, [&]<typename T>(T) -> Made { return std::make_unique<KernelOf<T>>(request); });
}
}  // namespace

Made make_cumsum(const KernelRequest &request, Site &) { return by_number<CumSum>(request); }

Made make_arg(const KernelRequest &request, Site &) { return by_number<Arg>(request); }

Made make_topk(const KernelRequest &request, Site &) {
  return by_float(request, request.inputs.at(0),
                  [&]<typename T>(T) -> Made { return std::make_unique<TopK<T>>(request); });
}

}  // namespace protrain::backend::cuda
