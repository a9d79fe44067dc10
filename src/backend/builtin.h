// The backends that are linked into the library. Each defines `open` in a namespace of its own, and registry.cpp calls
// it.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"

namespace protrain::backend {

namespace cpu {
// Opens device "cpu" with a team of `threads` threads. Code::unsupported if `tf32` is true.
std::unique_ptr<Device> open(const std::string &device, int threads, bool tf32);
}  // namespace cpu

}  // namespace protrain::backend
