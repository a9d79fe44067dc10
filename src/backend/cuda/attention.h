// The sizes, masks and operands that attention and its gradient share, and the choice of their kernels.
#pragma once

#include <algorithm>

#include "arith/attention.h"
#include "arith/math.h"
#include "backend/common/attention_shape.h"
#include "backend/cuda/elementwise.h"

namespace protrain::backend::cuda {

// A matrix (positions, width) whose rows are `step` elements apart.
template <typename T>
struct Rows {
  T *at;
  std::int64_t step, positions;

  __device__ Rows from(int column) const { return {at + column, step, positions}; }
};

// Reduces the values of kLanes neighbouring threads to one, with `join`. All of these threads get the same bits.
template <int kLanes, typename Join>
__device__ float across(float value, Join join) {
  for (int mask = kLanes / 2; mask > 0; mask /= 2) value = join(value, from_lane_xor(value, mask));
  return value;
}

// Throws Code::unsupported if documents are packed. `first_keys` is the index of an input that the node has only if
// documents are packed. This input holds, for each query, the first key of the query's document.
inline void refuse_documents(const KernelRequest &request, std::size_t first_keys) {
  require(!has_input(request, first_keys), Code::unsupported, subject(request),
          "attention within packed documents has no kernel for GPUs yet; leave out the option packed");
}

// The shapes of q (B, Sq, H, D), k (B, Sk, Hk, D) and v (B, Sk, Hk, Dv), as kernels take them. `depth` is the head size
// D, and `value_depth` is Dv.
struct Heads {
  std::int64_t batch, queries, keys, heads, kv_heads, depth, value_depth, window;
  std::int64_t bias_b, bias_h, bias_q, bias_k;  // strides of the bias; 0 where it repeats
  float scale, softcap;
  bool causal;

  explicit Heads(const AttentionShape &a)
      : batch(a.batch),
        queries(a.queries),
        keys(a.keys),
        heads(a.heads),
        kv_heads(a.kv_heads),
        depth(a.depth),
        value_depth(a.value_depth),
        window(std::min(a.window, a.keys + a.queries)),  // a window of keys + queries hides no key
        bias_b(a.bias_b),
        bias_h(a.bias_h),
        bias_q(a.bias_q),
        bias_k(a.bias_k),
        scale(a.scale),
        softcap(a.softcap),
        causal(a.causal) {}

  __device__ bool visible(std::int64_t query, std::int64_t key) const {
    const std::int64_t at = query + keys - queries;  // the key at the query's position
    return key < keys && query < queries && (!causal || key <= at) && (window <= 0 || key > at - window);
  }
  // seen() returns the range of keys that at least one of the queries [first, first + count) sees. seeing() returns the
  // range of queries that see at least one of the keys [first, first + count). The range is empty if `first` lies
  // beyond the last query (in seen()) or the last key (in seeing()). Otherwise both ends of the range grow with `first`
  // or stay the same. So among the rows of a tile, the first row has the smallest begin and end, and the last row has
  // the largest.
  __device__ Range seen(std::int64_t first, int count) const {
    const std::int64_t at = first + keys - queries;
    if (first >= queries) return {0, 0};
    return {window > 0 && at >= window ? at - window + 1 : 0, causal && at + count < keys ? at + count : keys};
  }
  __device__ Range seeing(std::int64_t first, int count) const {
    const std::int64_t at = first + queries - keys, end = at + count - 1 + window;
    if (first >= keys) return {0, 0};
    return {causal && at > 0 ? at : 0, window > 0 && end < queries ? end : queries};
  }
  // Returns the score of a query and a key that the query sees. `product` is their dot product. Sets `slope` to the
  // derivative of the softcap; to 1 if there is no softcap.
  __device__ float score(float product, float &slope) const {
    slope = 1;
    if (softcap <= 0) return product * scale;
    const float t = arith::tanh(product * (scale / softcap));
    slope = 1 - t * t;
    return t * softcap;
  }

  // query_rows() returns the rows of one head in (B, Sq, H, width). key_rows() returns the rows of one key head in (B,
  // Sk, Hk, width).
  template <typename T>
  __device__ Rows<T> query_rows(T *at, std::int64_t b, std::int64_t h, std::int64_t width) const {
    return {at + (b * queries * heads + h) * width, heads * width, queries};
  }
  template <typename T>
  __device__ Rows<T> key_rows(T *at, std::int64_t b, std::int64_t kv, std::int64_t width) const {
    return {at + (b * keys * kv_heads + kv) * width, kv_heads * width, keys};
  }
};

template <typename T>
struct Bias {
  const float *wide;  // the bias in float32
  const T *narrow;    // the bias in the operands' type; both nullptr: there is none

  __device__ bool given() const { return wide != nullptr || narrow != nullptr; }
  __device__ Bias of_head(const Heads &s, std::int64_t b, std::int64_t h) const {
    const std::int64_t at = b * s.bias_b + h * s.bias_h;
    return {wide == nullptr ? nullptr : wide + at, narrow == nullptr ? nullptr : narrow + at};
  }
  __device__ float value(std::int64_t at) const { return wide != nullptr ? wide[at] : widened(narrow[at]); }
  __device__ float added(float score, std::int64_t at) const {
    return given() ? arith::biased(score, value(at)) : score;
  }
};
// Returns true if there is a bias, input `index`, and it is float32. Throws Code::unsupported if its type is neither
// float32 nor `dtype`.
inline bool has_wide_bias(const KernelRequest &request, std::size_t index, DType dtype) {
  if (!has_input(request, index)) return false;
  if (request.inputs[index].dtype == DType::f32) return true;
  require_dtype(request, request.inputs[index], dtype);
  return false;
}
template <typename T>
Bias<T> bias_input(const Launch &launch, std::size_t index, bool wide) {
  if (wide) return {optional_input<float>(launch, index), nullptr};
  return {nullptr, optional_input<T>(launch, index)};
}

template <typename T>
struct AttentionOperands {
  const T *q, *k, *v;
  Bias<T> bias;
  T *out;
  float *lse;  // (B, H, Sq); nullptr: not wanted
};
template <typename T>
struct AttentionGradOperands {
  const T *dout, *q, *k, *v, *out;
  const float *lse;  // (B, H, Sq)
  Bias<T> bias;
  T *dq, *dk, *dv;  // nullptr: not wanted
  void *scratch;    // 8 bytes for each of (B, H, Sq)
};

// A function that appends the kernels of attention, or of the wanted gradients, to a stream. There is one function for
// each range of head sizes, because the sizes of tiles are fixed at compile time.
template <typename Operands>
using AttentionLaunch = void (*)(Stream stream, const Heads &heads, const Operands &operands);

// These two functions return the function that computes on tensor cores. They return nullptr if tensor cores cannot be
// used, because the head size exceeds 256, rows are not multiples of 16 bytes, or counts exceed 32 bits.
// attention_grad_on_tensor_cores() also returns nullptr if its tiles do not fit into the device's shared memory.
AttentionLaunch<AttentionOperands<bf16>> attention_on_tensor_cores(const AttentionShape &shape);
AttentionLaunch<AttentionGradOperands<bf16>> attention_grad_on_tensor_cores(const AttentionShape &shape);

}  // namespace protrain::backend::cuda
