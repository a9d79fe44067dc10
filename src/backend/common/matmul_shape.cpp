#include "backend/common/matmul_shape.h"

#include "backend/request.h"
#include "base/error.h"

namespace protrain::backend {

namespace {
// Returns an operand's strides in a walk over the dims `batch`. A stride is 0 where the operand repeats. The last two
// dims of `shape` are the operand's matrix.
Strides batch_strides(const Shape &shape, const Shape &batch, const std::string &subject) {
  Strides strides = broadcast_strides({shape.begin(), shape.end() - 2}, batch, subject);
  for (std::int64_t &stride : strides) stride *= shape[shape.size() - 2] * shape[shape.size() - 1];
  return strides;
}
}  // namespace

MatMulShape::MatMulShape(const KernelRequest &request) : dtype(request.inputs.at(0).dtype) {
  for (const graph::Type &type : request.inputs)
    require(type.dtype == DType::none || type.dtype == dtype, Code::unsupported, subject(request),
            "MatMul takes operands of one type, these are {} and {}", name_of(dtype), name_of(type.dtype));
  Shape a = request.inputs[0].shape, b = request.inputs.at(1).shape;
  require(a.size() >= 2 && b.size() >= 2, Code::unsupported, subject(request),
          "MatMul takes matrices, these are {} and {}", to_text(a), to_text(b));
  const graph::Attributes &attributes = request.node.attributes;
  trans_a = attributes.integer("trans_a", 0) != 0;
  trans_b = attributes.integer("trans_b", 0) != 0;
  alpha = static_cast<float>(attributes.real("alpha", 1));
  addend = has_input(request, 2) && request.inputs[2].shape == request.outputs.at(0).shape;
  bias = has_input(request, 2) && !addend;
  if (b.size() == 2 && !trans_a)  // (..., M, K) times one matrix: one product takes all rows of a
    a = {element_count({a.begin(), a.end() - 1}), a.back()};
  m = a[a.size() - (trans_a ? 1 : 2)];
  k = a[a.size() - (trans_a ? 2 : 1)];
  n = b[b.size() - (trans_b ? 2 : 1)];
  const Shape leading = broadcast({a.begin(), a.end() - 2}, {b.begin(), b.end() - 2}, subject(request));
  Strides of_y = row_major_strides(leading);
  for (std::int64_t &stride : of_y) stride *= m * n;
  batch = merged(
      Layout<3>{leading,
                {batch_strides(a, leading, subject(request)), batch_strides(b, leading, subject(request)), of_y}},
      subject(request));
}

}  // namespace protrain::backend
