// Attention's sizes, masks and scores.
#include <algorithm>
#include <cmath>

#include "arith/math.h"
#include "backend/cpu/attention.h"
#include "backend/cpu/clones.h"

namespace protrain::backend {

AttentionShape::AttentionShape(const KernelRequest &request, std::size_t first, std::size_t bias) {
  for (const graph::Type &type : request.inputs)
    if (type.dtype != DType::none) require_dtype(request, type, DType::f32);
  const Shape &q = request.inputs.at(first).shape, &k = request.inputs.at(first + 1).shape,
              &v = request.inputs.at(first + 2).shape;
  batch = q.at(0), queries = q.at(1), heads = q.at(2), depth = q.at(3);
  keys = k.at(1), kv_heads = k.at(2), value_depth = v.at(3);
  const graph::Attributes &attributes = request.node.attributes;
  scale = static_cast<float>(attributes.real("scale", 1 / std::sqrt(static_cast<double>(depth))));
  softcap = static_cast<float>(attributes.real("softcap", 0));
  causal = attributes.integer("causal", 0) != 0;
  window = attributes.integer("window", 0);
  if (!has_input(request, bias)) return;
  const Shape &b = request.inputs[bias].shape;
  require(b.size() == 4, Code::unsupported, subject(request), "a bias of shape {} has not four dimensions", to_text(b));
  const std::vector<std::int64_t> strides = row_major_strides(b);
  auto stride = [&](std::size_t axis) { return b[axis] == 1 ? 0 : strides[axis]; };
  bias_b = stride(0), bias_h = stride(1), bias_q = stride(2), bias_k = stride(3);
}

Range AttentionShape::visible_key_tiles(Range tile) const {
  const std::int64_t ahead = keys - queries;  // query i stands at key i + ahead
  const std::int64_t end = causal ? std::clamp<std::int64_t>(tile.end + ahead, 0, keys) : keys;
  const std::int64_t begin = window > 0 ? std::clamp<std::int64_t>(tile.begin + ahead - window + 1, 0, end) : 0;
  return {begin / kTile, (end + kTile - 1) / kTile};
}

namespace {
PROTRAIN_CLONES
void scale_scores(const AttentionShape &a, float *s, float *slope, std::int64_t count) {
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

void add_bias(const AttentionShape &a, const ScoreTile &tile) {
  const std::int64_t columns = tile.queries.size();
  for (std::int64_t j = tile.keys.begin; j < tile.keys.end; ++j) {
    float *row = tile.scores + (j - tile.keys.begin) * columns;
    const float *bias = tile.bias + j * a.bias_k + tile.queries.begin * a.bias_q;
    for (std::int64_t i = 0; i < columns; ++i) row[i] += bias[i * a.bias_q];
  }
}

// Key j is seen by the queries of one run: from the first that has reached it to the last that has it in its window.
void hide(const AttentionShape &a, const ScoreTile &tile) {
  const std::int64_t ahead = a.keys - a.queries, columns = tile.queries.size();
  for (std::int64_t j = tile.keys.begin; j < tile.keys.end; ++j) {
    float *row = tile.scores + (j - tile.keys.begin) * columns;
    const std::int64_t at = j - ahead - tile.queries.begin;  // the query that stands at this key, within the tile
    const std::int64_t first = a.causal ? std::clamp<std::int64_t>(at, 0, columns) : 0;
    const std::int64_t last = a.window > 0 ? std::clamp<std::int64_t>(at + a.window, first, columns) : columns;
    std::fill(row, row + first, -HUGE_VALF);
    std::fill(row + last, row + columns, -HUGE_VALF);
  }
}
}  // namespace

void finish_scores(const AttentionShape &shape, const ScoreTile &tile) {
  scale_scores(shape, tile.scores, tile.slope, tile.queries.size() * tile.keys.size());
  if (tile.bias) add_bias(shape, tile);
  if (shape.causal || shape.window > 0) hide(shape, tile);
}

}  // namespace protrain::backend
