// The cpu as a device: the host's memory, and one team of threads that runs every queue's launches in order.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/cpu/kernel.h"

namespace protrain::backend {

std::unique_ptr<Device> open_cpu(int threads);

// optimizer.cpp
std::unique_ptr<CpuKernel> make_update(const UpdateRequest &request);
std::unique_ptr<CpuKernel> make_check(DType dtype, const std::vector<std::uint32_t> &marks);

}  // namespace protrain::backend
