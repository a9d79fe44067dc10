// FusedAttentionGrad: scores are made again, tile by tile, and turned into probabilities by the saved lse. One key head
// is one piece of work, so that the gradients of its keys and values are summed in one order.
#include <algorithm>
#include <cmath>

#include "arith/math.h"
#include "backend/cpu/attention.h"
#include "backend/cpu/clones.h"
#include "backend/cpu/transpose.h"

namespace protrain::backend {

namespace {
// s: scores -> probabilities; dp: gradient of probabilities -> gradient of raw scores; both (keys, queries).
PROTRAIN_CLONES
void score_gradient(float *__restrict s, float *__restrict dp, const float *__restrict lse,
                    const float *__restrict delta, float scale, Range size) {
  const std::int64_t keys = size.begin, lanes = size.end;
  for (std::int64_t j = 0; j < keys; ++j)
    for (std::int64_t i = 0; i < lanes; ++i) {
      const float p = arith::exp(s[j * lanes + i] - lse[i]);
      s[j * lanes + i] = p;
      dp[j * lanes + i] = p * (dp[j * lanes + i] - delta[i]) * scale;
    }
}

PROTRAIN_CLONES
void multiply(float *__restrict x, const float *__restrict y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) x[i] *= y[i];
}

PROTRAIN_CLONES
float dot(const float *a, const float *b, std::int64_t count) {
  constexpr int kLanes = 16;
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int l = 0; l < kLanes; ++l) lanes[l] += a[i + l] * b[i + l];
  for (int l = 0; i < count; ++i, ++l) lanes[l] += a[i] * b[i];
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  return lanes[0];
}

class AttentionGrad : public CpuKernel {
 public:
  AttentionGrad(const KernelRequest &request, int team_size)
      : shape_(request, 1, 6),
        scores_(products(team_size,
                         [this](auto nq, auto nk) {
                           return GemmShape{nk, nq, shape_.depth};
                         })),
        probabilities_(products(team_size,
                                [this](auto nq, auto nk) {
                                  return GemmShape{nk, nq, shape_.value_depth};
                                })),
        dq_(products(team_size,
                     [this](auto nq, auto nk) {
                       return summed({shape_.depth, nq, nk});
                     })),
        dk_(products(team_size,
                     [this](auto nq, auto nk) {
                       return summed({nk, shape_.depth, nq});
                     })),
        dv_(products(team_size, [this](auto nq, auto nk) {
          return summed({nk, shape_.value_depth, nq});
        })) {
    const std::int64_t keys = shape_.keys, d = shape_.depth, dv = shape_.value_depth;
    std::uint64_t gemm_bytes = 0;
    for (const TileProducts *p : {&scores_, &probabilities_, &dq_, &dk_, &dv_})
      gemm_bytes = std::max(gemm_bytes, p->scratch_bytes());
    ScratchLayout layout;
    at_.k = layout.floats(keys * d), at_.kt = layout.floats(keys * d), at_.v = layout.floats(keys * dv);
    at_.dk = layout.floats(keys * d), at_.dv = layout.floats(keys * dv);
    at_.q = layout.floats(kTile * d), at_.qt = layout.floats(kTile * d), at_.dqt = layout.floats(kTile * d);
    at_.dout = layout.floats(kTile * dv), at_.doutt = layout.floats(kTile * dv);
    at_.s = layout.floats(kTile * kTile), at_.dp = layout.floats(kTile * kTile);
    at_.slope = layout.floats(shape_.softcap > 0 ? kTile * kTile : 0);
    at_.lse = layout.floats(kTile), at_.delta = layout.floats(kTile);
    at_.gemm = layout.bytes(gemm_bytes);
    member_bytes_ = layout.total();
    scratch_bytes = checked_multiply(member_bytes_, static_cast<std::uint64_t>(team_size));
  }

  void run(Member &member, const Launch &launch) override {
    const Range own = share(shape_.batch * shape_.kv_heads, 1, member);
    for (std::int64_t head = own.begin; head < own.end; ++head) run_head({*this, launch, member.index}, head);
  }

 private:
  struct Offsets {               // in a member's scratch
    std::uint64_t k, kt, v;      // (Sk, D), key tiles of (D, keys), (Sk, Dv)
    std::uint64_t dk, dv;        // (Sk, D), (Sk, Dv)
    std::uint64_t q, qt, dqt;    // (queries, D), (D, queries), (D, queries)
    std::uint64_t dout, doutt;   // (queries, Dv), (Dv, queries)
    std::uint64_t s, dp, slope;  // (keys, queries)
    std::uint64_t lse, delta;    // (queries)
    std::uint64_t gemm;
  };
  // A member's scratch during one launch.
  struct Bound {
    const AttentionGrad &kernel;
    const Launch &launch;
    int seat;
    float *at(std::uint64_t offset) const {
      return reinterpret_cast<float *>(static_cast<std::byte *>(launch.scratch) +
                                       static_cast<std::uint64_t>(seat) * kernel.member_bytes_ + offset);
    }
  };

  template <typename ShapeOf>
  TileProducts products(int seats, ShapeOf &&shape) const {
    return TileProducts(shape_, seats, shape);
  }
  static GemmShape summed(GemmShape shape) {
    shape.accumulate = true;
    return shape;
  }

  void run_head(const Bound &m, std::int64_t head) {
    const TiledAttention &a = shape_;
    const std::int64_t b = head / a.kv_heads, h = head % a.kv_heads, group = a.heads / a.kv_heads;
    const std::int64_t first = b * a.keys * a.kv_heads + h, ld = a.kv_heads * a.depth, ldv = a.kv_heads * a.value_depth;
    const float *k = input<float>(m.launch, 2) + first * a.depth;
    copy_rows<float>({k, ld}, a.keys, a.depth, {m.at(at_.k), a.depth});
    copy_rows<float>({input<float>(m.launch, 3) + first * a.value_depth, ldv}, a.keys, a.value_depth,
              {m.at(at_.v), a.value_depth});
    for (std::int64_t j = 0; j < a.keys; j += kTile) {
      const std::int64_t rows = std::min(kTile, a.keys - j);
      transpose<float>({k + j * ld, ld}, rows, a.depth, {m.at(at_.kt) + j * a.depth, rows});
    }
    std::fill_n(m.at(at_.dk), a.keys * a.depth, 0.0F);
    std::fill_n(m.at(at_.dv), a.keys * a.value_depth, 0.0F);
    for (std::int64_t g = 0; g < group; ++g)
      for (std::int64_t t = 0; t < a.query_tiles(); ++t) run_tile(m, b, h * group + g, a.query_tile(t));
    if (float *dk = optional_output<float>(m.launch, 1))
      copy_rows<float>({m.at(at_.dk), a.depth}, a.keys, a.depth, {dk + first * a.depth, ld});
    if (float *dv = optional_output<float>(m.launch, 2))
      copy_rows<float>({m.at(at_.dv), a.value_depth}, a.keys, a.value_depth, {dv + first * a.value_depth, ldv});
  }

  // Brings in what belongs to a tile of queries of head h.
  void load_tile(const Bound &m, std::int64_t b, std::int64_t h, Range tile) const {
    const TiledAttention &a = shape_;
    const std::int64_t lanes = tile.size(), first = (b * a.queries + tile.begin) * a.heads + h;
    const ConstRows<float> q{input<float>(m.launch, 1) + first * a.depth, a.heads * a.depth};
    const ConstRows<float> dout{input<float>(m.launch, 0) + first * a.value_depth, a.heads * a.value_depth};
    const ConstRows<float> out{input<float>(m.launch, 4) + first * a.value_depth, a.heads * a.value_depth};
    copy_rows<float>(q, lanes, a.depth, {m.at(at_.q), a.depth});
    transpose<float>(q, lanes, a.depth, {m.at(at_.qt), lanes});
    copy_rows<float>(dout, lanes, a.value_depth, {m.at(at_.dout), a.value_depth});
    transpose<float>(dout, lanes, a.value_depth, {m.at(at_.doutt), lanes});
    std::fill_n(m.at(at_.dqt), lanes * a.depth, 0.0F);
    const float *lse = input<float>(m.launch, 5) + (b * a.heads + h) * a.queries + tile.begin;
    for (std::int64_t i = 0; i < lanes; ++i) {
      m.at(at_.delta)[i] = dot(dout.at + i * dout.ld, out.at + i * out.ld, a.value_depth);
      m.at(at_.lse)[i] = lse[i] == -HUGE_VALF ? 0 : lse[i];  // saw no key: its scores are -inf, their exp 0
    }
  }

  void run_tile(const Bound &m, std::int64_t b, std::int64_t h, Range tile) {
    const TiledAttention &a = shape_;
    const std::int64_t lanes = tile.size();
    const float *bias = optional_input<float>(m.launch, 6);
    load_tile(m, b, h, tile);
    const Range visible = a.visible_key_tiles(tile);
    for (std::int64_t j = visible.begin; j < visible.end; ++j) {
      const Range keys = a.key_tile(j);
      const std::int64_t k = keys.begin * a.depth, v = keys.begin * a.value_depth;
      float *s = m.at(at_.s), *dp = m.at(at_.dp), *slope = a.softcap > 0 ? m.at(at_.slope) : nullptr;
      auto multiply_tiles = [&](TileProducts &products, const float *left, const float *right, float *to) {
        products.of(tile, keys).run(m.seat, {left, right, to}, m.at(at_.gemm));
      };
      multiply_tiles(scores_, m.at(at_.k) + k, m.at(at_.qt), s);
      finish_scores(a, {s, tile, keys, bias ? bias + b * a.bias_b + h * a.bias_h : nullptr, slope});
      multiply_tiles(probabilities_, m.at(at_.v) + v, m.at(at_.doutt), dp);
      score_gradient(s, dp, m.at(at_.lse), m.at(at_.delta), a.scale, {keys.size(), lanes});
      if (slope) multiply(dp, slope, keys.size() * lanes);
      multiply_tiles(dv_, s, m.at(at_.dout), m.at(at_.dv) + v);
      multiply_tiles(dk_, dp, m.at(at_.q), m.at(at_.dk) + k);
      multiply_tiles(dq_, m.at(at_.kt) + k, dp, m.at(at_.dqt));
    }
    if (float *dq = optional_output<float>(m.launch, 0))
      transpose<float>({m.at(at_.dqt), lanes}, a.depth, lanes,
                {dq + ((b * a.queries + tile.begin) * a.heads + h) * a.depth, a.heads * a.depth});
  }

  const TiledAttention shape_;
  TileProducts scores_, probabilities_, dq_, dk_, dv_;
  Offsets at_{};
  std::uint64_t member_bytes_ = 0;
};
}  // namespace

std::unique_ptr<CpuKernel> make_attention_grad(const KernelRequest &request, int team_size) {
  return std::make_unique<AttentionGrad>(request, team_size);
}

}  // namespace protrain::backend
