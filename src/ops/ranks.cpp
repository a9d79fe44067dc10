// Collective operators, which exchange data between ranks. MPI and NCCL use the same names. A Channel (comm/channel.h)
// carries them out, and no device has a kernel for them. `bounds` cuts a vector into one part per rank: part r is the
// elements from bounds[r] to bounds[r + 1].
//
//   AllToAll(x...){rank, bounds} -> for each x, a matrix [ranks, stride] with one row from each rank: the part of that
//                                   rank's x that belongs to this rank, padded to a multiple of 64 bytes.
//   AllGather(x...){rank, bounds} -> for each x, which is this rank's part of a vector, the whole vector.
//
// `bounds` has ranks + 1 numbers for each input, one input after the other.
#include "ops/ranks.h"
#include "base/error.h"
#include "base/queue.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

// Returns the number of elements of a row of AllToAll's output: `elements`, padded to a multiple of 64 bytes.
std::int64_t stride_of(std::int64_t elements, DType dtype) {
  const auto in_line = static_cast<std::int64_t>(kAlignment / size_of(dtype));
  return (elements + in_line - 1) / in_line * in_line;
}

void require_elements(const NodeTypes &types, std::size_t i, std::int64_t expected) {
  const std::int64_t elements = element_count(types.input(i).shape);
  require(elements == expected, Code::shape, types.subject(), "input {} of {} has {} elements; its bounds say {}", i,
          types.node.op, elements, expected);
}

std::vector<Type> infer_all_to_all(const NodeTypes &types) {
  std::vector<Type> outputs;
  const auto rank = static_cast<std::size_t>(types.node.attributes.integer("rank", 0));
  for (std::size_t i = 0; i < types.inputs.size(); ++i) {
    const std::vector<std::int64_t> bounds = bounds_of(types.node, i);
    require_elements(types, i, bounds.back());
    const DType dtype = types.input(i).dtype;
    const std::int64_t stride = stride_of(bounds[rank + 1] - bounds[rank], dtype);
    outputs.push_back({dtype, {static_cast<std::int64_t>(bounds.size()) - 1, stride}});
  }
  return outputs;
}

std::vector<Type> infer_all_gather(const NodeTypes &types) {
  std::vector<Type> outputs;
  const auto rank = static_cast<std::size_t>(types.node.attributes.integer("rank", 0));
  for (std::size_t i = 0; i < types.inputs.size(); ++i) {
    const std::vector<std::int64_t> bounds = bounds_of(types.node, i);
    require_elements(types, i, bounds[rank + 1] - bounds[rank]);
    outputs.push_back({types.input(i).dtype, {bounds.back()}});
  }
  return outputs;
}

}  // namespace

std::vector<std::int64_t> bounds_of(const Node &node, std::size_t input) {
  const std::vector<std::int64_t> all = node.attributes.integers("bounds");
  const std::size_t each = node.inputs.empty() ? 0 : all.size() / node.inputs.size();
  const auto rank = static_cast<std::size_t>(node.attributes.integer("rank", 0));
  require(each > rank + 1 && all.size() == each * node.inputs.size(), Code::graph, node.name,
          "{} has {} bounds for {} inputs", node.op, all.size(), node.inputs.size());
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(input * each);
  return {begin, begin + static_cast<std::ptrdiff_t>(each)};
}

Family ranks_family() {
  return {{.name = "AllToAll", .infer = infer_all_to_all, .between_ranks = true},
          {.name = "AllGather", .infer = infer_all_gather, .between_ranks = true}};
}

}  // namespace protrain::ops
