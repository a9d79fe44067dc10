// The tiles, masks and scores of attention.
#include <algorithm>
#include <cmath>

#include "arith/attention.h"
#include "arith/math.h"
#include "backend/common/clones.h"
#include "backend/cpu/attention.h"

namespace protrain::backend::cpu {

namespace {
// Returns how many queries, and how many keys, a tile has. Large tiles are faster, but compute more scores that a mask
// then hides. So large tiles are used only if a query sees many keys.
std::int64_t edge_of(const AttentionShape &a) {
  const std::int64_t seen = a.window > 0 ? std::min(a.window, a.keys) : a.keys;
  return seen >= 1024 ? kMostEdge : kMostEdge / 2;
}
}  // namespace

TiledAttention::TiledAttention(const KernelRequest &request, std::size_t first, std::size_t bias)
    : AttentionShape(request, first, bias),
      edge(edge_of(*this)),
      query_rows(queries),
      key_rows(keys),
      packed(has_input(request, bias + 1)),
      bias_input(bias) {
  const DType type = request.inputs.at(first).dtype;
  for (std::size_t i = 0; i < bias; ++i) {
    const bool is_lse = i > first + 3;  // the gradient's inputs: dout, q, k, v, out, lse
    if (request.inputs.size() > i && request.inputs[i].dtype != DType::none)
      require_dtype(request, request.inputs[i], is_lse ? DType::f32 : type);
  }
  if (packed) {
    require_dtype(request, request.inputs[bias + 1], DType::i64);
    edge = std::min(edge, queries);
    queries = keys = tiles_of(queries) * edge;
  }
  if (!has_input(request, bias)) return;
  bias_type = request.inputs[bias].dtype;
  if (bias_type != DType::f32) require_dtype(request, request.inputs[bias], type);
}

const std::byte *TiledAttention::bias_of(const Launch &launch, std::int64_t b, std::int64_t h) const {
  if (bias_type == DType::none) return nullptr;
  return input<std::byte>(launch, bias_input) +
         (b * bias_b + h * bias_h) * static_cast<std::int64_t>(size_of(bias_type));
}

Range TiledAttention::visible_key_tiles(Range tile) const {
  const Range seen = visible_keys(tile.begin, tile.end);
  return {seen.begin / edge, (seen.end + edge - 1) / edge};
}

namespace {
PROTRAIN_CLONES
void scale_scores(const TiledAttention &a, float *s, float *slope, std::int64_t count) {
  const float scale = a.scale, cap = a.softcap;
  if (cap <= 0) {
    for (std::int64_t i = 0; i < count; ++i) s[i] *= scale;
    return;
  }
  const float inverse = scale / cap;
  for (std::int64_t i = 0; i < count; ++i) s[i] = arith::tanh(s[i] * inverse);
  if (slope)
    for (std::int64_t i = 0; i < count; ++i) slope[i] = 1 - s[i] * s[i];
  for (std::int64_t i = 0; i < count; ++i) s[i] *= cap;
}

template <typename B>
void add_bias(const TiledAttention &a, const ScoreTile &tile) {
  const auto *head = reinterpret_cast<const B *>(tile.bias);
  const std::int64_t columns = tile.queries.size();
  for (std::int64_t j = tile.keys.begin; j < std::min(tile.keys.end, a.key_rows); ++j) {
    float *row = tile.scores + (j - tile.keys.begin) * columns;
    const B *bias = head + j * a.bias_k + tile.queries.begin * a.bias_q;
    for (std::int64_t i = 0; i < tile.present; ++i) row[i] = arith::biased(row[i], widened(bias[i * a.bias_q]));
  }
}

// Sets the scores of hidden pairs to -inf. In the row of key j, queries [first, last) of the tile see the key. The
// causal mask hides the key from queries before `first`, and the window hides it from queries from `last` on.
void hide(const TiledAttention &a, const ScoreTile &tile) {
  const std::int64_t ahead = a.keys - a.queries, columns = tile.queries.size();
  for (std::int64_t j = tile.keys.begin; j < tile.keys.end; ++j) {
    float *row = tile.scores + (j - tile.keys.begin) * columns;
    const std::int64_t at = j - ahead - tile.queries.begin;  // the query at the position of this key, within the tile
    const std::int64_t first = a.causal ? std::clamp<std::int64_t>(at, 0, columns) : 0;
    const std::int64_t last = a.window > 0 ? std::clamp<std::int64_t>(at + a.window, first, columns) : columns;
    std::fill(row, row + first, -HUGE_VALF);
    std::fill(row + last, row + columns, -HUGE_VALF);
  }
}
}  // namespace

void finish_scores(const TiledAttention &shape, const ScoreTile &tile) {
  scale_scores(shape, tile.scores, tile.slope, tile.queries.size() * tile.keys.size());
  if (tile.bias) with_float(shape.bias_type, [&]<typename B>(B) { add_bias<B>(shape, tile); });
  if (shape.causal || shape.window > 0) hide(shape, tile);
}

}  // namespace protrain::backend::cpu
