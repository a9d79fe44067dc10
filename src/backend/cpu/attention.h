// The sizes, masks, tiles and products that attention and its gradient share.
//
// A tile has `edge` queries and `edge` keys; the last tiles have fewer. Scores are transposed, (keys, queries), so that
// each query has a vector lane of its own. Maxima and sums over keys are then plain vector operations in key order.
// Scores, sums and running results are float32. The operands of products have the type of the node's inputs. These
// operands are the packed keys, queries and values, the probabilities, and the gradients of scores.
#pragma once

#include <algorithm>
#include <vector>

#include "backend/common/attention_shape.h"
#include "backend/common/scratch_layout.h"
#include "backend/cpu/floats.h"
#include "backend/cpu/tile_product.h"
#include "backend/cpu/transpose.h"

namespace protrain::backend::cpu {

inline constexpr std::int64_t kMostEdge = 128;

struct TiledAttention : AttentionShape {
  // `first` is the index of q among the inputs, and `bias` is the index of the bias. The bias is float32 or of the
  // operands' type. If documents are packed, the input after the bias holds, for each query, the first key of its
  // document.
  TiledAttention(const KernelRequest &request, std::size_t first, std::size_t bias);

  // Returns the bias of one head; nullptr if there is none.
  const std::byte *bias_of(const Launch &launch, std::int64_t b, std::int64_t h) const;
  // Calls visit(rows) for each document in sample `b`, with the document's rows. Each document begins a new tile, and
  // its last tile is filled up with zeros. So the results of a document are the same bits wherever the document lies.
  template <typename Visit>
  void for_each_document(const Launch &launch, std::int64_t b, Visit &&visit) const {
    const std::int64_t *first_key = input<std::int64_t>(launch, bias_input + 1) + b * query_rows;
    for (std::int64_t begin = 0, end = 1; begin < query_rows; begin = end++) {
      while (end < query_rows && first_key[end] != end) ++end;
      visit(Range{begin, end});
    }
  }
  // tiles_of() returns the number of tiles for `rows` queries or keys. If documents are packed, filled() rounds `rows`
  // up to whole tiles. query_tile() and key_tile() return the queries or the keys of a tile.
  std::int64_t tiles_of(std::int64_t rows) const { return (rows + edge - 1) / edge; }
  std::int64_t filled(std::int64_t rows) const { return packed ? tiles_of(rows) * edge : rows; }
  Range query_tile(std::int64_t tile) const { return {tile * edge, std::min(queries, (tile + 1) * edge)}; }
  Range key_tile(std::int64_t tile) const { return {tile * edge, std::min(keys, (tile + 1) * edge)}; }
  // Returns the key tiles that at least one query of `tile` sees.
  Range visible_key_tiles(Range tile) const;

  std::int64_t edge;                  // number of queries, and also of keys, in a tile; depends on shapes alone
  std::int64_t query_rows, key_rows;  // rows in memory; if documents are packed, `queries` and `keys` count full tiles
  bool packed;
  std::size_t bias_input;
  DType bias_type = DType::none;
};

// One matrix product of attention, prepared once for each size that its tiles can have. There are four sizes, because
// the tile of queries and the tile of keys may each be a full tile or the last, smaller one.
class TileProducts {
 public:
  // shape(queries, keys) returns the GemmShape for a tile of that many queries and keys.
  template <typename ShapeOf>
  TileProducts(const TiledAttention &a, int seats, ShapeOf &&shape) {
    for (std::int64_t queries : {std::min(a.queries, a.edge), a.queries % a.edge})
      for (std::int64_t keys : {std::min(a.keys, a.edge), a.keys % a.edge})
        products_.emplace_back(shape(queries, keys), seats);
    full_queries_ = std::min(a.queries, a.edge);
    full_keys_ = std::min(a.keys, a.edge);
    for (const TileProduct &product : products_) scratch_bytes_ = std::max(scratch_bytes_, product.scratch_bytes());
  }
  TileProduct &of(Range queries, Range keys) {
    return products_[(queries.size() == full_queries_ ? 0 : 2) + (keys.size() == full_keys_ ? 0 : 1)];
  }
  std::uint64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  std::int64_t full_queries_, full_keys_;
  std::vector<TileProduct> products_;
  std::uint64_t scratch_bytes_ = 0;
};

// A tile of raw scores (keys, queries), and its queries and keys.
struct ScoreTile {
  float *scores;
  Range queries, keys;
  std::int64_t present;   // how many queries exist; those after them only fill up the tile
  const std::byte *bias;  // the bias of this batch and head; nullptr: there is none
  float *slope;           // derivative of the softcap, (keys, queries); nullptr: not wanted
};
// Turns raw scores into the input of softmax: scales and caps them, adds the bias, and sets the scores that a mask
// hides to -inf. Also writes the derivative of the cap to tile.slope, if that is not nullptr.
void finish_scores(const TiledAttention &shape, const ScoreTile &tile);

// Copies rows, and adds rows of zeros until there are `filled` rows.
template <typename T>
void copy_filled(ConstRows<T> from, std::int64_t rows, std::int64_t columns, Rows<T> to, std::int64_t filled) {
  copy_rows<T>(from, rows, columns, to);
  std::fill_n(to.at + rows * to.ld, (filled - rows) * to.ld, T{});
}
// Writes the transpose of `from` to `to`. Fills the columns of `to` after the first `rows` columns with zeros.
template <typename T>
void transpose_filled(ConstRows<T> from, std::int64_t rows, std::int64_t columns, Rows<T> to) {
  if (rows < to.ld) std::fill_n(to.at, columns * to.ld, T{});
  transpose<T>(from, rows, columns, to);
}

// Both overloads return `results` in the output's type. For float32 outputs that is `results` itself. For narrower
// outputs it is a rounded copy in `room`.
inline const float *stored(const float *results, std::int64_t, float *) { return results; }
template <typename T>
const T *stored(const float *results, std::int64_t count, T *room) {
  narrow(results, room, count);
  return room;
}

}  // namespace protrain::backend::cpu
