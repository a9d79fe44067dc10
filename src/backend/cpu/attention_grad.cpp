// FusedAttentionGrad. Scores are computed again, tile by tile, and the saved log-sum-exp (lse) of each query turns them
// into probabilities. A member works on a whole key head, so that the gradients of its keys and values are summed in a
// fixed order.
#include <algorithm>
#include <cmath>

#include "arith/attention.h"
#include "backend/cpu/attention.h"
#include "backend/cpu/transpose.h"

namespace protrain::backend::cpu {

namespace {
// The operands of score_gradient(), which turns a tile of scores into gradients. A tile has a row for each key and a
// column for each query. The delta of a query is the dot product of its dout and its out.
template <typename T>
struct GradientTile {
  float *s, *dp;             // in: scores, and gradients of probabilities
  T *p, *ds;                 // out: probabilities, and gradients of raw scores; s and dp themselves if T is float32
  const float *lse, *delta;  // (queries)
  const float *slope;        // derivative of the softcap; nullptr: there is none
};

template <typename T>
struct Loops {
  PROTRAIN_CLONES static void score_gradient(const GradientTile<T> &tile, float scale, std::int64_t keys,
                                             std::int64_t lanes) {
    for (std::int64_t j = 0; j < keys; ++j) {
      const float *s = tile.s + j * lanes;
      float *dp = tile.dp + j * lanes;
      const float *__restrict lse = tile.lse, *__restrict delta = tile.delta;
      T *p = tile.p + j * lanes, *ds = tile.ds + j * lanes;
#pragma GCC ivdep
      for (std::int64_t i = 0; i < lanes; ++i) {
        const float score = s[i], probability = arith::exp(score - lse[i]);
        p[i] = narrowed<T>(probability);
        dp[i] = arith::weight_of_score(probability, score) * (dp[i] - delta[i]) * scale;
      }
      if (const float *__restrict slope = tile.slope)
        for (std::int64_t i = 0; i < lanes; ++i) dp[i] *= slope[j * lanes + i];
      if constexpr (!std::is_same_v<T, float>)
#pragma GCC ivdep
        for (std::int64_t i = 0; i < lanes; ++i) ds[i] = narrowed<T>(dp[i]);
    }
  }

  PROTRAIN_CLONES static float dot(const T *a, const T *b, std::int64_t count) {
    constexpr int kLanes = 16;
    float lanes[kLanes] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
      for (int l = 0; l < kLanes; ++l) lanes[l] += widened(a[i + l]) * widened(b[i + l]);
    for (int l = 0; i < count; ++i, ++l) lanes[l] += widened(a[i]) * widened(b[i]);
    for (int width = kLanes / 2; width > 0; width /= 2)
      for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
    return lanes[0];
  }
};

// The gradient of attention. The kernel holds only one tile of the (Sq, Sk) scores at a time. It computes the scores
// again, because keeping those of the forward pass would take memory that grows with the square of the sequence. A
// member takes a whole key head. So one thread sums dk and dv, in an order that depends on shapes alone.
template <typename T>
class AttentionGrad : public CpuKernel {
 public:
  AttentionGrad(const KernelRequest &request, int team_size)
      : shape_(request, 1, 6),
        scores_(
            products(team_size,
                     [this](auto nq, auto nk) { return GemmShape{.m = nk, .n = nq, .k = shape_.depth, .in = kType}; })),
        probabilities_(products(
            team_size,
            [this](auto nq, auto nk) { return GemmShape{.m = nk, .n = nq, .k = shape_.value_depth, .in = kType}; })),
        dq_(products(team_size, [this](auto nq, auto nk) { return summed(shape_.depth, nq, nk); })),
        dk_(products(team_size, [this](auto nq, auto nk) { return summed(nk, shape_.depth, nq); })),
        dv_(products(team_size, [this](auto nq, auto nk) { return summed(nk, shape_.value_depth, nq); })) {
    const std::int64_t keys = shape_.keys, d = shape_.depth, dv = shape_.value_depth, edge = shape_.edge;
    std::uint64_t gemm_bytes = 0;
    for (const TileProducts *p : {&scores_, &probabilities_, &dq_, &dk_, &dv_})
      gemm_bytes = std::max(gemm_bytes, p->scratch_bytes());
    ScratchLayout layout;
    at_.k = layout.take<T>(keys * d), at_.kt = layout.take<T>(keys * d), at_.v = layout.take<T>(keys * dv);
    at_.dk = layout.take<float>(keys * d), at_.dv = layout.take<float>(keys * dv);
    at_.q = layout.take<T>(edge * d), at_.qt = layout.take<T>(edge * d), at_.dqt = layout.take<float>(edge * d);
    at_.dout = layout.take<T>(edge * dv), at_.doutt = layout.take<T>(edge * dv);
    at_.s = layout.take<float>(edge * edge), at_.dp = layout.take<float>(edge * edge);
    at_.p = std::is_same_v<T, float> ? at_.s : layout.take<T>(edge * edge);
    at_.ds = std::is_same_v<T, float> ? at_.dp : layout.take<T>(edge * edge);
    at_.slope = layout.take<float>(shape_.softcap > 0 ? edge * edge : 0);
    at_.lse = layout.take<float>(edge), at_.delta = layout.take<float>(edge);
    at_.gemm = layout.bytes(gemm_bytes);
    member_bytes_ = layout.total();
    scratch_bytes = checked_multiply(member_bytes_, static_cast<std::uint64_t>(members_at_work(items(), team_size)));
  }

  void run(Member &member, const Launch &launch) override {
    const Range own = share(items(), 1, member);
    const MemberScratch m{*this, launch, member.index};
    for (std::int64_t head = own.begin; head < own.end; ++head)
      if (shape_.packed)
        shape_.for_each_document(launch, head / shape_.kv_heads, [&](Range rows) { run_head(m, head, rows, rows); });
      else
        run_head(m, head, {0, shape_.query_rows}, {0, shape_.key_rows});
  }

 private:
  static constexpr DType kType = kDTypeOf<T>;

  struct Offsets {                      // offsets of the parts of a member's scratch
    std::uint64_t k, kt, v;             // (Sk, D), key tiles of (D, keys), (Sk, Dv)
    std::uint64_t dk, dv;               // (Sk, D), (Sk, Dv)
    std::uint64_t q, qt, dqt;           // (queries, D), (D, queries), (D, queries)
    std::uint64_t dout, doutt;          // (queries, Dv), (Dv, queries)
    std::uint64_t s, dp, p, ds, slope;  // (keys, queries)
    std::uint64_t lse, delta;           // (queries)
    std::uint64_t gemm;
  };
  // A member's scratch during one launch.
  struct MemberScratch {
    const AttentionGrad &kernel;
    const Launch &launch;
    int seat;
    float *floats(std::uint64_t offset) const { return at<float>(offset); }
    T *elements(std::uint64_t offset) const { return at<T>(offset); }
    template <typename E>
    E *at(std::uint64_t offset) const {
      return reinterpret_cast<E *>(static_cast<std::byte *>(launch.scratch) +
                                   static_cast<std::uint64_t>(seat) * kernel.member_bytes_ + offset);
    }
  };

  std::int64_t items() const { return shape_.batch * shape_.kv_heads; }  // key heads of all samples
  template <typename ShapeOf>
  TileProducts products(int seats, ShapeOf &&shape) const {
    return TileProducts(shape_, seats, shape);
  }
  static GemmShape summed(std::int64_t m, std::int64_t n, std::int64_t k) {
    return {.m = m, .n = n, .k = k, .accumulate = true, .in = kType};
  }

  // Computes the gradients of a key head. `queries` and `keys` are ranges of rows in memory. They are the rows of one
  // document if documents are packed, else all rows.
  void run_head(const MemberScratch &m, std::int64_t head, Range queries, Range keys) {
    const TiledAttention &a = shape_;
    const std::int64_t b = head / a.kv_heads, h = head % a.kv_heads, group = a.heads / a.kv_heads;
    const std::int64_t first = (b * a.key_rows + keys.begin) * a.kv_heads + h, filled = a.filled(keys.size());
    const std::int64_t ld = a.kv_heads * a.depth, ldv = a.kv_heads * a.value_depth;
    const T *k = input<T>(m.launch, 2) + first * a.depth, *v = input<T>(m.launch, 3) + first * a.value_depth;
    copy_filled<T>({k, ld}, keys.size(), a.depth, {m.elements(at_.k), a.depth}, filled);
    copy_filled<T>({v, ldv}, keys.size(), a.value_depth, {m.elements(at_.v), a.value_depth}, filled);
    for (std::int64_t j = 0; j < filled; j += a.edge) {
      const std::int64_t rows = std::min(a.edge, filled - j), at = j * a.depth;
      transpose<T>({m.elements(at_.k) + at, a.depth}, rows, a.depth, {m.elements(at_.kt) + at, rows});
    }
    std::fill_n(m.floats(at_.dk), filled * a.depth, 0.0F);
    std::fill_n(m.floats(at_.dv), filled * a.value_depth, 0.0F);
    for (std::int64_t g = 0; g < group; ++g)
      for (std::int64_t t = 0; t < a.tiles_of(queries.size()); ++t)
        run_tile(m, {b, h * group + g, queries}, a.query_tile(t));
    // Stores dk and dv in the outputs. If T is narrower than float32, stored() first rounds them into scratch, over the
    // copies of the keys and values, which are not needed any more.
    if (T *dk = optional_output<T>(m.launch, 1))
      copy_rows<T>({stored(m.floats(at_.dk), keys.size() * a.depth, m.elements(at_.k)), a.depth}, keys.size(), a.depth,
                   {dk + first * a.depth, ld});
    if (T *dv = optional_output<T>(m.launch, 2))
      copy_rows<T>({stored(m.floats(at_.dv), keys.size() * a.value_depth, m.elements(at_.v)), a.value_depth},
                   keys.size(), a.value_depth, {dv + first * a.value_depth, ldv});
  }

  // The queries of one head and one sample. `rows` are their rows in memory: those of one document if documents are
  // packed, else all rows.
  struct QueryHead {
    std::int64_t b, h;
    Range rows;
  };

  // Copies the operands of a tile of queries to scratch. If the document ends within the tile, the lanes behind its
  // last query are set to zero, so they add zeros to the gradients.
  void load_tile(const MemberScratch &m, const QueryHead &head, Range tile) const {
    const TiledAttention &a = shape_;
    const std::int64_t lanes = tile.size(), present = std::min(lanes, head.rows.size() - tile.begin);
    const std::int64_t row = head.rows.begin + tile.begin, first = (head.b * a.query_rows + row) * a.heads + head.h;
    const ConstRows<T> q{input<T>(m.launch, 1) + first * a.depth, a.heads * a.depth};
    const ConstRows<T> dout{input<T>(m.launch, 0) + first * a.value_depth, a.heads * a.value_depth};
    const ConstRows<T> out{input<T>(m.launch, 4) + first * a.value_depth, a.heads * a.value_depth};
    copy_filled<T>(q, present, a.depth, {m.elements(at_.q), a.depth}, lanes);
    transpose_filled<T>(q, present, a.depth, {m.elements(at_.qt), lanes});
    copy_filled<T>(dout, present, a.value_depth, {m.elements(at_.dout), a.value_depth}, lanes);
    transpose_filled<T>(dout, present, a.value_depth, {m.elements(at_.doutt), lanes});
    std::fill_n(m.floats(at_.dqt), lanes * a.depth, 0.0F);
    const float *lse = input<float>(m.launch, 5) + (head.b * a.heads + head.h) * a.query_rows + row;
    for (std::int64_t i = 0; i < lanes; ++i) {
      const bool is_there = i < present;
      m.floats(at_.delta)[i] = is_there ? Loops<T>::dot(dout.at + i * dout.ld, out.at + i * out.ld, a.value_depth) : 0;
      // Sets lse to 0 for lanes without a query. Also sets it to 0 for a query that saw no key. The scores of such a
      // query are -inf, so its probabilities become exp(-inf - 0) = 0. With its saved lse, which is -inf, they would be
      // NaN.
      m.floats(at_.lse)[i] = !is_there || lse[i] == -HUGE_VALF ? 0 : lse[i];
    }
  }

  void run_tile(const MemberScratch &m, const QueryHead &head, Range tile) {
    const TiledAttention &a = shape_;
    const std::int64_t lanes = tile.size(), present = std::min(lanes, head.rows.size() - tile.begin);
    load_tile(m, head, tile);
    const Range visible = a.visible_key_tiles(tile);
    for (std::int64_t j = visible.begin; j < visible.end; ++j) {
      const Range keys = a.key_tile(j);
      const std::int64_t k = keys.begin * a.depth, v = keys.begin * a.value_depth;
      float *slope = a.softcap > 0 ? m.floats(at_.slope) : nullptr;
      const GradientTile<T> arrays{m.floats(at_.s),
                                   m.floats(at_.dp),
                                   m.elements(at_.p),
                                   m.elements(at_.ds),
                                   m.floats(at_.lse),
                                   m.floats(at_.delta),
                                   slope};
      auto multiply_tiles = [&](TileProducts &products, const T *left, const T *right, float *to) {
        products.of(tile, keys).run(m.seat, {left, right, to}, m.floats(at_.gemm));
      };
      multiply_tiles(scores_, m.elements(at_.k) + k, m.elements(at_.qt), arrays.s);
      finish_scores(a, {arrays.s, tile, keys, present, a.bias_of(m.launch, head.b, head.h), slope});
      multiply_tiles(probabilities_, m.elements(at_.v) + v, m.elements(at_.doutt), arrays.dp);
      Loops<T>::score_gradient(arrays, a.scale, keys.size(), lanes);
      multiply_tiles(dv_, arrays.p, m.elements(at_.dout), m.floats(at_.dv) + v);
      multiply_tiles(dk_, arrays.ds, m.elements(at_.q), m.floats(at_.dk) + k);
      multiply_tiles(dq_, m.elements(at_.kt) + k, arrays.ds, m.floats(at_.dqt));
    }
    const std::int64_t row = head.rows.begin + tile.begin;
    if (T *dq = optional_output<T>(m.launch, 0))
      transpose<T>({stored(m.floats(at_.dqt), a.depth * lanes, m.elements(at_.q)), lanes}, a.depth, present,
                   {dq + ((head.b * a.query_rows + row) * a.heads + head.h) * a.depth, a.heads * a.depth});
  }

  const TiledAttention shape_;
  TileProducts scores_, probabilities_, dq_, dk_, dv_;
  Offsets at_{};
  std::uint64_t member_bytes_ = 0;
};
}  // namespace

KernelPtr make_attention_grad(const KernelRequest &request, int team_size) {
  return make_by_float<AttentionGrad>(request, request.inputs.at(0), team_size);
}

}  // namespace protrain::backend::cpu
