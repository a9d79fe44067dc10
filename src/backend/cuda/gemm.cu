#include "backend/cuda/gemm.h"

#include <cublasLt.h>

#include <utility>

#include "backend/cuda/elementwise.h"
#include "base/error.h"

namespace protrain::backend::cuda {

namespace {
constexpr std::uint64_t kMostWorkspace = 32 << 20, kWorkspaceAlignment = 256;

void check(cublasStatus_t status, const char *doing) {
  require(status == CUBLAS_STATUS_SUCCESS, status == CUBLAS_STATUS_ALLOC_FAILED ? Code::nomem : Code::device, "device",
          "{}: cuBLASLt says {}", doing, cublasLtGetStatusName(status));
}

// What cuBLASLt makes with one function and unmakes with another.
template <typename Handle, cublasStatus_t (*kDestroy)(Handle)>
struct Owned {
  Handle handle = nullptr;
  Owned() = default;
  Owned(Owned &&other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  Owned &operator=(Owned &&other) noexcept {
    std::swap(handle, other.handle);
    return *this;
  }
  ~Owned() {
    if (handle != nullptr) kDestroy(handle);
  }
};
using Description = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Matrix = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

cudaDataType_t type_of(DType dtype) { return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

template <typename T>
void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, const T &value) {
  check(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value), "a product's attribute");
}

// Rows of ours are columns of theirs.
Matrix matrix(DType dtype, const Shape &shape, std::int64_t ld, std::int64_t batch, std::int64_t stride) {
  Matrix made;
  check(cublasLtMatrixLayoutCreate(&made.handle, type_of(dtype), static_cast<std::uint64_t>(shape[1]),
                                   static_cast<std::uint64_t>(shape[0]), ld),
        "a matrix");
  const auto count = static_cast<std::int32_t>(batch);
  check(cublasLtMatrixLayoutSetAttribute(made.handle, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
        "a batch");
  check(cublasLtMatrixLayoutSetAttribute(made.handle, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                         sizeof stride),
        "a batch");
  return made;
}

// c = 0, or each row the bias.
template <typename T>
void fill(Stream stream, const GemmShape &s, const GemmOperands &operands) {
  T *c = static_cast<T *>(operands.c);
  const T *bias = s.bias ? static_cast<const T *>(operands.bias) : nullptr;
  for (std::int64_t b = 0; b < s.batch; ++b)
    each(stream, s.m * s.n, [to = c + b * s.stride_c, bias, n = s.n, ld = GemmRows(s).c] __device__(std::int64_t i) {
      to[i / n * ld + i % n] = bias != nullptr ? bias[i % n] : T{};
    });
}
}  // namespace

Blas::Blas() {
  cublasLtHandle_t handle = nullptr;
  check(cublasLtCreate(&handle), "cuBLASLt could not be started");
  handle_ = handle;
}
Blas::~Blas() { cublasLtDestroy(static_cast<cublasLtHandle_t>(handle_)); }

struct Gemm::State {
  GemmShape shape;
  cublasLtHandle_t handle = nullptr;
  Description description;
  Matrix a, b, c;
  cublasLtMatmulAlgo_t algorithm{};
  std::uint64_t workspace = 0;
};

Gemm::Gemm(Blas &blas, const GemmShape &shape) : state_(std::make_unique<State>()) {
  State &s = *state_;
  s.shape = shape;
  if (shape.m == 0 || shape.n == 0 || shape.k == 0 || shape.batch == 0) return;
  s.handle = static_cast<cublasLtHandle_t>(blas.handle());
  check(cublasLtMatmulDescCreate(&s.description.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a product");
  // c^T = op(b)^T op(a)^T, which is what row-major operands look like to a library that is column-major.
  const cublasOperation_t first = shape.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                          second = shape.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  set(s.description.handle, CUBLASLT_MATMUL_DESC_TRANSA, first);
  set(s.description.handle, CUBLASLT_MATMUL_DESC_TRANSB, second);
  if (shape.bias) {
    set(s.description.handle, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(s.description.handle, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(shape.out));
    // The search looks at the address for its alignment alone.
    set(s.description.handle, CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void *>(kAlignment));
  }
  const GemmRows rows(shape);
  const Shape a = shape.trans_a ? Shape{shape.k, shape.m} : Shape{shape.m, shape.k},
              b = shape.trans_b ? Shape{shape.n, shape.k} : Shape{shape.k, shape.n};
  s.a = matrix(shape.in, a, rows.a, shape.batch, shape.stride_a);
  s.b = matrix(shape.in, b, rows.b, shape.batch, shape.stride_b);
  s.c = matrix(shape.out, {shape.m, shape.n}, rows.c, shape.batch, shape.stride_c);
  Preference preference;
  check(cublasLtMatmulPreferenceCreate(&preference.handle), "a preference");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto &value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference.handle, attribute, &value, sizeof value), "a preference");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspace);
  // Sums over k that are cut in parts meet in float32, in an order of their own, and are rounded once.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  const auto alignment = static_cast<std::uint32_t>(shape.alignment);
  for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    prefer(attribute, alignment);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(s.handle, s.description.handle, s.b.handle, s.a.handle, s.c.handle, s.c.handle,
                                     preference.handle, 1, &found, &count);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status, "a product's algorithm");
  require(count > 0 && found.state == CUBLAS_STATUS_SUCCESS, Code::unsupported, "device",
          "cuBLASLt has no algorithm for a product of {} x {} x {}", shape.m, shape.k, shape.n);
  s.algorithm = found.algo;
  s.workspace = found.workspaceSize;
}

Gemm::~Gemm() = default;
Gemm::Gemm(Gemm &&) noexcept = default;

// Scratch begins at a multiple of kAlignment, which cuBLASLt's workspace is not satisfied with.
std::uint64_t Gemm::scratch_bytes() const {
  return state_->workspace == 0 ? 0 : state_->workspace + kWorkspaceAlignment - kAlignment;
}

void Gemm::run(Stream stream, const GemmOperands &operands, void *scratch) const {
  const State &s = *state_;
  if (s.handle == nullptr) {  // a product over nothing: what is added to it is all there is
    if (s.shape.accumulate) return;
    return s.shape.out == DType::bf16 ? fill<bf16>(stream, s.shape, operands) : fill<float>(stream, s.shape, operands);
  }
  if (s.shape.bias) set(s.description.handle, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  const float alpha = s.shape.alpha, beta = s.shape.accumulate ? 1.0f : 0.0f;
  void *workspace = reinterpret_cast<void *>(round_up(reinterpret_cast<std::uintptr_t>(scratch), kWorkspaceAlignment));
  check(cublasLtMatmul(s.handle, s.description.handle, &alpha, operands.b, s.b.handle, operands.a, s.a.handle, &beta,
                       operands.c, s.c.handle, operands.c, s.c.handle, &s.algorithm, workspace, s.workspace, stream),
        "a product could not be issued");
}

}  // namespace protrain::backend::cuda
