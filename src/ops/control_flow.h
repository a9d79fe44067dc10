// Operators that contain graphs, which are called bodies (graph/bodies.h).
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace protrain::ops {

inline bool is_control_flow(std::string_view op) {
  constexpr std::array<std::string_view, 4> all = {"If", "Loop", "Scan", "SequenceMap"};
  return std::ranges::find(all, op) != all.end();
}

}  // namespace protrain::ops
