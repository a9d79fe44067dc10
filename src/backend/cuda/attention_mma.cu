// FusedAttention in bfloat16 on tensor cores. The algorithm is that of attention.cu, but scores, probabilities and sums
// stay in registers. Sums are float32. Probabilities are narrowed to bfloat16 for their product with the values.
#include "backend/cuda/attention_mma.h"

namespace protrain::backend::cuda {

namespace {
template <int kDepth>
struct Sizes {
  static constexpr int kStrips = kDepth <= 128 ? 2 : 1;
  static constexpr int kRows = block_rows(kStrips);
  static constexpr int kKeys = kDepth <= 96 ? 64 : 32;
  static constexpr int kStep = kDepth <= 64 ? 64 : 32;        // keys in a step of the loop
  static constexpr bool kKept = 64 < kDepth && kDepth <= 96;  // queries stay in registers
  using Memory = Stages<kDepth, kKeys, kKept ? kRows : 0, kKept ? 0 : kRows>;
  static_assert(!Memory::kFirstWaits && Memory::kBytes <= kAlwaysShared);
};

// The state of the online softmax of one row, which uses powers of 2 instead of e. `most` is the largest value of
// factor * score in the row so far. `sum` is this lane's part of the row's sum of 2^(factor * score - most).
struct StripSoftmax {
  float most = -INFINITY, sum = 0;
};

// Does one step of online softmax with new scores. First raises each row's `most` to the new largest factor * score.
// Then rescales the row's earlier sum and outputs to the new `most`, replaces each score by 2^(factor * score - most),
// and adds these powers to the sum.
template <int kStrips, int kScores, int kOut>
__device__ void take_strip_scores(float factor, StripSums<kStrips, kScores> &scores, StripSoftmax (&rows)[2 * kStrips],
                                  StripSums<kStrips, kOut> &out) {
  PROTRAIN_UNROLL for (int r = 0; r < 2 * kStrips; ++r) {
    const int m = r / 2, e = r % 2 * 2;
    float most = -INFINITY;
    PROTRAIN_UNROLL for (int n = 0; n < kScores; ++n) most =
        ::fmaxf(most, ::fmaxf(scores[m][n].at[e], scores[m][n].at[e + 1]));
    most = ::fmaxf(rows[r].most, across<4>(most, [](float a, float b) { return ::fmaxf(a, b); }) * factor);
    const float shift = most == -INFINITY ? 0.0f : most;  // no key was seen yet: 2^(-inf - 0) is 0, as it must be
    const float keep = power_of_two(rows[r].most - shift);
    float sum = rows[r].sum * keep;
    PROTRAIN_UNROLL for (int n = 0; n < kScores; ++n) for (float *p : {&scores[m][n].at[e], &scores[m][n].at[e + 1]})
        sum += *p = power_of_two(arith::fma(*p, factor, -shift));
    PROTRAIN_UNROLL for (int n = 0; n < kOut; ++n) out[m][n].at[e] *= keep, out[m][n].at[e + 1] *= keep;
    rows[r] = {most, sum};
  }
}

// Divides a warp's outputs by the sums of the softmax, and writes them to rows of `to` from `first` on. Also writes
// these rows' lse (log-sum-exp).
template <int kStrips, int kOut>
__device__ void finish_rows(const StripSums<kStrips, kOut> &out, const StripSoftmax (&rows)[2 * kStrips],
                            std::int64_t first, int width, const Rows<bf16> &to, float *lse) {
  float factors[2 * kStrips];
  PROTRAIN_UNROLL for (int r = 0; r < 2 * kStrips; ++r) {
    const float sum = across<4>(rows[r].sum, [](float a, float b) { return a + b; });
    factors[r] = sum == 0 ? 1.0f : 1.0f / sum;
    const std::int64_t row = first + lane().g + 8 * r;
    if (lse != nullptr && lane().t == 0 && row < to.positions) lse[row] = rows[r].most * kLn2 + ::logf(sum);
  }
  if (to.at != nullptr) store_strips(out, factors, first, width, to);
}

template <int kDepth>
__global__ void __launch_bounds__(kThreads, 2)
    attention_mma_kernel(Heads s, AttentionOperands<bf16> o, std::int64_t tiles) {
  using Size = Sizes<kDepth>;
  using Memory = typename Size::Memory;
  constexpr int kKeys = Size::kKeys, kStep = Size::kStep, kStrips = Size::kStrips;
  const int depth = static_cast<int>(s.depth), value_depth = static_cast<int>(s.value_depth);
  const std::int64_t head_row = blockIdx.x / tiles, b = head_row / s.heads, h = head_row % s.heads;
  const int first = static_cast<int>(tiles - 1 - blockIdx.x % tiles) * Size::kRows;  // if causal, most work first
  const std::int64_t kv = h / (s.heads / s.kv_heads);
  const Rows<const bf16> k = s.key_rows(o.k, b, kv, depth), v = s.key_rows(o.v, b, kv, value_depth);
  auto copy_tiles = [&](int stage, int key) {
    Memory::tile(stage, 0).template copy<kKeys>(k, key, depth);
    Memory::tile(stage, 1).template copy<kKeys>(v, key, value_depth);
  };

  const Range seen = s.seen(first, Size::kRows);
  const int begin = static_cast<int>(seen.begin) / kKeys * kKeys, end = static_cast<int>(seen.end);
  Memory::own(0).template copy<Size::kRows>(s.query_rows(o.q, b, h, depth), first, depth);
  copy_tiles(0, begin);
  wait_for_copies();
  __syncthreads();
  const int row = warp_index() * warp_rows(kStrips);
  const LeftStrips<kDepth, kStrips, Size::kKept> queries(Memory::own(0), row);
  const Sight<false, kStrips> sight(s, first + row);
  const ScoreTransform transform(s, o.bias, b, h);
  StripSums<kStrips, kDepth / 8> out = {};
  StripSoftmax rows[2 * kStrips];
  int stage = 0;
  for (int key = begin; key < end; key += kKeys, stage ^= 1) {
    wait_for_copies();
    __syncthreads();  // this stage is complete, and all threads are done with the other one
    if (key + kKeys < end) copy_tiles(stage ^ 1, key + kKeys);
    PROTRAIN_KEEP_LOOP for (int part = 0; part < kKeys; part += kStep) {
      if (!sight.some(key + part, kStep)) continue;
      StripSums<kStrips, kStep / 8> scores = {};
      add_scores(queries, Memory::tile(stage, 0), part, scores);
      finish_scores<kStep>(s, transform, sight, key + part, scores, [](int, int, int, float) {});
      take_strip_scores(transform.factor, scores, rows, out);
      add_weighted(scores, Memory::tile(stage, 1), part, 0, out);
    }
  }
  const Rows<bf16> none = {nullptr, 0, s.queries};
  finish_rows(out, rows, first + row, value_depth, o.out == nullptr ? none : s.query_rows(o.out, b, h, value_depth),
              o.lse == nullptr ? nullptr : o.lse + head_row * s.queries);
}

template <int kDepth>
void launch_depth(Stream stream, const Heads &s, const AttentionOperands<bf16> &o) {
  const std::int64_t tiles = divided_up(s.queries, Sizes<kDepth>::kRows);
  launch(stream, attention_mma_kernel<kDepth>, {s.batch * s.heads * tiles, kThreads, Sizes<kDepth>::Memory::kBytes}, s,
         o, tiles);
}
}  // namespace

AttentionLaunch<AttentionOperands<bf16>> attention_on_tensor_cores(const AttentionShape &shape) {
  return by_padded_depth<AttentionOperands<bf16>>(shape, [](auto depth) -> AttentionLaunch<AttentionOperands<bf16>> {
    return launch_depth<decltype(depth)::value>;
  });
}

}  // namespace protrain::backend::cuda
