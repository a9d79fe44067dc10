// FusedAttentionGrad: computes dq, dk and dv. Scores are computed again, tile by tile, and each query's saved lse
// (log-sum-exp) turns them into probabilities. One kernel sums dq over tiles of keys, another sums dk and dv over tiles
// of queries, each in a fixed order. Both kernels compute all scores.
#include "arith/attention.h"
#include "backend/cuda/attention_tiles.h"

namespace protrain::backend::cuda {

namespace {
// Computes delta (B, H, Sq), the dot products of the rows of out and dout, with a warp for each row.
template <typename T>
__global__ void delta_kernel(Heads s, AttentionGradOperands<T> o, std::int64_t rows, float *delta) {
  const std::int64_t row = thread_index() / kWarp;
  if (row >= rows) return;
  const std::int64_t i = row % s.queries, head_row = row / s.queries, b = head_row / s.heads, h = head_row % s.heads;
  const std::int64_t at = ((b * s.queries + i) * s.heads + h) * s.value_depth;
  float sum = 0;
  for (std::int64_t d = threadIdx.x % kWarp; d < s.value_depth; d += kWarp)
    sum += widened(o.out[at + d]) * widened(o.dout[at + d]);
  sum = across<kWarp>(sum, [](float a, float b) { return a + b; });
  if (threadIdx.x % kWarp == 0) delta[row] = sum;
}

// The operands of one head, in the kernels of dq, dk and dv.
template <typename T>
struct HeadRows {
  Rows<const T> q, dout, k, v;
  const float *lse, *delta;
  Bias<T> bias;
};
template <typename T>
__device__ HeadRows<T> rows_of_head(const Heads &s, const AttentionGradOperands<T> &o, std::int64_t b, std::int64_t h) {
  const std::int64_t kv = h / (s.heads / s.kv_heads), row = (b * s.heads + h) * s.queries;
  return {s.query_rows(o.q, b, h, s.depth),
          s.query_rows(o.dout, b, h, s.value_depth),
          s.key_rows(o.k, b, kv, s.depth),
          s.key_rows(o.v, b, kv, s.value_depth),
          o.lse + row,
          static_cast<const float *>(o.scratch) + row,
          o.bias.of_head(s, b, h)};
}

struct Tiles {
  Tile queries, dout, keys, values, p;
};
template <int kTile>
__device__ Tiles take_tiles(const Heads &s) {
  float *memory = shared_memory<float>();
  const int depth = static_cast<int>(s.depth), value_depth = static_cast<int>(s.value_depth);
  Tiles tiles;
  tiles.queries = take_tile(memory, kTile, depth);
  tiles.dout = take_tile(memory, kTile, value_depth);
  tiles.keys = take_tile(memory, kTile, depth);
  tiles.values = take_tile(memory, kTile, value_depth);
  tiles.p = take_tile(memory, kTile, kTile);
  return tiles;
}
std::size_t grad_shared_bytes(const Heads &s, int tile) {
  return sizeof(float) *
         (2 * tile_floats(tile, s.depth) + 2 * tile_floats(tile, s.value_depth) + tile_floats(tile, tile));
}

// The pairs of a query and a key that this thread computes. The constructor computes the probability p of each pair,
// and ds, the gradient of the pair's dot product q . k.
template <typename T, int kMicro>
struct Pairs {
  float p[kMicro][kMicro], ds[kMicro][kMicro];

  __device__ Pairs(const Heads &s, const HeadRows<T> &head, const Tiles &tiles, std::int64_t query, std::int64_t key) {
    dot_rows<kMicro>(tiles.queries, tiles.keys, static_cast<int>(s.depth), p);
    dot_rows<kMicro>(tiles.dout, tiles.values, static_cast<int>(s.value_depth), ds);
    const Thread t = thread_of_square();
    PROTRAIN_UNROLL for (int a = 0; a < kMicro; ++a) {
      const std::int64_t i = query + t.y + kSide * a;
      const bool inside = i < s.queries;
      const float given = inside ? head.lse[i] : 0.0f, delta = inside ? head.delta[i] : 0.0f;
      const float lse = given == -INFINITY ? 0.0f : given;  // the query saw no key: exp(-inf - 0) is 0
      PROTRAIN_UNROLL for (int c = 0; c < kMicro; ++c) {
        const std::int64_t j = key + t.x + kSide * c;
        float slope = 0, score = -INFINITY;
        if (s.visible(i, j)) score = head.bias.added(s.score(p[a][c], slope), i * s.bias_q + j * s.bias_k);
        p[a][c] = arith::exp(score - lse);
        ds[a][c] = arith::weight_of_score(p[a][c], score) * (ds[a][c] - delta) * s.scale * slope;
      }
    }
  }

  __device__ static void put(const float (&from)[kMicro][kMicro], const Tile &to) {
    const Thread t = thread_of_square();
    PROTRAIN_UNROLL for (int a = 0; a < kMicro; ++a) PROTRAIN_UNROLL for (int c = 0; c < kMicro; ++c)
        to(t.y + kSide * a, t.x + kSide * c) = from[a][c];
  }
};

template <typename T, int kTile, int kColumns>
__global__ void __launch_bounds__(kSide *kSide, 2)
    dq_kernel(Heads s, AttentionGradOperands<T> o, std::int64_t tile_count) {
  constexpr int kMicro = kTile / kSide;
  const int depth = static_cast<int>(s.depth), value_depth = static_cast<int>(s.value_depth);
  const std::int64_t head_row = blockIdx.x / tile_count, first = blockIdx.x % tile_count * kTile;
  const std::int64_t b = head_row / s.heads, h = head_row % s.heads;
  const HeadRows<T> head = rows_of_head(s, o, b, h);
  const Tiles tiles = take_tiles<kTile>(s);
  float dq[kMicro][kColumns] = {};
  load_tile(head.q, first, kTile, depth, tiles.queries);
  load_tile(head.dout, first, kTile, value_depth, tiles.dout);
  const Range seen = s.seen(first, kTile);
  for (std::int64_t key = seen.begin / kTile * kTile; key < seen.end; key += kTile) {
    load_tile(head.k, key, kTile, depth, tiles.keys);
    load_tile(head.v, key, kTile, value_depth, tiles.values);
    __syncthreads();
    const Pairs<T, kMicro> pairs(s, head, tiles, first, key);
    pairs.put(pairs.ds, tiles.p);
    __syncthreads();
    add_product<false>(tiles.p, tiles.keys, kTile, depth, dq);
    __syncthreads();
  }
  store_rows(dq, first, depth, s.query_rows(o.dq, b, h, depth));
}

template <typename T, int kTile, int kColumns>
__global__ void __launch_bounds__(kSide *kSide, 2)
    dkv_kernel(Heads s, AttentionGradOperands<T> o, std::int64_t tile_count) {
  constexpr int kMicro = kTile / kSide;
  const int depth = static_cast<int>(s.depth), value_depth = static_cast<int>(s.value_depth);
  const std::int64_t head_row = blockIdx.x / tile_count, key = blockIdx.x % tile_count * kTile;
  const std::int64_t b = head_row / s.kv_heads, kv = head_row % s.kv_heads, group = s.heads / s.kv_heads;
  const Tiles tiles = take_tiles<kTile>(s);
  const Range seeing = s.seeing(key, kTile);
  float dk[kMicro][kColumns] = {}, dv[kMicro][kColumns] = {};
  load_tile(s.key_rows(o.k, b, kv, depth), key, kTile, depth, tiles.keys);
  load_tile(s.key_rows(o.v, b, kv, value_depth), key, kTile, value_depth, tiles.values);
  for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
    const HeadRows<T> head = rows_of_head(s, o, b, h);
    for (std::int64_t query = seeing.begin / kTile * kTile; query < seeing.end; query += kTile) {
      load_tile(head.q, query, kTile, depth, tiles.queries);
      load_tile(head.dout, query, kTile, value_depth, tiles.dout);
      __syncthreads();
      const Pairs<T, kMicro> pairs(s, head, tiles, query, key);
      pairs.put(pairs.p, tiles.p);
      __syncthreads();
      add_product<true>(tiles.p, tiles.dout, kTile, value_depth, dv);
      __syncthreads();
      pairs.put(pairs.ds, tiles.p);
      __syncthreads();
      add_product<true>(tiles.p, tiles.queries, kTile, depth, dk);
      __syncthreads();
    }
  }
  if (o.dk != nullptr) store_rows(dk, key, depth, s.key_rows(o.dk, b, kv, depth));
  if (o.dv != nullptr) store_rows(dv, key, value_depth, s.key_rows(o.dv, b, kv, value_depth));
}

template <typename T, int kTile, int kColumns>
void launch_grad_tiles(Stream stream, const Heads &s, const AttentionGradOperands<T> &o) {
  const std::size_t shared = grad_shared_bytes(s, kTile);
  const std::int64_t rows = s.batch * s.heads * s.queries;
  launch(stream, delta_kernel<T>, {divided_up(rows, kBlock / kWarp)}, s, o, rows, static_cast<float *>(o.scratch));
  const std::int64_t query_tiles = divided_up(s.queries, kTile), key_tiles = divided_up(s.keys, kTile);
  if (o.dq != nullptr)
    launch(stream, dq_kernel<T, kTile, kColumns>, {s.batch * s.heads * query_tiles, kSide * kSide, shared}, s, o,
           query_tiles);
  if (o.dk != nullptr || o.dv != nullptr)
    launch(stream, dkv_kernel<T, kTile, kColumns>, {s.batch * s.kv_heads * key_tiles, kSide * kSide, shared}, s, o,
           key_tiles);
}

template <typename T>
class AttentionGrad : public CudaKernel {
 public:
  using Way = AttentionLaunch<AttentionGradOperands<T>>;

  explicit AttentionGrad(const KernelRequest &request) : AttentionGrad(request, AttentionShape(request, 1, 6)) {}

  void run(Stream stream, const Launch &launch) override {
    const AttentionGradOperands<T> o{input<T>(launch, 0),
                                     input<T>(launch, 1),
                                     input<T>(launch, 2),
                                     input<T>(launch, 3),
                                     input<T>(launch, 4),
                                     input<float>(launch, 5),
                                     bias_input<T>(launch, 6, wide_bias_),
                                     optional_output<T>(launch, 0),
                                     optional_output<T>(launch, 1),
                                     optional_output<T>(launch, 2),
                                     launch.scratch};
    way_(stream, heads_, o);
  }

 private:
  AttentionGrad(const KernelRequest &request, const AttentionShape &shape)
      : heads_(shape), way_(way_of(request, shape)) {
    for (std::size_t i : {0, 2, 3, 4}) require_dtype(request, request.inputs[i], request.inputs[1].dtype);
    wide_bias_ = has_wide_bias(request, 6, request.inputs[1].dtype);
    scratch_bytes = 2 * sizeof(float) * static_cast<std::uint64_t>(shape.batch * shape.heads * shape.queries);
  }

  static Way way_of(const KernelRequest &request, const AttentionShape &shape) {
    if constexpr (std::is_same_v<T, bf16>)
      if (const Way way = attention_grad_on_tensor_cores(shape)) return way;
    return by_depth<64>(
        request, std::max(shape.depth, shape.value_depth),
        [heads = Heads(shape)](int tile) { return grad_shared_bytes(heads, tile); },
        [](auto tile, auto columns) -> Way {
          return launch_grad_tiles<T, decltype(tile)::value, decltype(columns)::value>;
        });
  }

  const Heads heads_;
  const Way way_;
  bool wide_bias_;
};
}  // namespace

KernelPtr make_attention_grad(const KernelRequest &request, DeviceState &) {
  refuse_documents(request, 7);
  return by_float(request, request.inputs[1],
                  [&]<typename T>(T) -> KernelPtr { return std::make_unique<AttentionGrad<T>>(request); });
}

}  // namespace protrain::backend::cuda
