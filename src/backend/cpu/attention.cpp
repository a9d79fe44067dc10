// FusedAttention: softmax(scale q k^T + masks) v. Each tile of queries visits one tile of keys after the other, and
// keeps a running maximum and sum of its scores (online softmax). So the full (Sq, Sk) scores are never in memory.
#include "backend/cpu/attention.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/transpose.h"

namespace protrain::backend::cpu {

namespace {
// The state of the online softmax of a tile of queries. Each query has a vector lane. Dv is the head size of v.
struct RunningSoftmax {
  float *most;  // (queries) the largest score so far
  float *sum;   // (queries) the sum of exp(score - most)
  float *out;   // (Dv, queries)
  std::int64_t lanes, value_depth;
};

PROTRAIN_CLONES
void begin(const RunningSoftmax &r) {
  for (std::int64_t i = 0; i < r.lanes; ++i) r.most[i] = -HUGE_VALF, r.sum[i] = 0;
  for (std::int64_t i = 0; i < r.lanes * r.value_depth; ++i) r.out[i] = 0;
}

template <typename T>
struct Loops {
  // Turns each score of a tile into exp(score - most), where `most` is the query's largest score up to and including
  // this tile. The tile has a row for each key and a column for each query. Writes the results to p in type T. For
  // float32, p and `scores` are the same memory. Rescales the sums and outputs of earlier tiles to the new maxima.
  PROTRAIN_CLONES static void accumulate(const RunningSoftmax &r, const float *scores, std::int64_t keys, T *p) {
    const std::int64_t lanes = r.lanes;
    float most[kMostEdge], shift[kMostEdge], keep[kMostEdge], sum[kMostEdge];
    for (std::int64_t i = 0; i < lanes; ++i) most[i] = r.most[i];
    for (std::int64_t j = 0; j < keys; ++j)
      for (std::int64_t i = 0; i < lanes; ++i)
        most[i] = scores[j * lanes + i] > most[i] ? scores[j * lanes + i] : most[i];
    for (std::int64_t i = 0; i < lanes; ++i) {
      shift[i] = most[i] == -HUGE_VALF ? 0 : most[i];  // 0 if no key was seen yet, as exp(-inf - 0) is 0
      keep[i] = arith::exp(r.most[i] - shift[i]);
      sum[i] = r.sum[i] * keep[i];
      r.most[i] = most[i];
    }
    for (std::int64_t j = 0; j < keys; ++j) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < lanes; ++i) {
        const float e = arith::exp(scores[j * lanes + i] - shift[i]);
        p[j * lanes + i] = narrowed<T>(e);
        sum[i] += e;
      }
    }
    for (std::int64_t i = 0; i < lanes; ++i) r.sum[i] = sum[i];
    for (std::int64_t d = 0; d < r.value_depth; ++d)
      for (std::int64_t i = 0; i < lanes; ++i) r.out[d * lanes + i] *= keep[i];
  }
};

PROTRAIN_CLONES
void end(const RunningSoftmax &r) {
  float divisor[kMostEdge];  // dividing rounds once, multiplying by the reciprocal twice
  for (std::int64_t i = 0; i < r.lanes; ++i) divisor[i] = r.sum[i] == 0 ? 1 : r.sum[i];
  for (std::int64_t d = 0; d < r.value_depth; ++d)
    for (std::int64_t i = 0; i < r.lanes; ++i) r.out[d * r.lanes + i] /= divisor[i];
}

// Attention that holds only one tile of its (Sq, Sk) scores at a time, because all scores are too large for memory and
// caches. A member takes a tile of queries at a time and keeps all data of the tile in its own scratch, so that tiles
// need no barrier. Each product has one TileProduct for each size of tile. Masks and softmax work on the tile between
// two products.
template <typename T>
class Attention : public CpuKernel {
 public:
  Attention(const KernelRequest &request, int team_size)
      : shape_(request, 0, 3),
        scores_(shape_, team_size,
                [&](std::int64_t queries, std::int64_t keys) {
                  return GemmShape{.m = keys, .n = queries, .k = shape_.depth, .in = request.inputs[0].dtype};
                }),
        values_(shape_, team_size, [&](std::int64_t queries, std::int64_t keys) {
          return GemmShape{
              .m = shape_.value_depth, .n = queries, .k = keys, .accumulate = true, .in = request.inputs[0].dtype};
        }) {
    const TiledAttention &a = shape_;
    ScratchLayout layout;
    at_ = {layout.take<T>(a.keys * a.depth),
           layout.take<T>(a.value_depth * (a.keys + a.edge)),
           layout.take<T>(a.depth * a.edge),
           layout.take<float>(a.edge * a.edge),
           layout.room<T>(a.edge * a.edge),
           layout.take<float>(a.value_depth * a.edge),
           layout.room<T>(a.value_depth * a.edge),
           layout.take<float>(a.edge),
           layout.take<float>(a.edge),
           layout.bytes(std::max(scores_.scratch_bytes(), values_.scratch_bytes()))};
    member_bytes_ = layout.total();
    scratch_bytes = checked_multiply(member_bytes_, static_cast<std::uint64_t>(members_at_work(items(), team_size)));
  }

  void run(Member &member, const Launch &launch) override {
    const TiledAttention &a = shape_;
    if (a.packed) return run_documents(member, launch);
    const std::int64_t tiles = a.tiles_of(a.queries), group = a.heads / a.kv_heads;
    const Range own = share(items(), 1, member);
    std::int64_t packed = -1;
    for (std::int64_t i = own.begin; i < own.end; ++i) {
      const std::int64_t head = i / tiles;  // index of (b, h): b * H + h
      if (const std::int64_t kv = head / group; kv != packed) pack(member, launch, packed = kv, {0, a.key_rows});
      run_tile(member, launch, head, {0, a.query_rows}, a.query_tile(i % tiles));
    }
  }

 private:
  struct Offsets {                        // offsets of the parts of a member's scratch
    std::uint64_t keys;                   // (Sk, D)
    std::uint64_t values;                 // key tiles of (Dv, keys)
    std::uint64_t query;                  // (D, queries)
    std::uint64_t scores, narrow_scores;  // (keys, queries)
    std::uint64_t out, narrow_out;        // (Dv, queries)
    std::uint64_t most, sum, gemm;
  };

  // Returns how many items the members share: tiles of queries, or key heads if documents are packed.
  std::int64_t items() const {
    const TiledAttention &a = shape_;
    return a.packed ? a.batch * a.kv_heads : a.batch * a.heads * a.tiles_of(a.queries);
  }
  template <typename E>
  E *place(const Member &member, const Launch &launch, std::uint64_t offset) const {
    return reinterpret_cast<E *>(static_cast<std::byte *>(launch.scratch) +
                                 static_cast<std::uint64_t>(member.index) * member_bytes_ + offset);
  }

  void run_documents(const Member &member, const Launch &launch) {
    const TiledAttention &a = shape_;
    const std::int64_t group = a.heads / a.kv_heads;
    const Range own = share(items(), 1, member);
    for (std::int64_t kv = own.begin; kv < own.end; ++kv)
      a.for_each_document(launch, kv / a.kv_heads, [&](Range document) {
        pack(member, launch, kv, document);
        for (std::int64_t head = kv * group; head < (kv + 1) * group; ++head)
          for (std::int64_t t = 0; t < a.tiles_of(document.size()); ++t)
            run_tile(member, launch, head, document, a.query_tile(t));
      });
  }

  // Copies the keys and values of one key head, in the range `rows`, to scratch. `head` is b * Hk + h. The keys become
  // dense rows, and the values become transposed tiles.
  void pack(const Member &member, const Launch &launch, std::int64_t head, Range rows) const {
    const TiledAttention &a = shape_;
    const std::int64_t first = (head / a.kv_heads * a.key_rows + rows.begin) * a.kv_heads + head % a.kv_heads;
    const T *k = input<T>(launch, 1) + first * a.depth, *v = input<T>(launch, 2) + first * a.value_depth;
    const std::int64_t ld = a.kv_heads * a.value_depth;
    const Rows<T> keys{place<T>(member, launch, at_.keys), a.depth};
    copy_filled<T>({k, a.kv_heads * a.depth}, rows.size(), a.depth, keys, a.filled(rows.size()));
    T *values = place<T>(member, launch, at_.values);
    for (std::int64_t j = 0; j < rows.size(); j += a.edge) {
      const std::int64_t lanes = std::min(a.edge, a.filled(rows.size()) - j);
      transpose_filled<T>({v + j * ld, ld}, std::min(lanes, rows.size() - j), a.value_depth,
                          {values + j * a.value_depth, lanes});
    }
  }

  // Computes the outputs of a tile of queries, and the log-sum-exp (lse) of the queries' scores. If documents are
  // packed, `rows` are the rows of one document, else all rows. `tile` counts queries from the first of these rows.
  void run_tile(const Member &member, const Launch &launch, std::int64_t head, Range rows, Range tile) {
    const TiledAttention &a = shape_;
    const std::int64_t b = head / a.heads, h = head % a.heads, lanes = tile.size();
    const std::int64_t first = rows.begin + tile.begin, present = std::min(lanes, rows.size() - tile.begin);
    auto floats = [&](std::uint64_t offset) { return place<float>(member, launch, offset); };
    auto elements = [&](std::uint64_t offset) { return place<T>(member, launch, offset); };
    void *gemm_scratch = floats(at_.gemm);
    const T *q = input<T>(launch, 0) + ((b * a.query_rows + first) * a.heads + h) * a.depth;
    transpose_filled<T>({q, a.heads * a.depth}, present, a.depth, {elements(at_.query), lanes});
    const RunningSoftmax running{floats(at_.most), floats(at_.sum), floats(at_.out), lanes, a.value_depth};
    begin(running);
    const Range visible = a.visible_key_tiles(tile);
    for (std::int64_t j = visible.begin; j < visible.end; ++j) {
      const Range keys = a.key_tile(j);
      float *scores = floats(at_.scores);
      T *p = elements(std::is_same_v<T, float> ? at_.scores : at_.narrow_scores);
      scores_.of(tile, keys)
          .run(member.index, {elements(at_.keys) + keys.begin * a.depth, elements(at_.query), scores}, gemm_scratch);
      finish_scores(a, {scores, tile, keys, present, a.bias_of(launch, b, h), nullptr});
      Loops<T>::accumulate(running, scores, keys.size(), p);
      values_.of(tile, keys)
          .run(member.index, {elements(at_.values) + keys.begin * a.value_depth, p, running.out}, gemm_scratch);
    }
    end(running);
    if (T *out = optional_output<T>(launch, 0))
      transpose<T>({stored(running.out, a.value_depth * lanes, elements(at_.narrow_out)), lanes}, a.value_depth,
                   present,
                   {out + ((b * a.query_rows + first) * a.heads + h) * a.value_depth, a.heads * a.value_depth});
    if (float *lse = optional_output<float>(launch, 1))
      for (std::int64_t i = 0; i < present; ++i)
        lse[head * a.query_rows + first + i] = running.most[i] + std::log(running.sum[i]);
  }

  const TiledAttention shape_;
  TileProducts scores_, values_;
  Offsets at_{};
  std::uint64_t member_bytes_ = 0;
};
}  // namespace

KernelPtr make_attention(const KernelRequest &request, int team_size) {
  return make_by_float<Attention>(request, request.inputs.at(0), team_size);
}

}  // namespace protrain::backend::cpu
