#include "backend/cuda/blas.h"

#include <cublasLt.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/queue.h"
#include "base/shape.h"

namespace protrain::backend::cuda {

namespace {
void check(cublasStatus_t status, const char *doing) {
  require(status == CUBLAS_STATUS_SUCCESS, status == CUBLAS_STATUS_ALLOC_FAILED ? Code::nomem : Code::device, "device",
          "{}: cuBLASLt says {}", doing, cublasLtGetStatusName(status));
}

// Owns a handle of cuBLASLt, and destroys it with kDestroy.
template <typename Handle, cublasStatus_t (*kDestroy)(Handle)>
struct UniqueHandle {
  Handle handle = nullptr;
  UniqueHandle() = default;
  UniqueHandle(UniqueHandle &&other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  UniqueHandle &operator=(UniqueHandle &&other) noexcept {
    std::swap(handle, other.handle);
    return *this;
  }
  ~UniqueHandle() {
    if (handle != nullptr) kDestroy(handle);
  }
};
using Description = UniqueHandle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Matrix = UniqueHandle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = UniqueHandle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

cudaDataType_t type_of(DType dtype) { return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

template <typename T>
void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, const T &value) {
  check(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value), "a product's attribute");
}

// Describes a row-major matrix to cuBLASLt. cuBLASLt is column-major, so it takes our rows for columns.
Matrix matrix(DType dtype, const Shape &shape, std::int64_t ld, std::int64_t batch, std::int64_t stride) {
  Matrix description;
  check(cublasLtMatrixLayoutCreate(&description.handle, type_of(dtype), static_cast<std::uint64_t>(shape[1]),
                                   static_cast<std::uint64_t>(shape[0]), ld),
        "a matrix");
  const auto count = static_cast<std::int32_t>(batch);
  check(cublasLtMatrixLayoutSetAttribute(description.handle, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
        "a batch");
  check(cublasLtMatrixLayoutSetAttribute(description.handle, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                         sizeof stride),
        "a batch");
  return description;
}

Preference preference_of(const GemmShape &shape) {
  Preference preference;
  check(cublasLtMatmulPreferenceCreate(&preference.handle), "a preference");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto &value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference.handle, attribute, &value, sizeof value), "a preference");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspace);
  // Lets cuBLASLt cut sums over k into parts (split-K), if it joins the parts in float32. The parts are joined in a
  // fixed order and rounded once.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  // An element of c can be larger than an element of a or b. So the alignment of c is raised to at least the size of an
  // element of c.
  const auto alignment = static_cast<std::uint32_t>(shape.alignment),
             of_c = std::max(alignment, static_cast<std::uint32_t>(size_of(shape.out)));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of_c);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, of_c);
  return preference;
}
}  // namespace

Blas::Blas(bool tf32) : tf32_(tf32) {
  cublasLtHandle_t handle = nullptr;
  check(cublasLtCreate(&handle), "cuBLASLt could not be started");
  handle_ = handle;
}
Blas::~Blas() { cublasLtDestroy(static_cast<cublasLtHandle_t>(handle_)); }

std::string Blas::version() const {
  const std::size_t version = cublasLtGetVersion();  // 130100: 13.1.0
  return fmt::format("{}.{}.{}{}", version / 10000, version / 100 % 100, version % 100, tf32_ ? " with TF32" : "");
}

struct Product::State {
  GemmShape shape;
  cublasLtHandle_t handle = nullptr;
  Description description;
  Matrix a, b, c;
};

Product::Product(Blas &blas, const GemmShape &shape) : state_(std::make_unique<State>()) {
  State &s = *state_;
  s.shape = shape;
  s.handle = static_cast<cublasLtHandle_t>(blas.handle());
  const bool tf32 = shape.in == DType::f32 && blas.tf32();
  check(cublasLtMatmulDescCreate(&s.description.handle, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                 CUDA_R_32F),
        "a product");
  // cuBLASLt is column-major and takes each row-major matrix for its transpose. So it is asked for c^T, which is
  // op(b)^T op(a)^T.
  const cublasOperation_t first = shape.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                          second = shape.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  set(s.description.handle, CUBLASLT_MATMUL_DESC_TRANSA, first);
  set(s.description.handle, CUBLASLT_MATMUL_DESC_TRANSB, second);
  if (shape.bias) {
    set(s.description.handle, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(s.description.handle, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(shape.out));
    // A placeholder: run() sets the real address. The search for algorithms looks only at the alignment.
    set(s.description.handle, CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void *>(kAlignment));
  }
  const GemmRows rows(shape);
  const Shape a = shape.trans_a ? Shape{shape.k, shape.m} : Shape{shape.m, shape.k},
              b = shape.trans_b ? Shape{shape.n, shape.k} : Shape{shape.k, shape.n};
  s.a = matrix(shape.in, a, rows.a, shape.batch, shape.stride_a);
  s.b = matrix(shape.in, b, rows.b, shape.batch, shape.stride_b);
  s.c = matrix(shape.out, {shape.m, shape.n}, rows.c, shape.batch, shape.stride_c);
}

Product::~Product() = default;
Product::Product(Product &&) noexcept = default;

std::vector<Algorithm> Product::algorithms() const {
  static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(Algorithm::words));
  const State &s = *state_;
  const Preference preference = preference_of(s.shape);
  std::array<cublasLtMatmulHeuristicResult_t, kMostAlgorithms> results;
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(s.handle, s.description.handle, s.b.handle, s.a.handle, s.c.handle, s.c.handle,
                                     preference.handle, kMostAlgorithms, results.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || (s.shape.bias && status == CUBLAS_STATUS_INVALID_VALUE)) return {};
  check(status, "a product's algorithms");
  std::vector<Algorithm> found;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const cublasLtMatmulHeuristicResult_t &result = results[i];
    if (result.state != CUBLAS_STATUS_SUCCESS) continue;
    Algorithm &algorithm = found.emplace_back();
    std::memcpy(algorithm.words.data(), &result.algo, sizeof result.algo);
    algorithm.workspace = result.workspaceSize;
  }
  return found;
}

void Product::run(Stream stream, const GemmOperands &operands, const Algorithm &algorithm, void *workspace) const {
  const State &s = *state_;
  if (s.shape.bias) set(s.description.handle, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  const float alpha = s.shape.alpha, beta = s.shape.accumulate ? 1.0f : 0.0f;
  const void *added = operands.addend != nullptr ? operands.addend : operands.c;
  cublasLtMatmulAlgo_t words;
  std::memcpy(&words, algorithm.words.data(), sizeof words);
  const cublasStatus_t status =
      cublasLtMatmul(s.handle, s.description.handle, &alpha, operands.b, s.b.handle, operands.a, s.a.handle, &beta,
                     added, s.c.handle, operands.c, s.c.handle, &words, workspace, algorithm.workspace, stream);
  // cuBLASLt may refuse an algorithm that it has offered. In that case nothing has run.
  require(status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE, Code::unsupported, "device",
          "a product could not be issued: cuBLASLt says {}", cublasLtGetStatusName(status));
  check(status, "a product could not be issued");
}

}  // namespace protrain::backend::cuda
