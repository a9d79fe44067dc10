// FusedAttentionGrad: scores are made again, tile by tile, and turned into probabilities by the saved lse. Tiles of
// queries sum up dq, tiles of keys dk and dv, each in a fixed order; what both need is made twice.
#include "backend/cuda/attention.h"
#include "backend/cuda/fold.h"

#include <algorithm>

namespace protrain::backend::cuda {

namespace {
template <typename T>
struct Operands {
  const T *dout, *q, *k, *v, *out;
  const float *lse, *delta;  // (B, H, Sq)
  const float *wide_bias;    // in float32, or
  const T *bias;             // in the operands' type; nullptr: none
  T *dq, *dk, *dv;           // nullptr: not wanted
};

// delta (B, H, Sq) = out . dout: a warp for each row.
template <typename T>
__global__ void delta_kernel(Heads s, Operands<T> o, float *delta) {
  const std::int64_t row = blockIdx.x;  // (B, H, Sq)
  const std::int64_t i = row % s.queries, head_row = row / s.queries, b = head_row / s.heads, h = head_row % s.heads;
  const std::int64_t at = ((b * s.queries + i) * s.heads + h) * s.value_depth;
  const auto sum = fold_terms<Plus, float>(
      s.value_depth, [&](std::int64_t d) { return widened(o.out[at + d]) * widened(o.dout[at + d]); });
  if (threadIdx.x == 0) delta[row] = sum;
}

// Where the heads of a block begin.
template <typename T>
struct HeadRows {
  Rows<T> q, dout, k, v;
  std::int64_t row;   // of lse and delta
  std::int64_t bias;  // of the bias
};
template <typename T>
__device__ HeadRows<T> places_of(const Heads &s, const Operands<T> &o, std::int64_t b, std::int64_t h) {
  const std::int64_t kv = h / (s.heads / s.kv_heads), queries = b * s.queries * s.heads + h,
                     keys = b * s.keys * s.kv_heads + kv;
  return {{o.q + queries * s.depth, s.heads * s.depth, s.queries},
          {o.dout + queries * s.value_depth, s.heads * s.value_depth, s.queries},
          {o.k + keys * s.depth, s.kv_heads * s.depth, s.keys},
          {o.v + keys * s.value_depth, s.kv_heads * s.value_depth, s.keys},
          (b * s.heads + h) * s.queries,
          b * s.bias_b + h * s.bias_h};
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
std::size_t shared_bytes(const Heads &s, int tile) {
  return sizeof(float) *
         (2 * tile_floats(tile, s.depth) + 2 * tile_floats(tile, s.value_depth) + tile_floats(tile, tile));
}

// Probabilities of the thread's pairs, and gradients of their raw scores.
template <typename T, int kMicro>
struct Pairs {
  float p[kMicro][kMicro], ds[kMicro][kMicro];

  __device__ Pairs(const Heads &s, const Operands<T> &o, const HeadRows<T> &at, const Tiles &tiles, std::int64_t query,
                   std::int64_t key) {
    dot_rows<kMicro>(tiles.queries, tiles.keys, static_cast<int>(s.depth), p);
    dot_rows<kMicro>(tiles.dout, tiles.values, static_cast<int>(s.value_depth), ds);
    const Thread t = thread_of_square();
    for (int a = 0; a < kMicro; ++a) {
      const std::int64_t i = query + t.y + kSide * a;
      const bool inside = i < s.queries;
      const float given = inside ? o.lse[at.row + i] : 0.0f, delta = inside ? o.delta[at.row + i] : 0.0f;
      const float lse = given == -INFINITY ? 0.0f : given;  // saw no key: its scores are -inf, their exp 0
      for (int c = 0; c < kMicro; ++c) {
        const std::int64_t j = key + t.x + kSide * c;
        float slope = 0, score = -INFINITY;
        if (s.visible(i, j)) {
          score = s.score(p[a][c], slope);
          const std::int64_t bias = at.bias + i * s.bias_q + j * s.bias_k;
          if (o.wide_bias != nullptr) score += o.wide_bias[bias];
          if (o.bias != nullptr) score += widened(o.bias[bias]);
        }
        p[a][c] = arith::exp(score - lse);
        ds[a][c] = p[a][c] * (ds[a][c] - delta) * s.scale * slope;
      }
    }
  }

  __device__ static void put(const float (&from)[kMicro][kMicro], const Tile &to) {
    const Thread t = thread_of_square();
    for (int a = 0; a < kMicro; ++a)
      for (int c = 0; c < kMicro; ++c) to(t.y + kSide * a, t.x + kSide * c) = from[a][c];
  }
};

template <typename T, int kTile, int kColumns>
__global__ void __launch_bounds__(kSide *kSide) dq_kernel(Heads s, Operands<T> o, std::int64_t tile_count) {
  constexpr int kMicro = kTile / kSide;
  const int depth = static_cast<int>(s.depth), value_depth = static_cast<int>(s.value_depth);
  const std::int64_t head_row = blockIdx.x / tile_count, first = blockIdx.x % tile_count * kTile;
  const std::int64_t b = head_row / s.heads, h = head_row % s.heads;
  const HeadRows<T> at = places_of(s, o, b, h);
  const Tiles tiles = take_tiles<kTile>(s);
  float dq[kMicro][kColumns] = {};
  load_tile(at.q, first, kTile, depth, tiles.queries);
  load_tile(at.dout, first, kTile, value_depth, tiles.dout);
  for (std::int64_t key = 0; key < s.keys; key += kTile) {
    if (!s.tiles_meet(first, key, kTile)) continue;
    load_tile(at.k, key, kTile, depth, tiles.keys);
    load_tile(at.v, key, kTile, value_depth, tiles.values);
    __syncthreads();
    const Pairs<T, kMicro> pairs(s, o, at, tiles, first, key);
    pairs.put(pairs.ds, tiles.p);
    __syncthreads();
    add_product<false>(tiles.p, tiles.keys, kTile, depth, dq);
    __syncthreads();
  }
  store_rows<T>(dq, at.q, first, depth, o.dq + (b * s.queries * s.heads + h) * s.depth);
}

template <typename T, int kTile, int kColumns>
__global__ void __launch_bounds__(kSide *kSide) dkv_kernel(Heads s, Operands<T> o, std::int64_t tile_count) {
  constexpr int kMicro = kTile / kSide;
  const int depth = static_cast<int>(s.depth), value_depth = static_cast<int>(s.value_depth);
  const std::int64_t head_row = blockIdx.x / tile_count, key = blockIdx.x % tile_count * kTile;
  const std::int64_t b = head_row / s.kv_heads, kv = head_row % s.kv_heads, group = s.heads / s.kv_heads;
  const Tiles tiles = take_tiles<kTile>(s);
  const HeadRows<T> shape = places_of(s, o, b, kv * group);
  float dk[kMicro][kColumns] = {}, dv[kMicro][kColumns] = {};
  load_tile(shape.k, key, kTile, depth, tiles.keys);
  load_tile(shape.v, key, kTile, value_depth, tiles.values);
  for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
    const HeadRows<T> at = places_of(s, o, b, h);
    for (std::int64_t query = 0; query < s.queries; query += kTile) {
      if (!s.tiles_meet(query, key, kTile)) continue;
      load_tile(at.q, query, kTile, depth, tiles.queries);
      load_tile(at.dout, query, kTile, value_depth, tiles.dout);
      __syncthreads();
      const Pairs<T, kMicro> pairs(s, o, at, tiles, query, key);
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
  const std::int64_t first = b * s.keys * s.kv_heads + kv;
  if (o.dk != nullptr) store_rows<T>(dk, shape.k, key, depth, o.dk + first * s.depth);
  if (o.dv != nullptr) store_rows<T>(dv, shape.v, key, value_depth, o.dv + first * s.value_depth);
}

template <typename T, int kTile, int kColumns>
class AttentionGrad : public CudaKernel {
 public:
  explicit AttentionGrad(const KernelRequest &request) : shape_(AttentionShape(request, 1, 6)) {
    wide_bias_ = has_input(request, 6) && request.inputs[6].dtype == DType::f32;
    for (std::size_t i : {0, 2, 3, 4}) require_dtype(request, request.inputs[i], request.inputs[1].dtype);
    if (has_input(request, 6) && !wide_bias_) require_dtype(request, request.inputs[6], request.inputs[1].dtype);
    rows_ = shape_.batch * shape_.heads * shape_.queries;
    scratch_bytes = checked_multiply(static_cast<std::uint64_t>(rows_), sizeof(float));
  }

  void run(Stream stream, const Launch &launch) override {
    auto *delta = static_cast<float *>(launch.scratch);
    const Operands<T> o{input<T>(launch, 0),
                        input<T>(launch, 1),
                        input<T>(launch, 2),
                        input<T>(launch, 3),
                        input<T>(launch, 4),
                        input<float>(launch, 5),
                        delta,
                        wide_bias_ ? optional_input<float>(launch, 6) : nullptr,
                        wide_bias_ ? nullptr : optional_input<T>(launch, 6),
                        optional_output<T>(launch, 0),
                        optional_output<T>(launch, 1),
                        optional_output<T>(launch, 2)};
    cuda::launch(stream, delta_kernel<T>, {rows_, kWarp}, shape_, o, delta);
    const std::size_t shared = shared_bytes(shape_, kTile);
    const std::int64_t query_tiles = divided_up(shape_.queries, kTile), key_tiles = divided_up(shape_.keys, kTile);
    if (o.dq != nullptr)
      cuda::launch(stream, dq_kernel<T, kTile, kColumns>,
                   {shape_.batch * shape_.heads * query_tiles, kSide * kSide, shared}, shape_, o, query_tiles);
    if (o.dk != nullptr || o.dv != nullptr)
      cuda::launch(stream, dkv_kernel<T, kTile, kColumns>,
                   {shape_.batch * shape_.kv_heads * key_tiles, kSide * kSide, shared}, shape_, o, key_tiles);
  }

 private:
  const Heads shape_;
  bool wide_bias_;
  std::int64_t rows_;
};
}  // namespace

Made make_attention_grad(const KernelRequest &request, Site &) {
  const std::int64_t depth = std::max(request.inputs.at(1).shape.at(3), request.inputs.at(3).shape.at(3));
  return by_float(request, request.inputs[1], [&]<typename T>(T) {
    return by_depth(request, depth, 64, [&](auto tile, auto columns) -> Made {
      return std::make_unique<AttentionGrad<T, decltype(tile)::value, decltype(columns)::value>>(request);
    });
  });
}

}  // namespace protrain::backend::cuda
