// The targets of CrossEntropy and LinearCrossEntropy, which are checked as they are read, and the loss of one row of
// logits against its label. teacher.h has the loss of a row against the logits of a teacher model.
#pragma once

#include <cstdint>
#include <optional>

#include "arith/cross_entropy.h"
#include "backend/common/reduction.h"
#include "backend/cpu/kernel.h"
#include "backend/cpu/log_sum_exp.h"
#include "backend/cpu/teacher.h"

namespace protrain::backend::cpu {

// The class of a row, and the factor of its loss.
struct Target {
  static constexpr std::int64_t kIgnored = -1;

  std::int64_t label;  // kIgnored: the row does not count
  float weight;
};

// The targets of all rows: labels, or the logits of a teacher model (distillation). With labels, this class also keeps
// their weights, the number of classes, the label that is ignored, and `terms`, which say how a row's loss is computed.
class Targets {
 public:
  // `labels` and `weights` are indices among the inputs. Without weights every row weighs 1.
  Targets(const KernelRequest &request, std::size_t labels, std::size_t weights, std::int64_t classes);

  // Returns the target of a row. A row of weight 0 is ignored. Call it only without a teacher. Code::arg if the label
  // is neither a class nor the ignored one.
  Target at(const Launch &launch, std::int64_t row) const;
  // Returns the sum of the weights of the rows that are not ignored. With a teacher every row weighs 1.
  double total(const Launch &launch) const;

  const arith::RowLoss terms;
  const std::optional<Teacher> teacher;  // set if a teacher takes the place of labels

 private:
  std::size_t labels_, weights_;
  DType dtype_;
  std::int64_t rows_, classes_;
  std::optional<std::int64_t> ignored_;
  std::string subject_;
};

// Returns the loss of a row of `count` logits, whose log(sum(exp(x))) is `lse`.
template <typename T>
double row_loss(const arith::RowLoss &terms, const T *x, std::int64_t count, double lse, std::int64_t label);
// Computes the gradient of a row's loss against its label, times the factor that `slopes` contains. `to` may be x.
template <typename T>
void row_gradient(const arith::RowSlopes &slopes, const T *x, std::int64_t count, float lse, std::int64_t label, T *to);

}  // namespace protrain::backend::cpu
