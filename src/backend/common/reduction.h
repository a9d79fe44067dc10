// The attribute `reduction` of CrossEntropy and LinearCrossEntropy.
#pragma once

#include <cstdint>

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

}  // namespace protrain::backend
