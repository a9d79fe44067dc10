// The order in which a squared norm is summed: a binary tree. A leaf is the sum over a small part of a tensor, and the
// leaves have the order of these parts. Neighbouring leaves are added in pairs, then neighbouring sums, and so on. A
// node without a right neighbour goes up unchanged.
//   A piece of 2^k neighbouring leaves is a subtree if the index of its first leaf is a multiple of 2^k. So a tensor
// can be summed piece by piece, and the joined sums of the pieces have the bits of the whole tensor's sum.
#pragma once

#include <bit>
#include <cstdint>

namespace protrain::arith {

// The number of elements of the smallest piece whose squared norm can be computed alone. A larger piece has 2^k times
// as many elements. On every device kNormPiece is a multiple of the number of elements of a leaf, so a piece consists
// of whole leaves.
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
