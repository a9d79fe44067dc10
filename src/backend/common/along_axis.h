// The arithmetic of CumSum, ArgMax, ArgMin and TopK on one line along the node's axis. Each backend divides the lines
// among its threads.
#pragma once

#include <cstdint>

#include "arith/bf16.h"
#include "backend/common/axes.h"

namespace protrain::backend {

struct CumSumLine {
  explicit CumSumLine(const KernelRequest &request)
      : lines(request, request.inputs.at(0).shape, 0),
        exclusive(request.node.attributes.integer("exclusive", 0) != 0),
        reverse(request.node.attributes.integer("reverse", 0) != 0) {}

  template <typename T>
  PROTRAIN_HD void sum(const T *x, T *y, std::int64_t line) const {
    const std::int64_t step = reverse ? -lines.inner : lines.inner;
    std::int64_t at = lines.begin(line) + (reverse ? (lines.length - 1) * lines.inner : 0);
    decltype(arith::operand(T{})) total{};
    for (std::int64_t i = 0; i < lines.length; ++i, at += step) {
      const auto before = total;
      total += arith::operand(x[at]);
      y[at] = arith::result<T>(exclusive ? before : total);
    }
  }

  AxisLines lines;
  bool exclusive, reverse;
};

struct ArgLine {
  explicit ArgLine(const KernelRequest &request)
      : lines(request, request.inputs.at(0).shape, 0),
        largest(request.node.op == "ArgMax"),
        last(request.node.attributes.integer("select_last_index", 0) != 0) {}

  template <typename T>
  PROTRAIN_HD std::int64_t index_of_best(const T *from, std::int64_t line) const {
    const T *x = from + lines.begin(line);
    std::int64_t best = 0;
    for (std::int64_t i = 1; i < lines.length; ++i) {
      const auto found = arith::operand(x[best * lines.inner]), next = arith::operand(x[i * lines.inner]);
      if ((largest ? next > found : next < found) || (last && next == found)) best = i;
    }
    return best;
  }

  AxisLines lines;
  bool largest, last;
};

struct TopKLine {
  explicit TopKLine(const KernelRequest &request)
      : lines(request, request.inputs.at(0).shape, -1),
        k(request.node.attributes.integer("k", 0)),
        largest(request.node.attributes.integer("largest", 1) != 0) {}

  // True if element a of the line at x comes before element b in TopK's result. Of equal elements, the one with the
  // lower index comes first.
  template <typename T>
  PROTRAIN_HD bool precedes(const T *x, std::int64_t a, std::int64_t b) const {
    const auto left = arith::operand(x[a * lines.inner]), right = arith::operand(x[b * lines.inner]);
    return left == right ? a < b : (largest ? left > right : left < right);
  }

  AxisLines lines;
  std::int64_t k;
  bool largest;
};

}  // namespace protrain::backend
