// Times work on a device and on its host, several times over.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "backend/optimizer_numbers.h"

namespace protrain::measure {

// The operands of a kernel. Holds the lists of pointers, because a backend::Launch only refers to such lists.
struct LaunchOperands {
  std::vector<void *> inputs = {}, outputs = {};
  void *scratch = nullptr;

  operator backend::Launch() const {
    static const backend::StepScalars kScalars = {.update = {backend::numbers_of({}, 1e-3, 1)}};
    return {.inputs = inputs, .outputs = outputs, .scratch = scratch, .scalars = &kScalars};
  }
  void on(backend::Device &device, backend::Kernel &kernel) const { device.launch(Queue::compute, kernel, *this); }
};

// Seconds since some fixed moment.
using Now = std::function<double()>;
double steady_now();

class Stopwatch {
 public:
  Stopwatch(backend::Device &device, Now now) : device_(device), now_(std::move(now)) {}

  // Returns the seconds of one undisturbed `launch`: the least of up to three runs, after a warm-up. A run repeats the
  // launch for a few milliseconds, within one call of Device::run_step(). A long launch gets fewer than three runs, and
  // its warm-up counts as one of them.
  double quickest(const std::function<void()> &launch) const;
  // Like quickest(), but for `work` that the calling thread does itself, without Device::run_step().
  double quickest_here(const std::function<void()> &work) const;
  // Returns the seconds of a single `launch`, after a warm-up: the order of magnitude, at little cost.
  double roughly(const std::function<void()> &launch) const;
  // Returns the seconds of one `launch` after the device has repeated it for at least `seconds`.
  double after(double seconds, const std::function<void()> &launch) const;

 private:
  using Run = std::function<void(std::size_t times)>;
  Run on_device(const std::function<void()> &launch) const;
  double seconds_each(const Run &run, std::size_t times) const;
  double quickest_run(const Run &run) const;

  backend::Device &device_;
  const Now now_;
};

}  // namespace protrain::measure
