// What the two losses share: labels that are checked as they are read, and the arithmetic of one row of logits.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/cpu/kernel.h"

namespace protrain::backend {

// How a loss reads its labels: type, number of classes, what to ignore.
class Targets {
 public:
  // `labels` is the index of the labels among the inputs.
  Targets(const KernelRequest &request, std::size_t labels, std::int64_t classes);

  static constexpr std::int64_t kIgnored = -1;
  // The class of row i or kIgnored; Code::arg where the label is neither a class nor the ignored one.
  std::int64_t at(const Launch &launch, std::int64_t row) const;
  // Rows that are not ignored.
  std::int64_t counted(const Launch &launch) const;

 private:
  std::size_t labels_;
  DType dtype_;
  std::int64_t rows_, classes_;
  std::optional<std::int64_t> ignored_;
  std::string subject_;
};

enum class Reduction : std::uint8_t { mean, sum, none };
Reduction reduction_of(const KernelRequest &request);

// Of rows of any float type (floats.h). log(sum(exp(x))), the sum in double over runs of fixed length.
template <typename T>
double log_sum_exp(const T *x, std::int64_t count);
// to = factor * exp(x - lse), less `factor` at `label`: the gradient of a row's loss. May be in place.
template <typename T>
void softmax_gradient(const T *x, std::int64_t count, float lse, float factor, std::int64_t label, T *to);

}  // namespace protrain::backend
