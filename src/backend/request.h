// Short functions that every kernel uses to read its request and its launch.
#pragma once

#include "backend/backend.h"

namespace protrain::backend {

template <typename T>
const T *input(const Launch &launch, std::size_t i) {
  return static_cast<const T *>(launch.inputs[i]);
}
template <typename T>
T *output(const Launch &launch, std::size_t i) {
  return static_cast<T *>(launch.outputs[i]);
}
// optional_input() and optional_output() return nullptr if operand i is absent, or if the list ends before
// index i.
template <typename T>
const T *optional_input(const Launch &launch, std::size_t i) {
  return i < launch.inputs.size() ? input<T>(launch, i) : nullptr;
}
template <typename T>
T *optional_output(const Launch &launch, std::size_t i) {
  return i < launch.outputs.size() ? output<T>(launch, i) : nullptr;
}
inline bool has_input(const KernelRequest &request, std::size_t i) {
  return i < request.inputs.size() && request.inputs[i].dtype != DType::none;
}
inline bool has_output(const KernelRequest &request, std::size_t i) {
  return i < request.outputs.size() && request.outputs[i].dtype != DType::none;
}
inline const std::string &subject(const KernelRequest &request) { return request.node.subject(); }

}  // namespace protrain::backend
