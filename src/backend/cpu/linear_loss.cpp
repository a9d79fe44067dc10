// LinearCrossEntropy: the logits of a few rows at a time, so that (M, V) never exists. The gradient form turns each
// slice of logits into its gradient in place and multiplies on: dx by rows, dw summed over slices in their order.
#include <algorithm>

#include "backend/cpu/clones.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/targets.h"
#include "base/shape.h"

namespace protrain::backend {

namespace {
constexpr std::int64_t kSliceBytes = 64 << 20;  // of logits
constexpr std::int64_t kLeastRows = 64;         // below, reading w and dw for each slice shows
constexpr std::int64_t kRowGrain = 16;

// Rows of a slice, by shapes alone; all slices but the last have as many.
std::int64_t slice_rows(std::int64_t rows, std::int64_t classes) {
  const std::int64_t most = std::max(kSliceBytes / (4 * std::max<std::int64_t>(classes, 1)), kLeastRows);
  const std::int64_t slices = std::max<std::int64_t>((rows + most - 1) / most, 1);
  const std::int64_t even = (rows + slices - 1) / slices;
  return std::min(rows, (even + kRowGrain - 1) / kRowGrain * kRowGrain);
}

PROTRAIN_CLONES
void sum_columns(const float *rows, std::int64_t count, std::int64_t ld, Range columns, bool accumulate, float *sums) {
  constexpr std::int64_t kColumns = 64;
  for (std::int64_t j = columns.begin; j < columns.end; j += kColumns) {
    const std::int64_t width = std::min(kColumns, columns.end - j);
    double lanes[kColumns] = {};
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t l = 0; l < width; ++l) lanes[l] += static_cast<double>(rows[i * ld + j + l]);
    for (std::int64_t l = 0; l < width; ++l)
      sums[j + l] = static_cast<float>(accumulate ? static_cast<double>(sums[j + l]) + lanes[l] : lanes[l]);
  }
}

class LinearCrossEntropy : public CpuKernel {
 public:
  LinearCrossEntropy(const KernelRequest &request, int team_size)
      : gradient_(request.node.op == "LinearCrossEntropyGrad"),
        trans_w_(request.node.attributes.integer("trans_w", 1) != 0),
        rows_(request.inputs.at(0).shape.at(0)),
        depth_(request.inputs[0].shape.at(1)),
        classes_(request.inputs.at(1).shape.at(trans_w_ ? 0 : 1)),
        bias_(has_input(request, 3)),
        targets_(request, 2, classes_),
        reduction_(reduction_of(request)),
        slice_rows_(slice_rows(rows_, classes_)) {
    for (std::size_t i : {0, 1}) require_dtype(request, request.inputs[i], DType::f32);
    require(reduction_ != Reduction::none, Code::unsupported, subject(request), "reduction none keeps no rows apart");
    // Slices differ in their rows (the last) and in whether dw starts or goes on (the first).
    for (std::int64_t first = 0; first < rows_; first += slice_rows_) {
      const std::int64_t rows = std::min(slice_rows_, rows_ - first);
      if (products_.size() < 2 || rows != slice_rows_) products_.push_back(make_products(rows, first > 0, team_size));
      slices_.push_back({first, rows, products_.size() - 1});
      const Products &made = products_.back();
      gemm_bytes_ =
          std::max({gemm_bytes_, made.logits.scratch_bytes(), made.dx.scratch_bytes(), made.dw.scratch_bytes()});
    }
    const auto logits_bytes =
        checked_multiply(static_cast<std::uint64_t>(slice_rows_), static_cast<std::uint64_t>(classes_) * sizeof(float));
    losses_at_ = round_up(logits_bytes, 64);
    gemm_at_ = round_up(losses_at_ + static_cast<std::uint64_t>(rows_) * sizeof(double), 64);
    scratch_bytes = checked_add(gemm_at_, checked_multiply(gemm_bytes_, static_cast<std::uint64_t>(team_size)));
  }

  void run(Member &member, const Launch &launch) override {
    auto *scratch = static_cast<std::byte *>(launch.scratch);
    auto *losses = reinterpret_cast<double *>(scratch + losses_at_);
    const std::int64_t counted = targets_.counted(launch);
    const float factor = reduction_ == Reduction::mean ? 1.0F / static_cast<float>(counted) : 1.0F;
    for (const Slice &slice : slices_) {
      run_slice(member, launch, slice, factor);
      member.barrier();
    }
    if (slices_.empty() && gradient_) clear(member, launch);
    if (member.index != 0) return;
    double total = 0;
    for (std::int64_t i = 0; i < rows_; ++i) total += losses[i];
    if (reduction_ == Reduction::mean) total /= static_cast<double>(counted);
    *output<float>(launch, 0) = static_cast<float>(total);
  }

 private:
  struct Products {
    Gemm logits, dx, dw;
  };
  struct Slice {
    std::int64_t first, rows;
    std::size_t products;
  };

  Products make_products(std::int64_t rows, bool accumulate, int team_size) const {
    const GemmShape logits{.m = rows, .n = classes_, .k = depth_, .trans_b = trans_w_, .bias = bias_};
    if (!gradient_) return {Gemm(logits, team_size), Gemm({}, team_size), Gemm({}, team_size)};
    const GemmShape dx{.m = rows, .n = depth_, .k = classes_, .trans_b = !trans_w_};
    const GemmShape dw{.m = trans_w_ ? classes_ : depth_,
                       .n = trans_w_ ? depth_ : classes_,
                       .k = rows,
                       .trans_a = true,
                       .accumulate = accumulate};
    return {Gemm(logits, team_size), Gemm(dx, team_size), Gemm(dw, team_size)};
  }

  void run_slice(Member &member, const Launch &launch, const Slice &slice, float factor) {
    auto *scratch = static_cast<std::byte *>(launch.scratch);
    auto *logits = reinterpret_cast<float *>(scratch);
    std::byte *gemm_scratch = scratch + gemm_at_ + static_cast<std::uint64_t>(member.index) * gemm_bytes_;
    Products &products = products_[slice.products];
    const float *x = input<float>(launch, 0) + slice.first * depth_, *w = input<float>(launch, 1);
    products.logits.run(member, {x, w, logits, optional_input<float>(launch, 3)}, gemm_scratch);
    member.barrier();
    finish_rows(member, launch, slice, factor);
    if (!gradient_) return;
    member.barrier();
    if (auto *dx = optional_output<float>(launch, 1))
      products.dx.run(member, {logits, w, dx + slice.first * depth_}, gemm_scratch);
    if (auto *dw = optional_output<float>(launch, 2))
      products.dw.run(member, trans_w_ ? GemmOperands{logits, x, dw} : GemmOperands{x, logits, dw}, gemm_scratch);
    if (auto *dbias = optional_output<float>(launch, 3))
      sum_columns(logits, slice.rows, classes_, share(classes_, kRowGrain, member), slice.first > 0, dbias);
  }

  // Losses of the member's rows; their logits become gradients where that is wanted.
  void finish_rows(Member &member, const Launch &launch, const Slice &slice, float factor) {
    auto *scratch = static_cast<std::byte *>(launch.scratch);
    auto *losses = reinterpret_cast<double *>(scratch + losses_at_);
    const Range own = share(slice.rows, 1, member);
    for (std::int64_t i = own.begin; i < own.end; ++i) {
      float *row = reinterpret_cast<float *>(scratch) + i * classes_;
      const std::int64_t label = targets_.at(launch, slice.first + i);
      double &loss = losses[slice.first + i];
      loss = 0;
      if (label == Targets::kIgnored) {
        std::fill_n(row, classes_, 0.0F);
        continue;
      }
      const double lse = log_sum_exp(row, classes_);
      loss = lse - static_cast<double>(row[label]);
      if (gradient_) softmax_gradient(row, classes_, static_cast<float>(lse), factor, label, row);
    }
  }

  // No rows: gradients of nothing.
  void clear(Member &member, const Launch &launch) const {
    if (member.index != 0) return;
    if (auto *dw = optional_output<float>(launch, 2)) std::fill_n(dw, classes_ * depth_, 0.0F);
    if (auto *dbias = optional_output<float>(launch, 3)) std::fill_n(dbias, classes_, 0.0F);
  }

  const bool gradient_, trans_w_;
  const std::int64_t rows_, depth_, classes_;
  const bool bias_;
  const Targets targets_;
  const Reduction reduction_;
  const std::int64_t slice_rows_;
  std::vector<Products> products_;
  std::vector<Slice> slices_;
  std::uint64_t losses_at_ = 0, gemm_at_ = 0;  // in scratch, behind the slice's logits
  std::uint64_t gemm_bytes_ = 0;               // of each member
};
}  // namespace

std::unique_ptr<CpuKernel> make_linear_cross_entropy(const KernelRequest &request, int team_size) {
  return std::make_unique<LinearCrossEntropy>(request, team_size);
}

}  // namespace protrain::backend
