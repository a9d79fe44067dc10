// The order in which a squared norm is summed: a binary tree. Its leaves are the sums over parts of a tensor, in order.
// Neighbouring leaves are added in pairs, then neighbouring pairs, and so on; a node without a right neighbour goes up
// unchanged. 2^k neighbouring leaves are a subtree if the index of the first is a multiple of 2^k. So each piece of a
// tensor can be summed alone, and the joined sums of the pieces have the bits of the whole tensor's sum.
#pragma once

#include <bit>
#include <cstdint>

namespace protrain::arith {

// The number of elements in the smallest piece of a tensor whose squared norm can be computed alone. Larger pieces have
// 2^k times as many. On every device a leaf covers a number of elements that divides kNormPiece.
inline constexpr std::int64_t kNormPiece = 16 << 10;

inline bool is_norm_piece(std::int64_t elements) {
  return elements >= kNormPiece && std::has_single_bit(static_cast<std::uint64_t>(elements));
}

// Returns the sum of `count` leaves, added in the order of the tree; 0 if there are none.
inline double tree_sum(const double *leaves, std::int64_t count) {
  if (count <= 1) return count == 1 ? leaves[0] : 0;
  const auto left = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(count - 1)));
  return tree_sum(leaves, left) + tree_sum(leaves + left, count - left);
}

}  // namespace protrain::arith
