#include "measure/stopwatch.h"

#include <algorithm>

namespace protrain::measure {

namespace {

constexpr std::size_t kMostTimes = 200;
constexpr int kRuns = 3;

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

double Stopwatch::quickest(double at_least, const std::function<void()> &launch) {
  run(1, launch);
  const double once = std::max(run(1, launch), 1e-9);
  const auto times = static_cast<std::size_t>(std::clamp(at_least / once, 1.0, static_cast<double>(kMostTimes)));
  double least = run(times, launch);
  for (int again = 1; again < kRuns; ++again) least = std::min(least, run(times, launch));
  return least;
}

}  // namespace protrain::measure
