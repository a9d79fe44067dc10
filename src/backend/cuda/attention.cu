// FusedAttention: softmax(scale q k^T + masks) v. A block of threads computes one tile of queries in a loop over tiles
// of keys. It keeps a running maximum and sum (online softmax, as in FlashAttention), so the (Sq, Sk) scores are never
// in memory as a whole.
#include "backend/cuda/attention_tiles.h"

namespace protrain::backend::cuda {

namespace {
// The running softmax of a row of scores. `most` is the largest score so far. `sum` is the sum of exp(score - most).
struct RunningSoftmax {
  float most = -INFINITY, sum = 0;
};

// Adds scores to the running softmax of a row, and replaces each score by exp(score - most). Returns the factor by
// which the row's outputs so far must be multiplied, because `most` may have grown.
template <int kMicro>
__device__ float take_scores(float (&scores)[kMicro], RunningSoftmax &row) {
  float most = row.most;
  PROTRAIN_UNROLL for (int b = 0; b < kMicro; ++b) most = scores[b] > most ? scores[b] : most;
  most = across<kSide>(most, [](float a, float b) { return b > a ? b : a; });
  const float shift = most == -INFINITY ? 0.0f : most;  // no key was seen yet: exp(-inf - 0) is 0, as it must be
  const float keep = arith::exp(row.most - shift);
  float sum = 0;
  PROTRAIN_UNROLL for (int b = 0; b < kMicro; ++b) sum += scores[b] = arith::exp(scores[b] - shift);
  row.sum = row.sum * keep + across<kSide>(sum, [](float a, float b) { return a + b; });
  row.most = most;
  return keep;
}

template <typename T, int kTile, int kColumns>
__global__ void __launch_bounds__(kSide *kSide) attention_kernel(Heads s, AttentionOperands<T> o, std::int64_t tiles) {
  constexpr int kMicro = kTile / kSide;
  const int depth = static_cast<int>(s.depth), value_depth = static_cast<int>(s.value_depth);
  const std::int64_t head_row = blockIdx.x / tiles, first = blockIdx.x % tiles * kTile;
  const std::int64_t b = head_row / s.heads, h = head_row % s.heads, kv = h / (s.heads / s.kv_heads);
  const Rows<const T> q = s.query_rows(o.q, b, h, depth), k = s.key_rows(o.k, b, kv, depth),
                      v = s.key_rows(o.v, b, kv, value_depth);
  const Bias<T> bias = o.bias.of_head(s, b, h);
  const Thread t = thread_of_square();

  float *memory = shared_memory<float>();
  const Tile queries = take_tile(memory, kTile, depth), p = take_tile(memory, kTile, kTile);
  float *operand = memory;  // keys, then values
  const Tile keys = take_tile(memory, kTile, depth), values{operand, value_depth + 1};

  float out[kMicro][kColumns] = {};
  RunningSoftmax rows[kMicro];
  load_tile(q, first, kTile, depth, queries);
  const Range seen = s.seen(first, kTile);
  for (std::int64_t key = seen.begin / kTile * kTile; key < seen.end; key += kTile) {
    load_tile(k, key, kTile, depth, keys);
    __syncthreads();
    float scores[kMicro][kMicro];
    dot_rows<kMicro>(queries, keys, depth, scores);
    PROTRAIN_UNROLL for (int a = 0; a < kMicro; ++a) {
      const std::int64_t i = first + t.y + kSide * a;
      PROTRAIN_UNROLL for (int c = 0; c < kMicro; ++c) {
        const std::int64_t j = key + t.x + kSide * c;
        float slope;
        scores[a][c] =
            s.visible(i, j) ? bias.added(s.score(scores[a][c], slope), i * s.bias_q + j * s.bias_k) : -INFINITY;
      }
      const float keep = take_scores<kMicro>(scores[a], rows[a]);
      PROTRAIN_UNROLL for (int c = 0; c < kColumns; ++c) out[a][c] *= keep;
      PROTRAIN_UNROLL for (int c = 0; c < kMicro; ++c) p(t.y + kSide * a, t.x + kSide * c) = scores[a][c];
    }
    __syncthreads();  // all threads are done with the keys
    load_tile(v, key, kTile, value_depth, values);
    __syncthreads();
    add_product<false>(p, values, kTile, value_depth, out);
    __syncthreads();
  }
  PROTRAIN_UNROLL for (int a = 0; a < kMicro; ++a) {
    const float divisor = rows[a].sum == 0 ? 1.0f : rows[a].sum;
    PROTRAIN_UNROLL for (int c = 0; c < kColumns; ++c) out[a][c] /= divisor;
    const std::int64_t i = first + t.y + kSide * a;
    if (o.lse != nullptr && t.x == 0 && i < s.queries)
      o.lse[head_row * s.queries + i] = rows[a].most + ::logf(rows[a].sum);
  }
  if (o.out != nullptr) store_rows(out, first, value_depth, s.query_rows(o.out, b, h, value_depth));
}

std::size_t shared_bytes(const Heads &s, int tile) {
  return sizeof(float) *
         (tile_floats(tile, s.depth) + tile_floats(tile, tile) + tile_floats(tile, std::max(s.depth, s.value_depth)));
}

template <typename T, int kTile, int kColumns>
void launch_tiles(Stream stream, const Heads &s, const AttentionOperands<T> &o) {
  const std::int64_t tiles = divided_up(s.queries, kTile);
  launch(stream, attention_kernel<T, kTile, kColumns>,
         {s.batch * s.heads * tiles, kSide * kSide, shared_bytes(s, kTile)}, s, o, tiles);
}

template <typename T>
class Attention : public CudaKernel {
 public:
  using Way = AttentionLaunch<AttentionOperands<T>>;

  explicit Attention(const KernelRequest &request) : Attention(request, AttentionShape(request, 0, 3)) {}

  void run(Stream stream, const Launch &launch) override {
    way_(stream, heads_,
         {input<T>(launch, 0), input<T>(launch, 1), input<T>(launch, 2), bias_input<T>(launch, 3, wide_bias_),
          optional_output<T>(launch, 0), optional_output<float>(launch, 1)});
  }

 private:
  Attention(const KernelRequest &request, const AttentionShape &shape) : heads_(shape), way_(way_of(request, shape)) {
    for (std::size_t i : {1, 2}) require_dtype(request, request.inputs[i], request.inputs[0].dtype);
    wide_bias_ = has_wide_bias(request, 3, request.inputs[0].dtype);
  }

  static Way way_of(const KernelRequest &request, const AttentionShape &shape) {
    if constexpr (std::is_same_v<T, bf16>)
      if (const Way way = attention_on_tensor_cores(shape)) return way;
    return by_depth<128>(
        request, std::max(shape.depth, shape.value_depth),
        [heads = Heads(shape)](int tile) { return shared_bytes(heads, tile); },
        [](auto tile, auto columns) -> Way {
          return launch_tiles<T, decltype(tile)::value, decltype(columns)::value>;
        });
  }

  const Heads heads_;
  const Way way_;
  bool wide_bias_;
};
}  // namespace

KernelPtr make_attention(const KernelRequest &request, DeviceState &) {
  refuse_documents(request, 4);
  return by_float(request, request.inputs[0],
                  [&]<typename T>(T) -> KernelPtr { return std::make_unique<Attention<T>>(request); });
}

}  // namespace protrain::backend::cuda
