// Distillation: a loss whose targets are a teacher's logits instead of labels. A block computes the loss of one row of
// logits against the teacher's row.
#pragma once

#include "arith/distillation.h"
#include "backend/cuda/targets.h"

namespace protrain::backend::cuda {

struct Teacher {
  explicit Teacher(const KernelRequest &request) : terms(distillation_of(request)) {}

  Teacher from(const Targets &targets) const {  // returns a copy that is bound to a launch
    Teacher bound = *this;
    bound.at = static_cast<const float *>(targets.at);
    bound.classes = targets.classes;
    return bound;
  }

  __device__ const float *row(std::int64_t row) const { return at + row * classes; }

  // Returns log(sum(exp(x / temperature))) of a row of logits.
  template <typename T>
  __device__ double log_sum_exp(const T *x) const {
    const float scale = terms.scale;
    return cuda::log_sum_exp<1>(x, classes, [scale](float z) { return z * scale; });
  }

  // Returns the loss of a row x against the teacher's row t. `lse` is log_sum_exp(x), and `wanted` is log_sum_exp(t).
  template <typename T>
  __device__ double loss(const T *x, double lse, const float *t, double wanted) const {
    const auto rounded = static_cast<float>(wanted);
    const auto apart = fold_terms<Plus, double>(
        classes, [&](std::int64_t i) { return static_cast<double>(terms.apart(widened(x[i]), t[i], rounded)); });
    return terms.loss(apart, lse, wanted);
  }

  // Computes the gradient of the loss of a row x against the teacher's row t, times `factor`. `to` may be x.
  template <typename T, typename R>
  __device__ void gradient(const T *x, float lse, const float *t, double wanted, float factor, R *to) const {
    const arith::DistillationSlopes slopes = terms.slopes(factor, lse, static_cast<float>(wanted));
    for (std::int64_t i = threadIdx.x; i < classes; i += blockDim.x)
      to[i] = narrowed<R>(slopes.of(widened(x[i]), t[i]));
  }

  arith::Distillation terms;
  const float *at = nullptr;
  std::int64_t classes = 0;
};

}  // namespace protrain::backend::cuda
