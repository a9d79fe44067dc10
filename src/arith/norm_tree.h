// The tree in which squared norms are summed. Its leaves are the sums over parts of a tensor, in order. Neighbours are
// added in pairs, then neighbouring pairs, and so on; a node without a right neighbour goes up unchanged. An aligned
// run of 2^k leaves is a subtree. So the sum over a piece of the tensor can be computed apart, and the pieces joined
// later have the bits of the whole.
#pragma once

#include <bit>
#include <cstdint>

namespace protrain::arith {

// Elements of the smallest piece of a tensor whose squared norm can be computed apart. Larger pieces have 2^k times as
// many. The parts of every device divide it.
inline constexpr std::int64_t kNormPiece = 16 << 10;

inline bool is_norm_piece(std::int64_t elements) {
  return elements >= kNormPiece && std::has_single_bit(static_cast<std::uint64_t>(elements));
}

// Returns the sum of the tree with these leaves; 0 if there are none.
inline double tree_sum(const double *leaves, std::int64_t count) {
  if (count <= 1) return count == 1 ? leaves[0] : 0;
  const auto left = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(count - 1)));
  return tree_sum(leaves, left) + tree_sum(leaves + left, count - left);
}

}  // namespace protrain::arith
