// ScratchLayout: the offsets of the parts of a kernel's scratch.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/queue.h"
#include "base/shape.h"

namespace protrain::backend {

// Divides scratch into parts, each of which begins on a cache line of its own. take(), room() and bytes() each add a
// part and return the part's offset.
class ScratchLayout {
 public:
  template <typename E>
  std::uint64_t take(std::int64_t count) {
    return bytes(checked_multiply(static_cast<std::uint64_t>(count), sizeof(E)));
  }
  // Adds a part for `count` results that are computed in float32 and then rounded to T. The part is empty if T is
  // float32, because then nothing is rounded.
  template <typename T>
  std::uint64_t room(std::int64_t count) {
    return take<T>(std::is_same_v<T, float> ? 0 : count);
  }
  std::uint64_t bytes(std::uint64_t count) {
    const std::uint64_t at = total_;
    total_ = round_up(checked_add(total_, count), kAlignment);
    return at;
  }
  std::uint64_t total() const { return total_; }

 private:
  std::uint64_t total_ = 0;
};

}  // namespace protrain::backend
