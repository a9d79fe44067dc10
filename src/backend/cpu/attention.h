// What attention and its gradient share: sizes, masks, tiles, and the products over them.
//
// Both work on tiles of as many keys as queries (the last have fewer), with scores transposed, (keys, queries): what
// belongs to one query lies in one vector lane, so that maxima and sums over keys are plain vector operations in key
// order. Scores, sums and running results are float32. The operands of products are as narrow as the inputs: what is
// packed of them, probabilities and the gradients of scores.
#pragma once

#include <vector>

#include "backend/attention_shape.h"
#include "backend/cpu/floats.h"
#include "backend/cpu/gemm.h"

namespace protrain::backend {

inline constexpr std::int64_t kMostEdge = 128;

struct TiledAttention : AttentionShape {
  // The bias is float32, or of the operands' type.
  TiledAttention(const KernelRequest &request, std::size_t first, std::size_t bias);

  // Of one head; nullptr: none.
  const std::byte *bias_of(const Launch &launch, std::int64_t b, std::int64_t h) const;
  // Tiles of a row of queries, and queries or keys of the one that starts at `at`.
  std::int64_t query_tiles() const { return (queries + edge - 1) / edge; }
  Range query_tile(std::int64_t tile) const { return {tile * edge, std::min(queries, (tile + 1) * edge)}; }
  Range key_tile(std::int64_t tile) const { return {tile * edge, std::min(keys, (tile + 1) * edge)}; }
  // Key tiles that some query of the tile sees.
  Range visible_key_tiles(Range tile) const;

  std::int64_t edge;  // of a tile: its queries, and its keys; by shapes alone
  std::size_t bias_input;
  DType bias_type = DType::none;
};

// One product for each combination of full and last tiles.
class TileProducts {
 public:
  // `shape` gives the product of a tile of (queries, keys).
  template <typename ShapeOf>
  TileProducts(const TiledAttention &a, int seats, ShapeOf &&shape) {
    for (std::int64_t queries : {std::min(a.queries, a.edge), a.queries % a.edge})
      for (std::int64_t keys : {std::min(a.keys, a.edge), a.keys % a.edge})
        products_.emplace_back(shape(queries, keys), seats);
    full_queries_ = std::min(a.queries, a.edge);
    full_keys_ = std::min(a.keys, a.edge);
    for (const Product &product : products_) scratch_bytes_ = std::max(scratch_bytes_, product.scratch_bytes());
  }
  Product &of(Range queries, Range keys) {
    return products_[(queries.size() == full_queries_ ? 0 : 2) + (keys.size() == full_keys_ ? 0 : 1)];
  }
  std::uint64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  std::int64_t full_queries_, full_keys_;
  std::vector<Product> products_;
  std::uint64_t scratch_bytes_ = 0;
};

// A tile of raw scores (keys, queries) and where it lies.
struct ScoreTile {
  float *scores;
  Range queries, keys;
  const std::byte *bias;  // of this batch and head; nullptr: none
  float *slope;           // derivative of the softcap, (keys, queries); nullptr: not wanted
};
// Scales, caps, adds the bias, and sets what is not visible to -inf.
void finish_scores(const TiledAttention &shape, const ScoreTile &tile);

// Float32 results in the type they are stored in: as they lie, or rounded into `room`.
inline const float *stored(const float *results, std::int64_t, float *) { return results; }
template <typename T>
const T *stored(const float *results, std::int64_t count, T *room) {
  narrow(results, room, count);
  return room;
}

// Hands out pieces of a member's scratch; each starts on a line of its own.
class ScratchLayout {
 public:
  template <typename E>
  std::uint64_t take(std::int64_t count) {
    return bytes(static_cast<std::uint64_t>(count) * sizeof(E));
  }
  // Room for what is stored of float32 results, where that is another type.
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
