// Times what is launched on a device, several times over.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "backend/backend.h"

namespace protrain::measure {

// Operands of a kernel, with the lists that backend::Launch only points to.
struct Launch {
  std::vector<void *> inputs = {}, outputs = {};
  void *scratch = nullptr;

  void on(backend::Device &device, backend::Kernel &kernel) const {
    static constexpr backend::StepScalars kScalars = {.learning_rate = 1e-3, .beta1_power = 0.9, .beta2_power = 0.99};
    device.launch(Queue::compute, kernel,
                  {.inputs = inputs, .outputs = outputs, .scratch = scratch, .scalars = &kScalars});
  }
};

class Stopwatch {
 public:
  explicit Stopwatch(backend::Device &device) : device_(device) {}

  // Seconds of one `launch` where nothing disturbs it: the least of three runs of as many as take `at_least` seconds,
  // after one that nobody counts.
  double quickest(double at_least, const std::function<void()> &launch);

 private:
  double run(std::size_t times, const std::function<void()> &launch);

  backend::Device &device_;
};

}  // namespace protrain::measure
