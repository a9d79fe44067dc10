// A GPU of NVIDIA's as a device: one arena, a stream for each queue, and a team of threads for Updates on the host.
// What is launched is only appended; errors of it come out where somebody waits. A step that is recorded is a graph of
// CUDA's.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace protrain::backend::cuda {

// "cuda:N"; Code::device where there is no such device or no driver.
std::unique_ptr<Device> open(const std::string &device, int threads, bool tf32);

}  // namespace protrain::backend::cuda
