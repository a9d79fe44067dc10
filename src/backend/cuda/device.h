// NVIDIA's GPUs as devices. A device has one arena, a stream for each queue, and a team of threads for updates on the
// host. launch() appends a kernel to a stream and returns. Errors of kernels are thrown where a thread waits for the
// device. A recorded step is a CUDA graph.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace protrain::backend::cuda {

// Opens the device "cuda:N". Throws Code::device if there is no such device or no driver.
std::unique_ptr<Device> open(const std::string &device, int threads, bool tf32);

}  // namespace protrain::backend::cuda
