// Reads the data of the next batch on a thread of its own, while the session works on the present batch.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <vector>

#include "array_input.h"

namespace tool {

// The data of one batch.
struct BatchData {
  std::vector<InputValue> values;
  std::int64_t largest_token = 0;
  std::size_t largest_from = 0;  // the token file that has it
  double seconds = 0;            // that reading took
};

class ReadAhead {
 public:
  using Read = std::function<BatchData(std::uint64_t batch)>;

  // `read` is called by one thread at a time.
  explicit ReadAhead(Read read) : read_(std::move(read)) {}

  // Returns the data of `batch`, and begins to read the data of `next` on another thread. Starts no thread if reading
  // `batch` took less time than a thread costs. In this case the next call reads the data of its batch itself. Throws
  // what reading `batch` threw.
  BatchData take(std::uint64_t batch, std::optional<std::uint64_t> next);

  double waited() const { return waited_; }  // seconds in take(), in all

 private:
  BatchData timed_read(std::uint64_t batch) const;

  Read read_;
  std::future<BatchData> ahead_;
  std::uint64_t ahead_of_ = 0;  // the batch of ahead_
  double waited_ = 0;
};

}  // namespace tool
