#include "read_ahead.h"

#include <chrono>
#include <system_error>

namespace tool {

BatchData ReadAhead::take(std::uint64_t batch, std::optional<std::uint64_t> next) {
  const auto start = std::chrono::steady_clock::now();
  if (ahead_.valid() && ahead_of_ != batch) ahead_ = {};  // waits for the thread
  BatchData data = ahead_.valid() ? ahead_.get() : read_(batch);
  waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!next) return data;
  try {
    ahead_ = std::async(std::launch::async, read_, *next);
    ahead_of_ = *next;
  } catch (const std::system_error &) {  // the system refuses a thread: the next call reads
  }
  return data;
}

}  // namespace tool
