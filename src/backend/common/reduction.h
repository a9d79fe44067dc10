// The attributes and inputs that define the loss of CrossEntropy and LinearCrossEntropy: the reduction, the extra terms
// of a row's loss, and distillation from a teacher.
#pragma once

#include <cstdint>

#include "arith/cross_entropy.h"
#include "arith/distillation.h"
#include "backend/request.h"
#include "base/error.h"

namespace protrain::backend {

enum class Reduction : std::uint8_t { mean, sum, none };

inline Reduction reduction_of(const KernelRequest &request) {
  const std::string name = request.node.attributes.text("reduction", "mean");
  if (name == "mean") return Reduction::mean;
  if (name == "sum") return Reduction::sum;
  require(name == "none", Code::unsupported, subject(request), "reduction \"{}\" is none of mean, sum, none", name);
  return Reduction::none;
}

inline arith::RowLoss row_loss_of(const KernelRequest &request) {
  const graph::Attributes &attributes = request.node.attributes;
  return {attributes.real("label_smoothing", 0), attributes.real("z_loss", 0), attributes.real("focal", 0)};
}

// True if the loss distills from a teacher. Then input number `targets` holds the logits of the teacher model. Else it
// holds labels.
inline bool has_teacher(const KernelRequest &request, std::size_t targets) {
  return is_float(request.inputs.at(targets).dtype);
}

inline arith::Distillation distillation_of(const KernelRequest &request) {
  return arith::Distillation(request.node.attributes.real("temperature", 1));
}

}  // namespace protrain::backend
