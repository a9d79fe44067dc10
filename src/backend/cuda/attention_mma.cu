// FusedAttention in bfloat16 on tensor cores: as attention.cu does it, with scores, probabilities and sums in
// registers. The sums of a row are float32, its probabilities are narrowed for the product with the values.
#include "backend/cuda/attention_mma.h"

namespace protrain::backend::cuda {

namespace {
template <int kDepth>
struct Sizes {
  static constexpr int kKeys = kDepth <= 128 ? 64 : 32;
  static constexpr bool kKept = kDepth <= 128;  // queries, in registers
  using Memory = Stages<kDepth, kKeys, kKept>;
  static_assert(Memory::bytes(kBlockRows) <= 99 << 10);  // what a block of any GPU has
};

// A row's state while keys pass by; `sum` of what this lane has seen of it.
struct Running {
  float most = -INFINITY, sum = 0;
};

// Scores of a strip, log2 of what is summed, become 2^(score - most); sums so far are brought to the new maxima.
template <int kScores, int kOut>
__device__ void take_scores(Sums (&scores)[kScores], Running (&rows)[2], Sums (&out)[kOut]) {
  PROTRAIN_UNROLL for (int r = 0; r < 2; ++r) {
    float most = rows[r].most;
    PROTRAIN_UNROLL for (int n = 0; n < kScores; ++n) most =
        ::fmaxf(most, ::fmaxf(scores[n].at[2 * r], scores[n].at[2 * r + 1]));
    most = across<4>(most, [](float a, float b) { return ::fmaxf(a, b); });
    const float shift = most == -INFINITY ? 0.0f : most;  // no key seen yet: 2^(-inf - 0) is the 0 that is meant
    const float keep = power_of_two(rows[r].most - shift);
    float sum = rows[r].sum * keep;
    PROTRAIN_UNROLL for (int n = 0; n < kScores; ++n) for (float *p : {&scores[n].at[2 * r], &scores[n].at[2 * r + 1]})
        sum += *p = power_of_two(*p - shift);
    PROTRAIN_UNROLL for (int n = 0; n < kOut; ++n) out[n].at[2 * r] *= keep, out[n].at[2 * r + 1] *= keep;
    rows[r] = {most, sum};
  }
}

// Writes a strip's rows from `first` on, and their lse.
template <int kOut>
__device__ void finish(const Sums (&out)[kOut], const Running (&rows)[2], std::int64_t first, int width,
                       const Rows<bf16> &to, float *lse) {
  float factors[2];
  for (int r = 0; r < 2; ++r) {
    const float sum = across<4>(rows[r].sum, [](float a, float b) { return a + b; });
    factors[r] = sum == 0 ? 1.0f : 1.0f / sum;
    const std::int64_t row = first + lane().g + 8 * r;
    if (lse != nullptr && lane().t == 0 && row < to.positions) lse[row] = rows[r].most * kLn2 + ::logf(sum);
  }
  if (to.at != nullptr) store_strip(out, factors, first, width, to);
}

template <int kDepth>
__global__ void __launch_bounds__(kThreads, kDepth <= 64 ? 3 : 2)
    attention_mma_kernel(Heads s, AttentionOperands<bf16> o, std::int64_t tiles) {
  using Memory = typename Sizes<kDepth>::Memory;
  constexpr int kKeys = Sizes<kDepth>::kKeys;
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
  copy_tiles(0, begin);
  wait_for_copies();
  __syncthreads();
  const int row = warp_index() * kStrip;
  const LeftStrip<kDepth, Sizes<kDepth>::kKept> queries(Memory::own(0), row);
  Sums out[kDepth / 8] = {};
  Running rows[2];
  int stage = 0;
  for (std::int64_t key = begin; key < seen.end; key += kKeys, stage ^= 1) {
    wait_for_copies();
    __syncthreads();  // this stage is there, and nobody needs the other one any more
    if (key + kKeys < seen.end) copy_tiles(stage ^ 1, key + kKeys);
    Sums scores[kKeys / 8] = {};
    add_scores(queries, Memory::tile(stage, 0), scores);
    finish_scores(s, bias, Place<false, kKeys>{first + row, key}, scores, [](int, int, float) {});
    take_scores(scores, rows, out);
    add_weighted(scores, Memory::tile(stage, 1), 0, out);
  }
  const Rows<bf16> none = {nullptr, 0, s.queries};
  finish(out, rows, first + row, value_depth, o.out == nullptr ? none : s.query_rows(o.out, b, h, value_depth),
         o.lse == nullptr ? nullptr : o.lse + head_row * s.queries);
}

template <int kDepth>
void launch_depth(Stream stream, const Heads &s, const AttentionOperands<bf16> &o) {
  const std::int64_t tiles = divided_up(s.queries, kBlockRows);
  launch(stream, attention_mma_kernel<kDepth>,
         {s.batch * s.heads * tiles, kThreads, Sizes<kDepth>::Memory::bytes(kBlockRows)}, s, o, tiles);
}
}  // namespace

AttentionLaunch<AttentionOperands<bf16>> attention_on_tensor_cores(const AttentionShape &shape) {
  return by_padded_depth<AttentionOperands<bf16>>(shape, [](auto depth) -> AttentionLaunch<AttentionOperands<bf16>> {
    return launch_depth<decltype(depth)::value>;
  });
}

}  // namespace protrain::backend::cuda
