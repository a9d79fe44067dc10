// MatMul: y = alpha * op(a) op(b) + c, with broadcast leading dimensions. The innermost of the merged leading
// dimensions becomes cuBLASLt's batch. Each position of the other leading dimensions has a launch of its own.
#include <algorithm>
#include <numeric>

#include "backend/common/matmul_shape.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/kernel.h"

namespace protrain::backend::cuda {

namespace {
// Returns the largest power of two, up to kAlignment, that divides the addresses of a, b and y in every product.
std::uint64_t alignment_of(const Layout<3> &batch, std::int64_t element_bytes) {
  std::int64_t alignment = kAlignment;
  for (const Strides &strides : batch.strides)
    for (std::size_t axis = 0; axis < strides.size(); ++axis)
      if (batch.dims[axis] > 1) alignment = std::gcd(alignment, strides[axis] * element_bytes);
  return static_cast<std::uint64_t>(alignment);
}

// Cuts the innermost dim in two if it is longer than kMostBatch, because cuBLASLt may refuse so long a batch. The new
// innermost dim is the largest divisor of the old one that is at most kMostBatch.
Layout<3> in_short_batches(Layout<3> batch) {
  const std::int64_t count = batch.dims.back();
  std::int64_t part = std::min(count, kMostBatch);
  if (part == count) return batch;
  while (count % part != 0) --part;
  batch.dims.back() = count / part;
  batch.dims.push_back(part);
  for (Strides &strides : batch.strides) {
    const std::int64_t step = strides.back();
    strides.back() = step * part;
    strides.push_back(step);
  }
  return batch;
}

constexpr StoredInputs kStoredFactor = {.matrix = 1, .scales = 3};

class MatMul : public CudaKernel {
 public:
  MatMul(const KernelRequest &request, DeviceState &device) {
    const MatMulShape shape(with_floats(request, kStoredFactor));
    require(shape.dtype == DType::f32 || shape.dtype == DType::bf16, Code::unsupported, subject(request),
            "MatMul on cuda takes float32 and bfloat16, this operand is {}", name_of(shape.dtype));
    element_bytes_ = static_cast<std::int64_t>(size_of(shape.dtype));
    Layout<3> batches = in_short_batches(shape.batch);
    gemm_ = std::make_unique<Gemm>(device.blas,
                                   GemmShape{.m = shape.m,
                                             .n = shape.n,
                                             .k = shape.k,
                                             .trans_a = shape.trans_a,
                                             .trans_b = shape.trans_b,
                                             .accumulate = shape.addend,
                                             .bias = shape.bias,
                                             .alpha = shape.alpha,
                                             .in = shape.dtype,
                                             .out = shape.dtype,
                                             .batch = batches.dims.back(),
                                             .stride_a = batches.inner_stride(0),
                                             .stride_b = batches.inner_stride(1),
                                             .stride_c = batches.inner_stride(2),
                                             .alignment = alignment_of(batches, element_bytes_)},
                                   stored_matrix(request, kStoredFactor));
    has_addend_ = shape.addend;
    scratch_bytes = gemm_->scratch_bytes();
    batches.dims.back() = 1;
    batches_ = positions(batches);
  }

  int variant_count() const override { return gemm_->variant_count(); }
  void use_variant(int variant) override {
    gemm_->use_variant(variant);
    scratch_bytes = gemm_->scratch_bytes();
  }

  void run(Stream stream, const Launch &launch) override {
    for (const auto &[a, b, y] : batches_)
      gemm_->run(stream,
                 {.a = input<std::byte>(launch, 0) + a * element_bytes_,
                  .b = input<std::byte>(launch, 1) + b * element_bytes_,
                  .c = output<std::byte>(launch, 0) + y * element_bytes_,
                  .bias = has_addend_ ? nullptr : optional_input<void>(launch, 2),
                  .stored = stored_operand(launch, kStoredFactor),
                  .addend = has_addend_ ? input<std::byte>(launch, 2) + y * element_bytes_ : nullptr},
                 launch.scratch);
  }

 private:
  std::unique_ptr<Gemm> gemm_;
  std::int64_t element_bytes_;
  bool has_addend_ = false;
  std::vector<std::array<std::int64_t, 3>> batches_;  // offsets of a, b and y
};
}  // namespace

KernelPtr make_matmul(const KernelRequest &request, DeviceState &device) {
  return std::make_unique<MatMul>(request, device);
}

}  // namespace protrain::backend::cuda
