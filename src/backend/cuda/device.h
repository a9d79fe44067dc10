// A GPU of NVIDIA's as a device: one arena, a stream for each queue. What is launched is only appended; errors of it
// come out where somebody waits.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace protrain::backend::cuda {

// "cuda:N"; Code::device where there is no such device or no driver.
std::unique_ptr<Device> open(const std::string &device);

}  // namespace protrain::backend::cuda
