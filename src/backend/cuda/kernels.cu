// The look-up of a CUDA kernel's factory by its operator.
#include <algorithm>
#include <initializer_list>

#include "backend/cuda/kernel.h"

namespace protrain::backend::cuda {

namespace {
bool contains(std::initializer_list<std::string_view> operators, std::string_view op) {
  return std::ranges::find(operators, op) != operators.end();
}
}  // namespace

Factory find_kernel(std::string_view op) {
#define PROTRAIN_FIND(MAKE, ...) \
  if (contains({__VA_ARGS__}, op)) return MAKE;
  PROTRAIN_KERNELS(PROTRAIN_FIND)
#undef PROTRAIN_FIND
  return nullptr;
}

}  // namespace protrain::backend::cuda
