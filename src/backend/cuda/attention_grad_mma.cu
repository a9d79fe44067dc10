// FusedAttentionGrad in bfloat16 on tensor cores. As in attention_grad.cu, one kernel sums dq for strips of 16 queries,
// and another sums dk and dv for strips of 16 keys. Scores, probabilities and sums stay in registers. Sums are float32.
// Probabilities and gradients of scores are narrowed to bfloat16 where they are left operands of products.
#include "arith/attention.h"
#include "backend/cuda/attention_mma.h"

namespace protrain::backend::cuda {

namespace {
using NarrowOperands = AttentionGradOperands<bf16>;

// Probabilities above this threshold count as 1 (see arith::weight_of_score). A probability of 1 can come out too
// small, by up to 2^-16 with scores of about 64, because lse is rounded when it is converted to base 2. Other
// probabilities above the threshold count as 1 too. This does no harm, because the products round probabilities to
// bfloat16, which is far coarser.
constexpr float kAlmostOne = 1 - 0x1p-16f;

// Two numbers of a query, from which the gradients of its scores are computed. A query's delta is the dot product of
// its out and dout.
struct alignas(8) Query {
  float log2_sum;  // lse in base 2; 0 if the query saw no key, so that 2^(-inf - log2_sum) is 0, not NaN
  float minus_delta;
};

// Fills the array `queries` (B, H, Sq) from lse and from the rows of out and dout. kLanes threads read a row together,
// each of them 16 bytes at a time.
template <int kLanes>
__global__ void queries_kernel(Heads s, NarrowOperands o, int rows, Query *queries) {
  const std::int64_t at = thread_index() / kLanes;
  // The row's index in (B, Sq, H). Threads without a row of their own compute the last row again, because across()
  // needs whole warps.
  const int row = at < rows ? static_cast<int>(at) : rows - 1;
  const int heads = static_cast<int>(s.heads), count = static_cast<int>(s.queries),
            width = static_cast<int>(s.value_depth);
  const int token = row / heads, h = row - token * heads, b = token / count, i = token - b * count;
  const std::int64_t begin = static_cast<std::int64_t>(row) * width;
  float sum = 0;
  for (int column = static_cast<int>(threadIdx.x) % kLanes * 8; column < width; column += kLanes * 8) {
    const auto out = load<8>(o.out + begin + column), dout = load<8>(o.dout + begin + column);
    PROTRAIN_UNROLL for (int e = 0; e < 8; ++e) sum = arith::fma(widened(out.at[e]), widened(dout.at[e]), sum);
  }
  sum = across<kLanes>(sum, [](float a, float b) { return a + b; });
  if (threadIdx.x % kLanes != 0 || at >= rows) return;
  const std::int64_t to = (static_cast<std::int64_t>(b) * heads + h) * count + i;
  const float lse = o.lse[to];
  queries[to] = {lse == -INFINITY ? 0.0f : lse * kLog2E, -sum};
}

// On entry p holds scores, and ds holds (dout . v - delta) times the slope of the softcap. Replaces p by the
// probabilities, and ds by the gradients of the dot products q . k. These gradients still lack the factor `scale`.
// `factor` is ScoreTransform::factor. query_of(r, column) returns the Query of an element.
template <int kStrips, int kTiles, typename QueryOf>
__device__ void take_products(float factor, const QueryOf &query_of, StripSums<kStrips, kTiles> &p,
                              StripSums<kStrips, kTiles> &ds) {
  for_elements<kStrips, kTiles>([&](int m, int n, int e, int r, int column) {
    float &each = p[m][n].at[e];
    each = power_of_two(arith::fma(each, factor, -query_of(r, column).log2_sum));
    ds[m][n].at[e] *= each > kAlmostOne ? 0.0f : each;  // see arith::weight_of_score
  });
}

template <int kDepth, int kStrips>
struct DqSizes {
  static constexpr int kRows = block_rows(kStrips);
  static constexpr int kKeys = kDepth <= 64 ? 64 : 32;
  static constexpr int kStep = 32;             // keys in a step of the loop
  static constexpr bool kKept = kDepth <= 64;  // queries and dout stay in registers
  using Memory = Stages<kDepth, kKeys, kKept ? 2 * kRows : 0, kKept ? 0 : 2 * kRows>;
};

template <int kDepth, int kStrips>
__global__ void __launch_bounds__(kThreads, 2)
    dq_mma_kernel(Heads s, NarrowOperands o, const Query *queries, std::int64_t tiles) {
  using Size = DqSizes<kDepth, kStrips>;
  using Memory = typename Size::Memory;
  constexpr int kKeys = Size::kKeys, kStep = Size::kStep, kRows = Size::kRows;
  const int depth = static_cast<int>(s.depth), value_depth = static_cast<int>(s.value_depth);
  const std::int64_t head_row = blockIdx.x / tiles, b = head_row / s.heads, h = head_row % s.heads;
  const int first = static_cast<int>(tiles - 1 - blockIdx.x % tiles) * kRows;  // if causal, most work first
  const std::int64_t kv = h / (s.heads / s.kv_heads);
  const Rows<const bf16> k = s.key_rows(o.k, b, kv, depth), v = s.key_rows(o.v, b, kv, value_depth);
  auto copy_tiles = [&](int stage, int key) {
    Memory::tile(stage, 0).template copy<kKeys>(k, key, depth);
    Memory::tile(stage, 1).template copy<kKeys>(v, key, value_depth);
  };

  const Range seen = s.seen(first, kRows);
  const int begin = static_cast<int>(seen.begin) / kKeys * kKeys, end = static_cast<int>(seen.end);
  Memory::own(0).template copy<kRows>(s.query_rows(o.q, b, h, depth), first, depth);
  Memory::own(kRows).template copy<kRows>(s.query_rows(o.dout, b, h, value_depth), first, value_depth);
  if (!Memory::kFirstWaits) copy_tiles(0, begin);
  const int row = warp_index() * warp_rows(kStrips);
  Query rows[2 * kStrips] = {};
  PROTRAIN_UNROLL for (int r = 0; r < 2 * kStrips; ++r) {
    const int i = first + row + lane().g + 8 * r;
    if (i < s.queries) rows[r] = queries[head_row * s.queries + i];
  }
  wait_for_copies();
  __syncthreads();
  const LeftStrips<kDepth, kStrips, Size::kKept> q(Memory::own(0), row), dout(Memory::own(kRows), row);
  if (Memory::kFirstWaits) {
    __syncthreads();
    copy_tiles(0, begin);
  }
  const Sight<false, kStrips> sight(s, first + row);
  const ScoreTransform transform(s, o.bias, b, h);
  StripSums<kStrips, kDepth / 8> dq = {};
  int stage = 0;
  for (int key = begin; key < end; key += kKeys, stage ^= 1) {
    wait_for_copies();
    __syncthreads();  // this stage is complete, and all threads are done with the other one
    if (key + kKeys < end) copy_tiles(stage ^ 1, key + kKeys);
    PROTRAIN_KEEP_LOOP for (int part = 0; part < kKeys; part += kStep) {
      if (!sight.some(key + part, kStep)) continue;
      StripSums<kStrips, kStep / 8> p = {}, ds;
      for_elements<kStrips, kStep / 8>([&](int m, int n, int e, int r, int) { ds[m][n].at[e] = rows[r].minus_delta; });
      add_scores(q, Memory::tile(stage, 0), part, p);
      add_scores(dout, Memory::tile(stage, 1), part, ds);
      finish_scores<kStep>(s, transform, sight, key + part, p,
                           [&](int m, int n, int e, float slope) { ds[m][n].at[e] *= slope; });
      take_products(
          transform.factor, [&](int r, int) { return rows[r]; }, p, ds);
      add_weighted(ds, Memory::tile(stage, 0), part, 0, dq);
    }
  }
  store_strips(dq, s.scale, first + row, depth, s.query_rows(o.dq, b, h, depth));
}

template <int kDepth>
struct DkvSizes {
  static constexpr int kStrips = kDepth <= 64 ? 2 : 1;
  static constexpr int kRows = block_rows(kStrips);
  static constexpr int kQueries = kDepth <= 64 ? 64 : 32;
  static constexpr int kStep = kDepth <= 64 ? 16 : 32;               // queries in a step of the loop
  static constexpr bool kKept = kDepth <= 128;                       // keys stay in registers
  static constexpr int kColumns = kDepth <= 128 ? kDepth : 128;      // columns of dk and dv that a block sums
  static constexpr int kParts = (kDepth + kColumns - 1) / kColumns;  // blocks that work on the same keys
  using Memory = Stages<kDepth, kQueries, kKept ? kRows : 0, kKept ? kRows : 2 * kRows>;
  static constexpr std::size_t kBytes = Memory::kBytes + 2 * kQueries * sizeof(Query);

  __device__ static Query *queries(int stage) {
    return shared_memory<Query>() + Memory::kBytes / sizeof(Query) + stage * kQueries;
  }
};

// One step of the loop over tiles of queries: a head h that shares the block's keys, and the tile's first query.
struct QueryTile {
  int h, query;
};

template <int kDepth>
__device__ void copy_step(const Heads &s, const NarrowOperands &o, const Query *queries, std::int64_t b,
                          const QueryTile &at, int stage) {
  using Size = DkvSizes<kDepth>;
  using Memory = typename Size::Memory;
  const int depth = static_cast<int>(s.depth), value_depth = static_cast<int>(s.value_depth);
  Memory::tile(stage, 0).template copy<Size::kQueries>(s.query_rows(o.q, b, at.h, depth), at.query, depth);
  Memory::tile(stage, 1).template copy<Size::kQueries>(s.query_rows(o.dout, b, at.h, value_depth), at.query,
                                                       value_depth);
  const int i = static_cast<int>(threadIdx.x);
  static_assert(Size::kQueries <= kThreads);
  if (i >= Size::kQueries) return;
  const Query *from = queries + (b * s.heads + at.h) * s.queries;
  const bool given = at.query + i < s.queries;
  copy_async<sizeof(Query)>(Size::queries(stage) + i, given ? from + at.query + i : from, given);
}

template <int kDepth>
__global__ void __launch_bounds__(kThreads, 2)
    dkv_mma_kernel(Heads s, NarrowOperands o, const Query *queries, std::int64_t tiles) {
  using Size = DkvSizes<kDepth>;
  using Memory = typename Size::Memory;
  constexpr int kQueries = Size::kQueries, kStep = Size::kStep, kStrips = Size::kStrips, kRows = Size::kRows;
  const int depth = static_cast<int>(s.depth), value_depth = static_cast<int>(s.value_depth);
  const int column = static_cast<int>(blockIdx.x) % Size::kParts * Size::kColumns;
  const std::int64_t head_row = blockIdx.x / Size::kParts / tiles, b = head_row / s.kv_heads,
                     kv = head_row % s.kv_heads, group = s.heads / s.kv_heads;
  const int key = static_cast<int>(blockIdx.x / Size::kParts % tiles) * kRows;
  const Range seeing = s.seeing(key, kRows);
  const int last = static_cast<int>(seeing.end);
  const QueryTile begin{static_cast<int>(kv * group), static_cast<int>(seeing.begin) / kQueries * kQueries};
  const int end = seeing.begin < seeing.end ? begin.h + static_cast<int>(group) : begin.h;  // behind the last head

  Memory::own(0).template copy<kRows>(s.key_rows(o.k, b, kv, depth), key, depth);
  Memory::own(kRows).template copy<kRows>(s.key_rows(o.v, b, kv, value_depth), key, value_depth);
  static_assert(!Memory::kFirstWaits);
  copy_step<kDepth>(s, o, queries, b, begin, 0);
  wait_for_copies();
  __syncthreads();
  const int row = warp_index() * warp_rows(kStrips);
  const LeftStrips<kDepth, kStrips, Size::kKept> k(Memory::own(0), row);
  const LeftStrips<kDepth, kStrips, false> v(Memory::own(kRows), row);
  const Sight<true, kStrips> sight(s, key + row);
  ScoreTransform transform(s, o.bias, b, begin.h);
  StripSums<kStrips, Size::kColumns / 8> dk = {}, dv = {};
  const auto after = [&](const QueryTile &at) {
    const int query = unforeseen(at.query) + kQueries;
    return query < last ? QueryTile{at.h, query} : QueryTile{at.h + 1, begin.query};
  };
  int stage = 0;
  for (QueryTile at = begin; at.h < end; at = after(at), stage ^= 1) {
    wait_for_copies();
    __syncthreads();  // this stage is complete, and all threads are done with the other one
    const QueryTile next = after(at);
    if (next.h < end) copy_step<kDepth>(s, o, queries, b, next, stage ^ 1);
    transform.h = at.h;
    PROTRAIN_KEEP_LOOP for (int part = 0; part < kQueries; part += kStep) {
      if (!sight.some(at.query + part, kStep)) continue;
      const Query *of = Size::queries(stage) + part;
      StripSums<kStrips, kStep / 8> p = {}, ds;
      for_elements<kStrips, kStep / 8>([&](int m, int n, int e, int, int i) { ds[m][n].at[e] = of[i].minus_delta; });
      add_scores(k, Memory::tile(stage, 0), part, p);
      add_scores(v, Memory::tile(stage, 1), part, ds);
      finish_scores<kStep>(s, transform, sight, at.query + part, p,
                           [&](int m, int n, int e, float slope) { ds[m][n].at[e] *= slope; });
      take_products(
          transform.factor, [&](int, int i) { return of[i]; }, p, ds);
      add_weighted(p, Memory::tile(stage, 1), part, column, dv);
      add_weighted(ds, Memory::tile(stage, 0), part, column, dk);
    }
  }
  if (o.dk != nullptr)
    store_strips(dk, s.scale, key + row, depth - column, s.key_rows(o.dk, b, kv, depth).from(column));
  if (o.dv != nullptr)
    store_strips(dv, 1, key + row, value_depth - column, s.key_rows(o.dv, b, kv, value_depth).from(column));
}

template <int kDepth, int kStrips>
void launch_strips(Stream stream, const Heads &s, const NarrowOperands &o, const Query *queries) {
  using Size = DqSizes<kDepth, kStrips>;
  const std::int64_t tiles = divided_up(s.queries, Size::kRows);
  launch(stream, dq_mma_kernel<kDepth, kStrips>, {s.batch * s.heads * tiles, kThreads, Size::Memory::kBytes}, s, o,
         queries, tiles);
}

// Launches the dq kernel. Each warp has two strips of 16 queries if their sums fit into registers and the block's rows
// fit into the device's shared memory. Otherwise each warp has one strip.
template <int kDepth>
void launch_dq(Stream stream, const Heads &s, const NarrowOperands &o, const Query *queries) {
  constexpr std::size_t bytes = DqSizes<kDepth, 2>::Memory::kBytes;
  if constexpr (kDepth > 128)
    launch_strips<kDepth, 1>(stream, s, o, queries);
  else if constexpr (bytes <= kAlwaysShared)
    launch_strips<kDepth, 2>(stream, s, o, queries);
  else
    (bytes <= most_shared() ? launch_strips<kDepth, 2> : launch_strips<kDepth, 1>)(stream, s, o, queries);
}

template <int kDepth>
void launch_grad_depth(Stream stream, const Heads &s, const NarrowOperands &o) {
  using Size = DkvSizes<kDepth>;
  auto *queries = static_cast<Query *>(o.scratch);
  const auto rows = static_cast<int>(s.batch * s.queries * s.heads);
  constexpr int kLanes = kDepth <= 64 ? 8 : 16;
  launch(stream, queries_kernel<kLanes>, {divided_up(rows, kBlock / kLanes)}, s, o, rows, queries);
  if (o.dq != nullptr) launch_dq<kDepth>(stream, s, o, queries);
  const std::int64_t tiles = divided_up(s.keys, Size::kRows);
  if (o.dk != nullptr || o.dv != nullptr)
    launch(stream, dkv_mma_kernel<kDepth>, {s.batch * s.kv_heads * tiles * Size::kParts, kThreads, Size::kBytes}, s, o,
           queries, tiles);
}
}  // namespace

AttentionLaunch<NarrowOperands> attention_grad_on_tensor_cores(const AttentionShape &shape) {
  return by_padded_depth<NarrowOperands>(shape, [](auto depth) -> AttentionLaunch<NarrowOperands> {
    constexpr int kDepth = decltype(depth)::value;
    static_assert(DqSizes<kDepth, 1>::Memory::kBytes <= std::max(DkvSizes<kDepth>::kBytes, kAlwaysShared));
    return DkvSizes<kDepth>::kBytes <= most_shared() ? launch_grad_depth<kDepth> : nullptr;
  });
}

}  // namespace protrain::backend::cuda
