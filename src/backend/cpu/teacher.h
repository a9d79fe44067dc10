// Distillation: a loss whose targets are the logits of a teacher model instead of labels. Computes the loss and the
// gradient of one row of logits against the teacher's row.
#pragma once

#include <cstdint>

#include "arith/distillation.h"
#include "backend/cpu/kernel.h"

namespace protrain::backend::cpu {

class Teacher {
 public:
  // A row t of the teacher's logits, and its log(sum(exp(t / temperature))).
  struct Row {
    const float *logits;
    double lse;
  };

  // `logits` is the index of the teacher's logits (M, C) among the inputs.
  Teacher(const KernelRequest &request, std::size_t logits, std::int64_t classes);

  Row row(const Launch &launch, std::int64_t i) const;
  // Returns log(sum(exp(x / temperature))) of a row x of any float type (floats.h).
  template <typename T>
  double log_sum_exp(const T *x) const;
  // Returns the loss of the student's row x against the teacher's `row`. `lse` is the log_sum_exp() of x.
  template <typename T>
  double loss(const Row &row, const T *x, double lse) const;
  // Computes the gradient of `factor` times the loss of the student's row x. `to` may be x.
  template <typename T>
  void gradient(const Row &row, const T *x, float lse, float factor, T *to) const;

 private:
  arith::Distillation terms_;
  std::size_t logits_;
  std::int64_t classes_;
};

}  // namespace protrain::backend::cpu
