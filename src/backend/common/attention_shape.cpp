#include "backend/common/attention_shape.h"

#include <algorithm>
#include <cmath>

#include "backend/request.h"
#include "base/error.h"

namespace protrain::backend {

AttentionShape::AttentionShape(const KernelRequest &request, std::size_t first, std::size_t bias) {
  const Shape &q = request.inputs.at(first).shape, &k = request.inputs.at(first + 1).shape,
              &v = request.inputs.at(first + 2).shape;
  batch = q.at(0), queries = q.at(1), heads = q.at(2), depth = q.at(3);
  keys = k.at(1), kv_heads = k.at(2), value_depth = v.at(3);
  const graph::Attributes &attributes = request.node.attributes;
  scale = static_cast<float>(attributes.real("scale", 1 / std::sqrt(static_cast<double>(depth))));
  softcap = static_cast<float>(attributes.real("softcap", 0));
  causal = attributes.integer("causal", 0) != 0;
  window = attributes.integer("window", 0);
  if (!has_input(request, bias)) return;
  const Shape &b = request.inputs[bias].shape;
  require(b.size() == 4, Code::unsupported, subject(request), "a bias of shape {} has not four dimensions", to_text(b));
  const std::vector<std::int64_t> strides = row_major_strides(b);
  auto stride = [&](std::size_t axis) { return b[axis] == 1 ? 0 : strides[axis]; };
  bias_b = stride(0), bias_h = stride(1), bias_q = stride(2), bias_k = stride(3);
}

Range AttentionShape::visible_keys(std::int64_t first_query, std::int64_t end_query) const {
  const std::int64_t ahead = keys - queries;  // query i is at the position of key i + ahead
  const std::int64_t end = causal ? std::clamp<std::int64_t>(end_query + ahead, 0, keys) : keys;
  const std::int64_t begin = window > 0 ? std::clamp<std::int64_t>(first_query + ahead - window + 1, 0, end) : 0;
  return {begin, end};
}

}  // namespace protrain::backend
