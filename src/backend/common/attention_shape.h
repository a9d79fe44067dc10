// The shapes of FusedAttention and of its gradient: q (B, Sq, H, D), k (B, Sk, Hk, D), v (B, Sk, Hk, Dv). B is the
// batch, Sq the queries, Sk the keys, H the heads, Hk the key heads, D the head size of q and k, and Dv that of v.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "base/threads.h"

namespace protrain::backend {

struct AttentionShape {
  // `first` is the index of q among the inputs; k and v follow q. `bias` is the bias's index among the inputs.
  AttentionShape(const KernelRequest &request, std::size_t first, std::size_t bias);

  // Returns the range of keys that at least one query of [first_query, end_query) sees.
  Range visible_keys(std::int64_t first_query, std::int64_t end_query) const;

  std::int64_t batch, queries, keys, heads, kv_heads, depth, value_depth;
  float scale, softcap;
  bool causal;
  std::int64_t window;
  std::int64_t bias_b = 0, bias_h = 0, bias_q = 0, bias_k = 0;  // strides of the bias; 0 where it repeats
};

}  // namespace protrain::backend
