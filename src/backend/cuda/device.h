// NVIDIA's GPUs as devices. A device has one arena, a stream for each queue, and a team of threads for updates on the
// host. launch() only appends; errors come out where a thread waits. A recorded step is a CUDA graph.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace protrain::backend::cuda {

// Opens "cuda:N". Code::device if there is no such device or no driver.
std::unique_ptr<Device> open(const std::string &device, int threads, bool tf32);

}  // namespace protrain::backend::cuda
