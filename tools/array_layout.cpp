#include "array_layout.h"

#include <fmt/ranges.h>

namespace tool {

std::size_t element_bytes(protrain_dtype dtype) {
  switch (dtype) {
    case PROTRAIN_INT8:
    case PROTRAIN_UINT8:
    case PROTRAIN_BOOL:
      return 1;
    case PROTRAIN_FLOAT16:
    case PROTRAIN_BFLOAT16:
    case PROTRAIN_INT16:
    case PROTRAIN_UINT16:
      return 2;
    case PROTRAIN_FLOAT64:
    case PROTRAIN_INT64:
    case PROTRAIN_UINT64:
      return 8;
    default:
      return 4;
  }
}

std::string tuple_text(const std::vector<std::int64_t> &shape) { return fmt::format("({})", fmt::join(shape, ", ")); }

bool takes_bytes(protrain_dtype dtype, const std::vector<std::int64_t> &shape, std::uint64_t bytes) {
  std::uint64_t taken = element_bytes(dtype);
  bool fits = true;
  // Multiplies from the last axis to the first. So an overflow among the other axes is found even if the first axis has
  // length 0, which makes the whole product 0.
  for (std::size_t i = shape.size(); i-- > 0;)
    fits &= !__builtin_mul_overflow(taken, static_cast<std::uint64_t>(shape[i]), &taken);
  return fits && taken == bytes;
}

}  // namespace tool
