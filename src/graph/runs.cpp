// Copies between strided layouts, for any element type.
#include "graph/runs.h"

#include <cstring>

namespace protrain::graph {

namespace {

template <std::size_t Bytes>
void copy_run(const std::byte *from, std::int64_t from_step, std::byte *to, std::int64_t to_step, std::int64_t count) {
  constexpr auto kBytes = static_cast<std::int64_t>(Bytes);
  for (std::int64_t i = 0; i < count; ++i) std::memcpy(to + i * to_step * kBytes, from + i * from_step * kBytes, Bytes);
}

}  // namespace

void copy_elements(const Shape &shape, std::size_t element, const StridedSource &from, const StridedTarget &to) {
  Runs<2> runs{shape, {from.strides, to.strides}};
  runs.simplify();
  const auto size = static_cast<std::int64_t>(element);
  const auto copy = element == 1 ? copy_run<1> : element == 2 ? copy_run<2> : element == 4 ? copy_run<4> : copy_run<8>;
  runs.for_each([&](std::int64_t count, const auto &offsets, const auto &steps) {
    const std::byte *source = from.at + offsets[0] * size;
    std::byte *target = to.at + offsets[1] * size;
    if (steps[0] == 1 && steps[1] == 1)
      std::memcpy(target, source, static_cast<std::size_t>(count * size));
    else
      copy(source, steps[0], target, steps[1], count);
  });
}

}  // namespace protrain::graph
