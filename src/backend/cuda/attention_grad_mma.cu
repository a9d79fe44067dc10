// FusedAttentionGrad in bfloat16 on tensor cores: as attention_grad.cu does it, strips of queries sum up dq, strips of
// keys dk and dv, with scores, probabilities and sums in registers. Sums are float32; probabilities and gradients of
// scores are narrowed for the products that they are left operands of.
#include "arith/attention.h"
#include "backend/cuda/attention_mma.h"

namespace protrain::backend::cuda {

namespace {
using Operands = AttentionGradOperands<bf16>;

// Of a probability of 1: lse is rounded once more on its way to base 2, which moves it by so much where scores are 64.
// What products are narrowed to is far coarser.
constexpr float kRounding = 0x1p-16f;

// What the forward pass and delta say of a query.
struct Query {
  float lse, delta;

  __device__ float log2_sum() const { return lse == -INFINITY ? 0.0f : lse * kLog2E; }  // saw no key: 2^(-inf) is 0
};

// Raw products q . k and dout . v of a strip become probabilities and gradients of raw scores, which lack the scale.
template <bool kTurned, int kColumns, typename QueryOf>
__device__ void take_products(const Heads &s, const Bias<bf16> &bias, const Place<kTurned, kColumns> &place,
                              const QueryOf &query_of, Sums (&p)[kColumns / 8], Sums (&ds)[kColumns / 8]) {
  constexpr int kTiles = kColumns / 8;
  for_elements<kTiles>([&](int n, int e, int r, int column) { ds[n].at[e] -= query_of(r, column).delta; });
  finish_scores(s, bias, place, p, [&](int n, int e, float slope) { ds[n].at[e] *= slope; });
  for_elements<kTiles>([&](int n, int e, int r, int column) {
    p[n].at[e] = power_of_two(p[n].at[e] - query_of(r, column).log2_sum());
    ds[n].at[e] *= arith::weight_of_score(p[n].at[e], kRounding);
  });
}

template <int kDepth>
struct DqSizes {
  static constexpr int kKeys = kDepth <= 64 ? 64 : 32;
  static constexpr bool kKept = kDepth <= 64;  // queries and dout, in registers
  using Memory = Stages<kDepth, kKeys, kKept>;
};

template <int kDepth>
__global__ void __launch_bounds__(kThreads, 2) dq_mma_kernel(Heads s, Operands o, std::int64_t tiles) {
  using Memory = typename DqSizes<kDepth>::Memory;
  constexpr int kKeys = DqSizes<kDepth>::kKeys;
  constexpr bool kKept = DqSizes<kDepth>::kKept;
  const int depth = static_cast<int>(s.depth), value_depth = static_cast<int>(s.value_depth);
  const std::int64_t head_row = blockIdx.x / tiles, b = head_row / s.heads, h = head_row % s.heads;
  const std::int64_t first = (tiles - 1 - blockIdx.x % tiles) * kBlockRows;  // where causal, most work first
  const std::int64_t kv = h / (s.heads / s.kv_heads);
  const Rows<const bf16> k = s.key_rows(o.k, b, kv, depth), v = s.key_rows(o.v, b, kv, value_depth);
  const Bias<bf16> bias = o.bias.of_head(s, b, h);
  auto copy_tiles = [&](int stage, std::int64_t key) {
    Memory::tile(stage, 0).template copy<kKeys>(k, key, depth);
    Memory::tile(stage, 1).template copy<kKeys>(v, key, value_depth);
  };

  const Range seen = s.seen(first, kBlockRows);
  const std::int64_t begin = seen.begin / kKeys * kKeys;
  Memory::own(0).template copy<kBlockRows>(s.query_rows(o.q, b, h, depth), first, depth);
  Memory::own(kBlockRows).template copy<kBlockRows>(s.query_rows(o.dout, b, h, value_depth), first, value_depth);
  copy_tiles(0, begin);
  const int row = warp_index() * kStrip;
  Query rows[2] = {};
  for (int r = 0; r < 2; ++r) {
    const std::int64_t i = first + row + lane().g + 8 * r, at = head_row * s.queries + i;
    if (i < s.queries) rows[r] = {o.lse[at], o.delta[at]};
  }
  wait_for_copies();
  __syncthreads();
  const LeftStrip<kDepth, kKept> queries(Memory::own(0), row), dout(Memory::own(kBlockRows), row);
  Sums dq[kDepth / 8] = {};
  int stage = 0;
  for (std::int64_t key = begin; key < seen.end; key += kKeys, stage ^= 1) {
    wait_for_copies();
    __syncthreads();  // this stage is there, and nobody needs the other one any more
    if (key + kKeys < seen.end) copy_tiles(stage ^ 1, key + kKeys);
    Sums p[kKeys / 8] = {}, ds[kKeys / 8] = {};
    add_scores(queries, Memory::tile(stage, 0), p);
    add_scores(dout, Memory::tile(stage, 1), ds);
    take_products(
        s, bias, Place<false, kKeys>{first + row, key}, [&](int r, int) { return rows[r]; }, p, ds);
    add_weighted(ds, Memory::tile(stage, 0), 0, dq);
  }
  store_strip(dq, {s.scale, s.scale}, first + row, depth, s.query_rows(o.dq, b, h, depth));
}

template <int kDepth>
struct DkvSizes {
  static constexpr int kQueries = kDepth <= 64 ? 64 : 32;
  static constexpr bool kKept = kDepth <= 64;                        // keys and values, in registers
  static constexpr int kColumns = kDepth <= 128 ? kDepth : 128;      // of dk and dv that a block sums up
  static constexpr int kParts = (kDepth + kColumns - 1) / kColumns;  // blocks that share keys
  using Memory = Stages<kDepth, kQueries, kKept>;
  static constexpr std::size_t kTileBytes = Memory::bytes(2 * kBlockRows);
  static constexpr std::size_t kBytes = kTileBytes + 2 * 2 * kQueries * sizeof(float);
  static_assert(kBytes >= DqSizes<kDepth>::Memory::bytes(2 * kBlockRows));

  // lse, then delta, of the queries of a stage.
  __device__ static float *rows(int stage) {
    return shared_memory<float>() + kTileBytes / sizeof(float) + stage * 2 * kQueries;
  }
};

// A tile of queries of one of the heads that share keys.
struct Step {
  std::int64_t h, query;
};

template <int kDepth>
__device__ void copy_step(const Heads &s, const Operands &o, std::int64_t b, const Step &at, int stage) {
  using Size = DkvSizes<kDepth>;
  const int depth = static_cast<int>(s.depth), value_depth = static_cast<int>(s.value_depth);
  using Memory = typename Size::Memory;
  Memory::tile(stage, 0).template copy<Size::kQueries>(s.query_rows(o.q, b, at.h, depth), at.query, depth);
  Memory::tile(stage, 1).template copy<Size::kQueries>(s.query_rows(o.dout, b, at.h, value_depth), at.query,
                                                       value_depth);
  for (int i = static_cast<int>(threadIdx.x); i < 2 * Size::kQueries; i += kThreads) {
    const float *from = (i < Size::kQueries ? o.lse : o.delta) + (b * s.heads + at.h) * s.queries;
    const std::int64_t query = at.query + i % Size::kQueries;
    const bool given = query < s.queries;
    copy_async<4>(Size::rows(stage) + i, given ? from + query : from, given);
  }
}

template <int kDepth>
__global__ void __launch_bounds__(kThreads, 2) dkv_mma_kernel(Heads s, Operands o, std::int64_t tiles) {
  using Size = DkvSizes<kDepth>;
  using Memory = typename Size::Memory;
  constexpr int kQueries = Size::kQueries;
  const int depth = static_cast<int>(s.depth), value_depth = static_cast<int>(s.value_depth);
  const int column = static_cast<int>(blockIdx.x) % Size::kParts * Size::kColumns;
  const std::int64_t head_row = blockIdx.x / Size::kParts / tiles, b = head_row / s.kv_heads,
                     kv = head_row % s.kv_heads;
  const std::int64_t key = blockIdx.x / Size::kParts % tiles * kBlockRows, group = s.heads / s.kv_heads;
  const Range seeing = s.seeing(key, kBlockRows);
  const Step begin{kv * group, seeing.begin / kQueries * kQueries};
  const std::int64_t end = seeing.begin < seeing.end ? begin.h + group : begin.h;  // of heads

  Memory::own(0).template copy<kBlockRows>(s.key_rows(o.k, b, kv, depth), key, depth);
  Memory::own(kBlockRows).template copy<kBlockRows>(s.key_rows(o.v, b, kv, value_depth), key, value_depth);
  copy_step<kDepth>(s, o, b, begin, 0);
  wait_for_copies();
  __syncthreads();
  const int row = warp_index() * kStrip;
  const LeftStrip<kDepth, Size::kKept> keys(Memory::own(0), row), values(Memory::own(kBlockRows), row);
  Sums dk[Size::kColumns / 8] = {}, dv[Size::kColumns / 8] = {};
  int stage = 0;
  for (Step at = begin, next; at.h < end; at = next, stage ^= 1) {
    wait_for_copies();
    __syncthreads();  // this stage is there, and nobody needs the other one any more
    next = {at.h, at.query + kQueries};
    if (next.query >= seeing.end) next = {at.h + 1, begin.query};
    if (next.h < end) copy_step<kDepth>(s, o, b, next, stage ^ 1);
    Sums p[kQueries / 8] = {}, ds[kQueries / 8] = {};
    add_scores(keys, Memory::tile(stage, 0), p);
    add_scores(values, Memory::tile(stage, 1), ds);
    const float *lse = Size::rows(stage), *delta = lse + kQueries;
    take_products(
        s, o.bias.of_head(s, b, at.h), Place<true, kQueries>{key + row, at.query},
        [&](int, int i) {
          return Query{lse[i], delta[i]};
        },
        p, ds);
    add_weighted(p, Memory::tile(stage, 1), column, dv);
    add_weighted(ds, Memory::tile(stage, 0), column, dk);
  }
  if (o.dk != nullptr)
    store_strip(dk, {s.scale, s.scale}, key + row, depth - column, s.key_rows(o.dk, b, kv, depth).from(column));
  if (o.dv != nullptr)
    store_strip(dv, {1, 1}, key + row, value_depth - column, s.key_rows(o.dv, b, kv, value_depth).from(column));
}

template <int kDepth>
void launch_depth(Stream stream, const Heads &s, const Operands &o) {
  const std::int64_t query_tiles = divided_up(s.queries, kBlockRows), key_tiles = divided_up(s.keys, kBlockRows);
  if (o.dq != nullptr)
    launch(stream, dq_mma_kernel<kDepth>,
           {s.batch * s.heads * query_tiles, kThreads, DqSizes<kDepth>::Memory::bytes(2 * kBlockRows)}, s, o,
           query_tiles);
  if (o.dk != nullptr || o.dv != nullptr)
    launch(stream, dkv_mma_kernel<kDepth>,
           {s.batch * s.kv_heads * key_tiles * DkvSizes<kDepth>::kParts, kThreads, DkvSizes<kDepth>::kBytes}, s, o,
           key_tiles);
}
}  // namespace

AttentionLaunch<Operands> attention_grad_on_tensor_cores(const AttentionShape &shape) {
  return by_padded_depth<Operands>(shape, [](auto depth) -> AttentionLaunch<Operands> {
    constexpr int kDepth = decltype(depth)::value;
    return DkvSizes<kDepth>::kBytes <= most_shared() ? launch_depth<kDepth> : nullptr;
  });
}

}  // namespace protrain::backend::cuda
