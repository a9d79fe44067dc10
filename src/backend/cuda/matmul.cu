// MatMul: y = alpha * op(a) op(b) + bias, leading dimensions broadcast. One product where b is one matrix for all of
// a's rows; else one batch for each combination of the dims that neither operand walks evenly.
#include <algorithm>
#include <numeric>

#include "backend/cuda/gemm.h"
#include "backend/cuda/kernel.h"
#include "backend/layout.h"

namespace protrain::backend::cuda {

namespace {
// Strides over `batch` of an operand whose last two dims are matrices; 0 where it repeats.
Strides batch_strides(const Shape &shape, const Shape &batch, const std::string &subject) {
  Strides strides = broadcast_strides({shape.begin(), shape.end() - 2}, batch, subject);
  for (std::int64_t &stride : strides) stride *= shape[shape.size() - 2] * shape[shape.size() - 1];
  return strides;
}

class MatMul : public CudaKernel {
 public:
  MatMul(const KernelRequest &request, Site &site) {
    const DType dtype = request.inputs.at(0).dtype;
    require(dtype == DType::f32 || dtype == DType::bf16, Code::unsupported, subject(request),
            "MatMul on cuda takes float32 and bfloat16, this operand is {}", name_of(dtype));
    for (const graph::Type &type : request.inputs)
      if (type.dtype != DType::none) require_dtype(request, type, dtype);
    Shape a = request.inputs[0].shape, b = request.inputs.at(1).shape;
    const graph::Attributes &attributes = request.node.attributes;
    require(a.size() >= 2 && b.size() >= 2, Code::unsupported, subject(request),
            "MatMul on cuda takes matrices, these are {} and {}", to_text(a), to_text(b));
    GemmShape shape{.in = dtype, .out = dtype};
    shape.trans_a = attributes.integer("trans_a", 0) != 0;
    shape.trans_b = attributes.integer("trans_b", 0) != 0;
    shape.alpha = static_cast<float>(attributes.real("alpha", 1));
    if (b.size() == 2 && !shape.trans_a)  // (..., M, K) x (K, N): all rows are one matrix's
      a = {element_count({a.begin(), a.end() - 1}), a.back()};
    shape.m = a[a.size() - (shape.trans_a ? 1 : 2)];
    shape.k = a[a.size() - (shape.trans_a ? 2 : 1)];
    shape.n = b[b.size() - (shape.trans_b ? 2 : 1)];
    shape.bias = has_input(request, 2);
    lay_out_batch(request, a, b, shape);
    gemm_ = std::make_unique<Gemm>(site.blas, shape);
    scratch_bytes = gemm_->scratch_bytes();
  }

  int variant_count() const override { return gemm_->variant_count(); }
  void use_variant(int variant) override {
    gemm_->use_variant(variant);
    scratch_bytes = gemm_->scratch_bytes();
  }

  void run(Stream stream, const Launch &launch) override {
    for (const Offsets &at : offsets_)
      gemm_->run(stream,
                 {input<std::byte>(launch, 0) + at.a, input<std::byte>(launch, 1) + at.b,
                  output<std::byte>(launch, 0) + at.c, optional_input<void>(launch, 2)},
                 launch.scratch);
  }

 private:
  struct Offsets {  // bytes
    std::int64_t a, b, c;
  };

  // The innermost of the merged dims becomes the product's batch, the others a list of places.
  void lay_out_batch(const KernelRequest &request, const Shape &a, const Shape &b, GemmShape &shape) {
    const Shape batch = broadcast({a.begin(), a.end() - 2}, {b.begin(), b.end() - 2}, subject(request));
    Layout<3> layout{batch, {batch_strides(a, batch, subject(request)), batch_strides(b, batch, subject(request)), {}}};
    layout.strides[2] = row_major_strides(batch);
    for (std::int64_t &stride : layout.strides[2]) stride *= shape.m * shape.n;
    layout = merged(layout, subject(request));
    shape.batch = layout.dims.back();
    shape.stride_a = layout.inner_stride(0), shape.stride_b = layout.inner_stride(1),
    shape.stride_c = layout.inner_stride(2);
    const auto bytes = static_cast<std::int64_t>(size_of(shape.in));
    std::int64_t alignment = kAlignment;
    for (const Strides &strides : layout.strides)
      for (std::size_t axis = 0; axis < strides.size(); ++axis)
        if (layout.dims[axis] > 1) alignment = std::gcd(alignment, strides[axis] * bytes);
    shape.alignment = static_cast<std::uint64_t>(alignment);
    layout.dims.back() = 1;
    const std::int64_t places = element_count(layout.dims);
    for (std::int64_t i = 0; i < places; ++i) {
      std::int64_t at[3] = {}, rest = i;
      for (std::size_t axis = layout.dims.size(); axis-- > 0; rest /= layout.dims[axis])
        for (std::size_t n = 0; n < 3; ++n) at[n] += rest % layout.dims[axis] * layout.strides[n][axis];
      offsets_.push_back({at[0] * bytes, at[1] * bytes, at[2] * bytes});
    }
  }

  std::unique_ptr<Gemm> gemm_;
  std::vector<Offsets> offsets_;
};
}  // namespace

Made make_matmul(const KernelRequest &request, Site &site) { return std::make_unique<MatMul>(request, site); }

}  // namespace protrain::backend::cuda
