#include "measure/stopwatch.h"

#include <algorithm>
#include <array>

namespace protrain::measure {

namespace {

constexpr std::size_t kMostTimes = 200;

struct Series {
  const std::function<void()> &launch;
  std::size_t times;
};

}  // namespace

double Stopwatch::run(std::size_t times, const std::function<void()> &launch) {
  Series series{launch, times};
  const auto start = std::chrono::steady_clock::now();
  device_.run_step(
      [](void *argument) {
        const auto &all = *static_cast<Series *>(argument);
        for (std::size_t i = 0; i < all.times; ++i) all.launch();
      },
      &series);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / static_cast<double>(times);
}

double Stopwatch::median(double at_least, const std::function<void()> &launch) {
  run(1, launch);
  const double once = std::max(run(1, launch), 1e-9);
  const auto times = static_cast<std::size_t>(std::clamp(at_least / once, 1.0, static_cast<double>(kMostTimes)));
  std::array<double, 3> seconds{};
  for (double &s : seconds) s = run(times, launch);
  std::ranges::sort(seconds);
  return seconds[1];
}

}  // namespace protrain::measure
