// The backends that are linked into the library. Each defines `open` in a namespace of its own; registry.cpp calls it.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"

namespace protrain::backend {

namespace cpu {
// Device "cpu" with a team of so many threads. Code::unsupported where `tf32` is asked for.
std::unique_ptr<Device> open(const std::string &device, int threads, bool tf32);
}  // namespace cpu

}  // namespace protrain::backend
