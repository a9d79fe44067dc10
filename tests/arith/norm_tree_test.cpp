// The tree in which the squared norms of a tensor's parts are added.
#include "arith/norm_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace {

namespace arith = protrain::arith;

std::vector<double> leaves(std::int64_t count) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(std::abs(std::sin(0.7 * static_cast<double>(i + 1))));
  return values;
}

TEST(NormTree, AddsNeighboursFirst) {
  const std::vector<double> x = leaves(7);
  EXPECT_EQ(arith::tree_sum(nullptr, 0), 0);
  EXPECT_EQ(arith::tree_sum(x.data(), 1), x[0]);
  EXPECT_EQ(arith::tree_sum(x.data(), 5), ((x[0] + x[1]) + (x[2] + x[3])) + x[4]);
  EXPECT_EQ(arith::tree_sum(x.data(), 7), ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + x[6]));
}

TEST(NormTree, AlignedRunsAreSubtrees) {
  for (std::int64_t count : {1, 5, 64, 1000, 1025}) {
    const std::vector<double> x = leaves(count);
    for (std::int64_t run = 1; run <= 2048; run *= 2) {
      std::vector<double> sums;
      for (std::int64_t first = 0; first < count; first += run)
        sums.push_back(arith::tree_sum(x.data() + first, std::min(run, count - first)));
      EXPECT_EQ(arith::tree_sum(sums.data(), static_cast<std::int64_t>(sums.size())), arith::tree_sum(x.data(), count))
          << count << " in runs of " << run;
    }
  }
}

TEST(NormTree, PiecesAreTheSmallestTimesAPowerOfTwo) {
  for (std::int64_t piece : {arith::kNormPiece, 2 * arith::kNormPiece, std::int64_t{1} << 40})
    EXPECT_TRUE(arith::is_norm_piece(piece)) << piece;
  for (std::int64_t piece : {std::int64_t{0}, -arith::kNormPiece, arith::kNormPiece / 2, 3 * arith::kNormPiece})
    EXPECT_FALSE(arith::is_norm_piece(piece)) << piece;
}

}  // namespace
