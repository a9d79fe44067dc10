// Gated: y = f(g) u, where f is an activation. Its gradients are dg = dy u f'(g) and du = dy f(g).
#include <algorithm>

#include "backend/common/activation.h"
#include "backend/cpu/elementwise.h"
#include "backend/cpu/floats.h"

namespace protrain::backend::cpu {

namespace {
template <typename F, typename T>
struct Loops {
  PROTRAIN_CLONES static void value(const T *g, const T *u, T *y, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) y[i] = narrowed<T>(F::value(widened(g[i]), {}) * widened(u[i]));
  }
  PROTRAIN_CLONES static void slope(const T *dy, const T *g, const T *u, T *dg, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i)
      dg[i] = narrowed<T>(widened(dy[i]) * widened(u[i]) * F::slope(widened(g[i]), {}));
  }
};

template <typename F>
struct Loops<F, f16> {
  static void value(const f16 *g, const f16 *u, f16 *y, std::int64_t count) {
    float gates[kPiece], values[kPiece];
    for_each_piece(count, [&](std::int64_t first, std::int64_t n) {
      widen(g + first, gates, n);
      widen(u + first, values, n);
      Loops<F, float>::value(gates, values, gates, n);
      narrow(gates, y + first, n);
    });
  }
  static void slope(const f16 *dy, const f16 *g, const f16 *u, f16 *dg, std::int64_t count) {
    float upstream[kPiece], gates[kPiece], values[kPiece];
    for_each_piece(count, [&](std::int64_t first, std::int64_t n) {
      widen(dy + first, upstream, n);
      widen(g + first, gates, n);
      widen(u + first, values, n);
      Loops<F, float>::slope(upstream, gates, values, gates, n);
      narrow(gates, dg + first, n);
    });
  }
};

template <typename F, typename T>
class GatedKernel : public CpuKernel {
 public:
  explicit GatedKernel(const KernelRequest &request) : count_(element_count(request.inputs[0].shape)) {}

  void run(Member &member, const Launch &launch) override {
    const Range mine = share(count_, kElementGrain, member);
    Loops<F, T>::value(input<T>(launch, 0) + mine.begin, input<T>(launch, 1) + mine.begin,
                       output<T>(launch, 0) + mine.begin, mine.size());
  }

 private:
  const std::int64_t count_;
};

template <typename F, typename T>
class GatedGradKernel : public CpuKernel {
 public:
  explicit GatedGradKernel(const KernelRequest &request) : count_(element_count(request.inputs[0].shape)) {}

  // Computes both gradients for kElementGrain elements at a time, so that the second gradient finds its operands in the
  // nearest cache.
  void run(Member &member, const Launch &launch) override {
    const T *dy = input<T>(launch, 0), *g = input<T>(launch, 1), *u = input<T>(launch, 2);
    T *dg = output<T>(launch, 0), *du = output<T>(launch, 1);
    const Range mine = share(count_, kElementGrain, member);
    for (std::int64_t at = mine.begin; at < mine.end; at += kElementGrain) {
      const std::int64_t count = std::min(kElementGrain, mine.end - at);
      if (dg != nullptr) Loops<F, T>::slope(dy + at, g + at, u + at, dg + at, count);
      if (du != nullptr) Loops<F, T>::value(g + at, dy + at, du + at, count);
    }
  }

 private:
  const std::int64_t count_;
};

}  // namespace

KernelPtr make_gated(const KernelRequest &request, int) {
  for (const graph::Type &operand : request.inputs) require_dtype(request, operand, request.inputs[0].dtype);
  return by_float(request, request.inputs.at(0), [&]<typename T>(T) {
    return by_activation(request, [&]<typename F>(F) -> KernelPtr {
      if (request.node.op == "Gated") return std::make_unique<GatedKernel<F, T>>(request);
      return std::make_unique<GatedGradKernel<F, T>>(request);
    });
  });
}

}  // namespace protrain::backend::cpu
