#include "backend/cuda/gemm.h"

#include "backend/cuda/elementwise.h"
#include "base/error.h"

namespace protrain::backend::cuda {

namespace {
// Fills c with what a product of depth 0 is added to: the addend, the bias in each row, or 0.
template <typename T>
void fill(Stream stream, const GemmShape &s, const GemmOperands &operands) {
  T *c = static_cast<T *>(operands.c);
  const T *bias = s.bias ? static_cast<const T *>(operands.bias) : nullptr;
  const T *addend = static_cast<const T *>(operands.addend);
  for (std::int64_t b = 0; b < s.batch; ++b)
    each(stream, s.m * s.n,
         [c, bias, addend, n = s.n, ld = GemmRows(s).c, first = b * s.stride_c] __device__(std::int64_t i) {
           const std::int64_t at = first + i / n * ld + i % n;
           c[at] = addend != nullptr ? addend[at] : bias != nullptr ? bias[i % n] : T{};
         });
}
void fill(Stream stream, const GemmShape &s, const GemmOperands &operands) {
  s.out == DType::bf16 ? fill<bf16>(stream, s, operands) : fill<float>(stream, s, operands);
}

constexpr std::int64_t kPanelBytes = kEmulated ? 2 << 10 : 16 << 20;  // of widened weights
constexpr std::int64_t kPanelGrain = 64;                              // columns, so that panels of c are aligned

// Widens some columns of b, a stored matrix, into the panel `to`. The panel is (columns, K) if b is transposed, else
// (K, columns).
template <typename T>
void widen_panel(Stream stream, const GemmShape &s, const StoredMatrix &b, const StoredOperand &from, Columns columns,
                 T *to) {
  const std::int64_t row = s.trans_b ? s.k : columns.count, ld = s.trans_b ? s.k : s.n;
  const std::int64_t begin = s.trans_b ? columns.first * s.k : columns.first;
  each(stream, columns.count * s.k, [from, to, row, ld, begin, b] __device__(std::int64_t i) {
    std::int64_t column = 0;
    const std::int64_t of_row = divide(i, row, column);
    to[i] = narrowed<T>(b.value(from, begin + of_row * ld + column));
  });
}
void widen_panel(Stream stream, const GemmShape &s, const StoredMatrix &b, const StoredOperand &from, Columns columns,
                 void *to) {
  s.in == DType::bf16 ? widen_panel(stream, s, b, from, columns, static_cast<bf16 *>(to))
                      : widen_panel(stream, s, b, from, columns, static_cast<float *>(to));
}
}  // namespace

Gemm::Gemm(Blas &blas, const GemmShape &shape, const std::optional<StoredMatrix> &stored)
    : shape_(shape), stored_(stored) {
  require(!(shape.bias && shape.accumulate), Code::internal, "gemm", "a bias is not added to what c holds");
  if (shape.m == 0 || shape.n == 0 || shape.k == 0 || shape.batch == 0) return;
  if (stored_) {
    cut(blas);
    return;
  }
  product_.emplace(blas, shape);
  algorithms_ = product_->algorithms();
  // If cuBLASLt cannot compute the product with a bias, describes the product without its bias. run() then fills c with
  // the bias and adds the product. An example is a product of bfloat16 with rows of an odd length.
  if (shape.bias && algorithms_.empty()) {
    GemmShape plain = shape;
    plain.bias = false;
    plain.accumulate = bias_apart_ = true;
    product_.emplace(blas, plain);
    algorithms_ = product_->algorithms();
  }
  require(!algorithms_.empty(), Code::unsupported, "device", "cuBLASLt has no algorithm for a product of {} x {} x {}",
          shape.m, shape.k, shape.n);
}

// Returns how many bytes of scratch run() needs, for the panel and for cuBLASLt's workspace. Scratch begins at a
// multiple of kAlignment, but the workspace must begin at a multiple of the larger kWorkspaceAlignment. The result
// includes the bytes that may have to be skipped for this.
std::uint64_t Gemm::scratch_bytes() const {
  if (!panels_.empty()) {
    std::uint64_t bytes = 0;
    for (const Gemm &product : of_panels_) bytes = std::max(bytes, product.scratch_bytes());
    return panel_bytes() + bytes;
  }
  if (!product_ || algorithms_[chosen_].workspace == 0) return 0;
  return algorithms_[chosen_].workspace + kWorkspaceAlignment - kAlignment;
}

void Gemm::run(Stream stream, const GemmOperands &operands, void *scratch) const {
  if (!panels_.empty()) return run_panels(stream, operands, scratch);
  if (!product_) {  // c has no elements, or K = 0
    if (!shape_.accumulate || operands.addend != nullptr) fill(stream, shape_, operands);
    return;
  }
  if (bias_apart_) fill(stream, shape_, operands);
  void *workspace = reinterpret_cast<void *>(round_up(reinterpret_cast<std::uintptr_t>(scratch), kWorkspaceAlignment));
  product_->run(stream, operands, algorithms_[chosen_], workspace);
}

// Cuts stored weights into panels. A panel has the weights of some columns of c, over all of K.
void Gemm::cut(Blas &blas) {
  require(shape_.batch == 1 && !shape_.trans_a, Code::internal, "gemm", "stored weights are the second of two factors");
  const std::int64_t column_bytes = shape_.k * static_cast<std::int64_t>(size_of(shape_.in));
  const std::int64_t most = std::max(kPanelBytes / column_bytes / kPanelGrain, std::int64_t{1}) * kPanelGrain;
  for (std::int64_t first = 0; first < shape_.n; first += most) {
    GemmShape of_panel = shape_;
    of_panel.n = std::min(most, shape_.n - first);
    of_panel.ld_b = 0;
    of_panel.ld_c = GemmRows(shape_).c;
    if (first == 0 || of_panel.n != most) of_panels_.emplace_back(blas, of_panel);
    panels_.push_back({{first, of_panel.n}, of_panels_.size() - 1});
  }
}

std::uint64_t Gemm::panel_bytes() const {
  return round_up(static_cast<std::uint64_t>(panels_.front().columns.count * shape_.k) * size_of(shape_.in),
                  kWorkspaceAlignment);
}

void Gemm::run_panels(Stream stream, const GemmOperands &operands, void *scratch) const {
  const auto out = static_cast<std::int64_t>(size_of(shape_.out));
  for (const Panel &panel : panels_) {
    widen_panel(stream, shape_, *stored_, operands.stored, panel.columns, scratch);
    GemmOperands of_panel = {operands.a, scratch, static_cast<std::byte *>(operands.c) + panel.columns.first * out};
    if (shape_.bias) of_panel.bias = static_cast<const std::byte *>(operands.bias) + panel.columns.first * out;
    if (operands.addend != nullptr)
      of_panel.addend = static_cast<const std::byte *>(operands.addend) + panel.columns.first * out;
    of_panels_[panel.product].run(stream, of_panel, static_cast<std::byte *>(scratch) + panel_bytes());
  }
}

}  // namespace protrain::backend::cuda
