// Deadline: the point in time at which a wait ends.
#pragma once

#include <algorithm>
#include <chrono>

namespace protrain::comm::gloo {

class Deadline {
 public:
  explicit Deadline(std::chrono::milliseconds timeout) : end_(std::chrono::steady_clock::now() + timeout) {}
  bool over() const { return std::chrono::steady_clock::now() >= end_; }
  // Returns the time until the deadline, but at least 1 ms, because Gloo takes no wait of 0 ms.
  std::chrono::milliseconds left() const {
    const auto left = end_ - std::chrono::steady_clock::now();
    return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(left), std::chrono::milliseconds(1));
  }

 private:
  const std::chrono::steady_clock::time_point end_;
};

}  // namespace protrain::comm::gloo
