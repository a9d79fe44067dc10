// FusedAttention: softmax(scale q k^T + masks) v, a tile of queries at a time against the key tiles it sees, with a
// running maximum and sum. (Sq, Sk) never exists.
#include "backend/cuda/attention.h"

#include <algorithm>

namespace protrain::backend::cuda {

namespace {
template <typename T>
struct Operands {
  const T *q, *k, *v;
  const float *wide_bias;  // in float32, or
  const T *bias;           // in the operands' type; nullptr: none
  T *out;
  float *lse;  // nullptr: not wanted
};

// Joins a value over the 16 threads that share rows.
template <typename Join>
__device__ float across(float value, Join join) {
  for (int mask = kSide / 2; mask > 0; mask /= 2) value = join(value, from_lane_xor(value, mask));
  return value;
}

// A row's state while keys pass by.
struct Running {
  float most = -INFINITY, sum = 0;
};

// Raw scores of a row become exp(score - most); returns what sums so far must be multiplied by.
template <int kMicro>
__device__ float take_scores(float (&scores)[kMicro], Running &row) {
  float most = row.most;
  for (int b = 0; b < kMicro; ++b) most = scores[b] > most ? scores[b] : most;
  most = across(most, [](float a, float b) { return b > a ? b : a; });
  const float shift = most == -INFINITY ? 0.0f : most;  // no key seen yet: exp(-inf - 0) is the 0 that is meant
  const float keep = arith::exp(row.most - shift);
  float sum = 0;
  for (int b = 0; b < kMicro; ++b) sum += scores[b] = arith::exp(scores[b] - shift);
  row.sum = row.sum * keep + across(sum, [](float a, float b) { return a + b; });
  row.most = most;
  return keep;
}

template <typename T, int kTile, int kColumns>
__global__ void __launch_bounds__(kSide *kSide) attention_kernel(Heads s, Operands<T> o, std::int64_t tiles) {
  constexpr int kMicro = kTile / kSide;
  const int depth = static_cast<int>(s.depth), value_depth = static_cast<int>(s.value_depth);
  const std::int64_t head_row = blockIdx.x / tiles, first = blockIdx.x % tiles * kTile;
  const std::int64_t b = head_row / s.heads, h = head_row % s.heads, kv = h / (s.heads / s.kv_heads);
  const Rows<T> q{o.q + (b * s.queries * s.heads + h) * depth, s.heads * depth, s.queries};
  const Rows<T> k{o.k + (b * s.keys * s.kv_heads + kv) * depth, s.kv_heads * depth, s.keys};
  const Rows<T> v{o.v + (b * s.keys * s.kv_heads + kv) * value_depth, s.kv_heads * value_depth, s.keys};
  const std::int64_t bias_at = b * s.bias_b + h * s.bias_h;
  const Thread t = thread_of_square();

  float *memory = shared_memory<float>();
  const Tile queries = take_tile(memory, kTile, depth), p = take_tile(memory, kTile, kTile);
  float *operand = memory;  // keys, then values
  const Tile keys = take_tile(memory, kTile, depth), values{operand, value_depth + 1};

  float out[kMicro][kColumns] = {};
  Running rows[kMicro];
  load_tile(q, first, kTile, depth, queries);
  for (std::int64_t key = 0; key < s.keys; key += kTile) {
    if (!s.tiles_meet(first, key, kTile)) continue;
    load_tile(k, key, kTile, depth, keys);
    __syncthreads();
    float scores[kMicro][kMicro];
    dot_rows<kMicro>(queries, keys, depth, scores);
    for (int a = 0; a < kMicro; ++a) {
      const std::int64_t i = first + t.y + kSide * a;
      for (int c = 0; c < kMicro; ++c) {
        const std::int64_t j = key + t.x + kSide * c;
        float slope;
        float score = -INFINITY;
        if (s.visible(i, j)) {
          score = s.score(scores[a][c], slope);
          const std::int64_t at = bias_at + i * s.bias_q + j * s.bias_k;
          if (o.wide_bias != nullptr) score += o.wide_bias[at];
          if (o.bias != nullptr) score += widened(o.bias[at]);
        }
        scores[a][c] = score;
      }
      const float keep = take_scores<kMicro>(scores[a], rows[a]);
      for (int c = 0; c < kColumns; ++c) out[a][c] *= keep;
      for (int c = 0; c < kMicro; ++c) p(t.y + kSide * a, t.x + kSide * c) = scores[a][c];
    }
    __syncthreads();  // keys are not needed any more
    load_tile(v, key, kTile, value_depth, values);
    __syncthreads();
    add_product<false>(p, values, kTile, value_depth, out);
    __syncthreads();
  }
  for (int a = 0; a < kMicro; ++a) {
    const float divisor = rows[a].sum == 0 ? 1.0f : rows[a].sum;
    for (int c = 0; c < kColumns; ++c) out[a][c] /= divisor;
    const std::int64_t i = first + t.y + kSide * a;
    if (o.lse != nullptr && t.x == 0 && i < s.queries)
      o.lse[head_row * s.queries + i] = rows[a].most + ::logf(rows[a].sum);
  }
  const Rows<T> shape{nullptr, s.heads * value_depth, s.queries};
  store_rows<T>(out, shape, first, value_depth, o.out + (b * s.queries * s.heads + h) * value_depth);
}

template <typename T, int kTile, int kColumns>
class Attention : public CudaKernel {
 public:
  explicit Attention(const KernelRequest &request) : shape_(AttentionShape(request, 0, 3)) {
    wide_bias_ = has_input(request, 3) && request.inputs[3].dtype == DType::f32;
    for (std::size_t i : {1, 2}) require_dtype(request, request.inputs[i], request.inputs[0].dtype);
    if (has_input(request, 3) && !wide_bias_) require_dtype(request, request.inputs[3], request.inputs[0].dtype);
    shared_ = sizeof(float) * (tile_floats(kTile, shape_.depth) + tile_floats(kTile, kTile) +
                               tile_floats(kTile, std::max(shape_.depth, shape_.value_depth)));
  }

  void run(Stream stream, const Launch &launch) override {
    const std::int64_t tiles = divided_up(shape_.queries, kTile);
    const Operands<T> operands{input<T>(launch, 0),
                               input<T>(launch, 1),
                               input<T>(launch, 2),
                               wide_bias_ ? optional_input<float>(launch, 3) : nullptr,
                               wide_bias_ ? nullptr : optional_input<T>(launch, 3),
                               output<T>(launch, 0),
                               optional_output<float>(launch, 1)};
    cuda::launch(stream, attention_kernel<T, kTile, kColumns>,
                 {shape_.batch * shape_.heads * tiles, kSide * kSide, shared_}, shape_, operands, tiles);
  }

 private:
  const Heads shape_;
  bool wide_bias_;
  std::size_t shared_;
};
}  // namespace

Made make_attention(const KernelRequest &request, Site &) {
  const std::int64_t depth = std::max(request.inputs.at(0).shape.at(3), request.inputs.at(2).shape.at(3));
  return by_float(request, request.inputs[0], [&]<typename T>(T) {
    return by_depth(request, depth, 128, [&](auto tile, auto columns) -> Made {
      return std::make_unique<Attention<T, decltype(tile)::value, decltype(columns)::value>>(request);
    });
  });
}

}  // namespace protrain::backend::cuda
