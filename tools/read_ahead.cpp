#include "read_ahead.h"

#include <system_error>

#include "clock.h"

namespace tool {

namespace {

constexpr double kThreadCosts = 100e-6;  // seconds; a new thread begins to read in less

}  // namespace

BatchData ReadAhead::timed_read(std::uint64_t batch) const {
  const double start = seconds_now();
  BatchData data = read_(batch);
  data.seconds = seconds_now() - start;
  return data;
}

BatchData ReadAhead::take(std::uint64_t batch, std::optional<std::uint64_t> next) {
  const double start = seconds_now();
  if (ahead_.valid() && ahead_of_ != batch) ahead_ = {};  // waits for the thread
  BatchData data = ahead_.valid() ? ahead_.get() : timed_read(batch);
  waited_ += seconds_now() - start;
  if (!next || data.seconds < kThreadCosts) return data;
  try {
    ahead_ = std::async(std::launch::async, [this, next] { return timed_read(*next); });
    ahead_of_ = *next;
  } catch (const std::system_error &) {  // the system refuses a thread: the next call reads
  }
  return data;
}

}  // namespace tool
