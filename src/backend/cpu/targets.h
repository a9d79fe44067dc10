// The labels of a loss, checked as they are read, and the loss of one row of logits. CrossEntropy and
// LinearCrossEntropy use both.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/common/reduction.h"
#include "backend/cpu/kernel.h"

namespace protrain::backend::cpu {

// The labels of a loss: their type, the number of classes, and the label that is ignored.
class Targets {
 public:
  // `labels` is the index of the labels among the inputs.
  Targets(const KernelRequest &request, std::size_t labels, std::int64_t classes);

  static constexpr std::int64_t kIgnored = -1;
  // Returns the class of a row, or kIgnored. Code::arg if the label is neither a class nor the ignored one.
  std::int64_t at(const Launch &launch, std::int64_t row) const;
  // Counts the rows that are not ignored.
  std::int64_t counted(const Launch &launch) const;

 private:
  std::size_t labels_;
  DType dtype_;
  std::int64_t rows_, classes_;
  std::optional<std::int64_t> ignored_;
  std::string subject_;
};

// Returns log(sum(exp(x))) of a row of any float type (floats.h). Runs of fixed length are summed in float32, and the
// runs' sums in double.
template <typename T>
double log_sum_exp(const T *x, std::int64_t count);
// Computes to = factor * exp(x - lse), minus `factor` at `label`: the gradient of a row's loss. `to` may be x.
template <typename T>
void softmax_gradient(const T *x, std::int64_t count, float lse, float factor, std::int64_t label, T *to);

}  // namespace protrain::backend::cpu
