#include "measure/stopwatch.h"

#include <algorithm>
#include <cmath>

#include "backend/issue.h"

namespace protrain::measure {

namespace {

constexpr std::size_t kMostTimes = 200;
constexpr int kRuns = 3;
constexpr double kSecondsOfARun = 4e-3;  // a run repeats work about so long, at most kMostTimes times
constexpr double kSecondsOfAStep = 0.1;  // of each step that after() repeats
constexpr double kEnough = 3e-2;         // seconds of all runs; over so long a time a disturbance hardly counts

void repeat(std::size_t times, const std::function<void()> &work) {
  for (std::size_t i = 0; i < times; ++i) work();
}

}  // namespace

double steady_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Stopwatch::seconds_each(const Run &run, std::size_t times) const {
  const double start = now_();
  run(times);
  return (now_() - start) / static_cast<double>(times);
}

double Stopwatch::quickest_run(const Run &run) const {
  // The warm-up counts too: it is the better measurement if the run after it is disturbed.
  const double warm_up = seconds_each(run, 1), second = seconds_each(run, 1);
  const double once = std::max(std::min(warm_up, second), 1e-9);
  const auto times = static_cast<std::size_t>(std::clamp(kSecondsOfARun / once, 1.0, static_cast<double>(kMostTimes)));
  double least = times == 1 ? once : seconds_each(run, times), spent = least * static_cast<double>(times);
  for (int again = 1; again < kRuns && spent < kEnough; ++again) {
    const double next = seconds_each(run, times);
    least = std::min(least, next);
    spent += next * static_cast<double>(times);
  }
  return least;
}

Stopwatch::Run Stopwatch::on_device(const std::function<void()> &launch) const {
  return [this, &launch](std::size_t times) { backend::run_step(device_, [&] { repeat(times, launch); }); };
}

double Stopwatch::quickest(const std::function<void()> &launch) const { return quickest_run(on_device(launch)); }

double Stopwatch::quickest_here(const std::function<void()> &work) const {
  return quickest_run([&](std::size_t times) { repeat(times, work); });
}

double Stopwatch::after(double seconds, const std::function<void()> &launch) const {
  const Run run = on_device(launch);
  const double start = now_();
  seconds_each(run, 1);
  double each = std::max(seconds_each(run, 1), 1e-9);
  do each = seconds_each(run, static_cast<std::size_t>(std::ceil(kSecondsOfAStep / each)));
  while (now_() - start < seconds);
  return each;
}

double Stopwatch::roughly(const std::function<void()> &launch) const {
  const Run run = on_device(launch);
  seconds_each(run, 1);
  return seconds_each(run, 1);
}

}  // namespace protrain::measure
