// Shapes and checked arithmetic on them. Every size from a file goes through here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace protrain {

using Shape = std::vector<std::int64_t>;  // every dim >= 0

// Return a * b and a + b. Code::limit on overflow.
std::uint64_t checked_multiply(std::uint64_t a, std::uint64_t b);
std::uint64_t checked_add(std::uint64_t a, std::uint64_t b);

std::int64_t element_count(const Shape &shape);             // 1 for a scalar; Code::shape on overflow or a negative dim
std::uint64_t byte_count(DType dtype, const Shape &shape);  // same errors as element_count
std::string to_text(const Shape &shape);                    // "[2, 32, 64]"
std::vector<std::int64_t> row_major_strides(const Shape &shape);  // in elements

// Returns the shape that two operands broadcast to by ONNX's rule: axes are aligned from the right, and an axis of
// size 1 is repeated. Code::shape with `subject` if the shapes do not match.
Shape broadcast(const Shape &a, const Shape &b, const std::string &subject);

// Maps `axis` from [-rank, rank) to [0, rank). Code::shape with `subject` if it is outside.
std::size_t resolve_axis(std::int64_t axis, std::size_t rank, const std::string &subject);

constexpr std::int64_t divided_up(std::int64_t count, std::int64_t by) { return count / by + (count % by > 0); }
inline std::uint64_t round_up(std::uint64_t bytes, std::uint64_t multiple) {
  return checked_add(bytes, multiple - 1) / multiple * multiple;
}

}  // namespace protrain
