// CumSum, ArgMax, ArgMin and TopK: each lane along one axis is walked by one member, from one end to the other.
#include <algorithm>

#include "backend/axes.h"
#include "backend/cpu/floats.h"

namespace protrain::backend {

namespace {
template <typename T>
class CumSumKernel : public CpuKernel {
 public:
  explicit CumSumKernel(const KernelRequest &request)
      : lanes_(request, request.inputs.at(0).shape, 0),
        exclusive_(request.node.attributes.integer("exclusive", 0) != 0),
        reverse_(request.node.attributes.integer("reverse", 0) != 0) {}

  void run(Member &member, const Launch &launch) override {
    const Range mine = share(lanes_.count, 1, member);
    const std::int64_t step = reverse_ ? -lanes_.inner : lanes_.inner;
    for (std::int64_t lane = mine.begin; lane < mine.end; ++lane) {
      std::int64_t at = lanes_.begin(lane, lanes_.length) + (reverse_ ? (lanes_.length - 1) * lanes_.inner : 0);
      const T *x = input<T>(launch, 0);
      T *y = output<T>(launch, 0);
      decltype(operand(T{})) total{};
      for (std::int64_t i = 0; i < lanes_.length; ++i, at += step) {
        const auto before = total;
        total += operand(x[at]);
        y[at] = result<T>(exclusive_ ? before : total);
      }
    }
  }

 private:
  const Lanes lanes_;
  const bool exclusive_, reverse_;
};

template <typename T>
class ArgKernel : public CpuKernel {
 public:
  explicit ArgKernel(const KernelRequest &request)
      : lanes_(request, request.inputs.at(0).shape, 0),
        largest_(request.node.op == "ArgMax"),
        last_(request.node.attributes.integer("select_last_index", 0) != 0) {}

  void run(Member &member, const Launch &launch) override {
    const Range mine = share(lanes_.count, 1, member);
    for (std::int64_t lane = mine.begin; lane < mine.end; ++lane) {
      const T *x = input<T>(launch, 0) + lanes_.begin(lane, lanes_.length);
      std::int64_t best = 0;
      for (std::int64_t i = 1; i < lanes_.length; ++i) {
        const auto found = operand(x[best * lanes_.inner]), next = operand(x[i * lanes_.inner]);
        if ((largest_ ? next > found : next < found) || (last_ && next == found)) best = i;
      }
      output<std::int64_t>(launch, 0)[lane] = best;
    }
  }

 private:
  const Lanes lanes_;
  const bool largest_, last_;
};

// Of equal elements the first ones. Scratch holds the places of a lane for each member.
template <typename T>
class TopKKernel : public CpuKernel {
 public:
  TopKKernel(const KernelRequest &request, int team_size)
      : lanes_(request, request.inputs.at(0).shape, -1),
        k_(request.node.attributes.integer("k", 0)),
        largest_(request.node.attributes.integer("largest", 1) != 0) {
    scratch_bytes = checked_multiply(static_cast<std::uint64_t>(lanes_.length) * sizeof(std::int64_t),
                                     static_cast<std::uint64_t>(team_size));
  }

  void run(Member &member, const Launch &launch) override {
    const Range mine = share(lanes_.count, 1, member);
    std::int64_t *order = static_cast<std::int64_t *>(launch.scratch) + member.index * lanes_.length;
    T *values = optional_output<T>(launch, 0);
    auto *places = optional_output<std::int64_t>(launch, 1);
    for (std::int64_t lane = mine.begin; lane < mine.end; ++lane) {
      const T *x = input<T>(launch, 0) + lanes_.begin(lane, lanes_.length);
      for (std::int64_t i = 0; i < lanes_.length; ++i) order[i] = i;
      std::partial_sort(order, order + k_, order + lanes_.length, [&](std::int64_t a, std::int64_t b) {
        const float left = widened(x[a * lanes_.inner]), right = widened(x[b * lanes_.inner]);
        return left == right ? a < b : (largest_ ? left > right : left < right);
      });
      for (std::int64_t i = 0; i < k_; ++i) {
        const std::int64_t to = lanes_.begin(lane, k_) + i * lanes_.inner;
        if (values != nullptr) values[to] = x[order[i] * lanes_.inner];
        if (places != nullptr) places[to] = order[i];
      }
    }
  }

 private:
  const Lanes lanes_;
  const std::int64_t k_;
  const bool largest_;
};

template <template <typename> class KernelOf>
std::unique_ptr<CpuKernel> make_by_number(const KernelRequest &request) {
  const graph::Type &operand = request.inputs.at(0);
  if (operand.dtype == DType::i64) return std::make_unique<KernelOf<std::int64_t>>(request);
  if (operand.dtype == DType::i32) return std::make_unique<KernelOf<std::int32_t>>(request);
  return make_by_float<KernelOf>(request, operand);
}
}  // namespace

std::unique_ptr<CpuKernel> make_cumsum(const KernelRequest &request, int) {
  return make_by_number<CumSumKernel>(request);
}

std::unique_ptr<CpuKernel> make_arg(const KernelRequest &request, int) { return make_by_number<ArgKernel>(request); }

std::unique_ptr<CpuKernel> make_topk(const KernelRequest &request, int team_size) {
  return make_by_float<TopKKernel>(request, request.inputs.at(0), team_size);
}

}  // namespace protrain::backend
