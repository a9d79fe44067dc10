// Shared by tests of a device's queues: arrays in the device's arena, a step, and numbers to fill arrays with.
#pragma once

#include <cmath>
#include <vector>

#include "backend/optimizer_numbers.h"
#include "one_node.h"

namespace protrain::test {

// Places arrays one after another in a device's arena.
class Arena {
 public:
  explicit Arena(const Machine &machine) : device_(*machine.device), arena_(machine.arena) {}

  template <typename T>
  T *put(const std::vector<T> &values) {
    std::byte *at = arena_ + used_;
    used_ = round_up(used_ + values.size() * sizeof(T), kAlignment);
    device_.write(at, values.data(), values.size() * sizeof(T));
    return reinterpret_cast<T *>(at);
  }
  template <typename T>
  std::vector<T> take(const T *from, std::size_t count) const {
    std::vector<T> values(count);
    device_.read(values.data(), from, count * sizeof(T));
    return values;
  }

 private:
  backend::Device &device_;
  std::byte *arena_;
  std::uint64_t used_ = 0;
};

template <typename Issue>
void step(backend::Device &device, Issue issue) {
  device.run_step([](void *self) { (*static_cast<Issue *>(self))(); }, &issue);
}

inline std::vector<float> wave(double frequency, std::size_t count = 1003) {
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(static_cast<float>(std::sin(frequency * double(i + 1))));
  return values;
}

// The scalars of step t, counted from 1.
inline backend::StepScalars numbers(const backend::Optimizer &optimizer, int t) {
  backend::StepScalars scalars = {.update = {backend::numbers_of(optimizer, 0.01 * t, t)}};
  scalars.step = static_cast<std::uint64_t>(t);
  scalars.seed = 11;
  return scalars;
}

}  // namespace protrain::test
