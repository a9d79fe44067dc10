// LinearCrossEntropy. The logits of a few rows, a slice, are made at a time, so that (M, V) is never in memory. The
// gradient form turns each slice of logits into its gradient and multiplies it on: dx row by row, dw summed over blocks
// of slices in order. Logits and sums are float32 whatever the operands are. A float32 gradient overwrites its logits,
// and a block is one slice. A narrow gradient lies beside its logits, and a block is as many slices as there is room
// for, often all.
#include <algorithm>

#include "backend/cpu/floats.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/targets.h"
#include "base/shape.h"

namespace protrain::backend::cpu {

namespace {
constexpr std::int64_t kSliceBytes = 64 << 20;   // of logits
constexpr std::int64_t kBlockBytes = 128 << 20;  // of the gradients in a block, where they are narrow
constexpr std::int64_t kLeastRows = 64;          // with fewer rows, reading w and dw for each slice costs time
constexpr std::int64_t kRowGrain = 16;

// Gives the rows of a slice. Shapes alone fix them; only the last slice may have fewer.
std::int64_t slice_rows(std::int64_t rows, std::int64_t classes) {
  const std::int64_t most = std::max(kSliceBytes / (4 * std::max<std::int64_t>(classes, 1)), kLeastRows);
  const std::int64_t slices = std::max<std::int64_t>((rows + most - 1) / most, 1);
  const std::int64_t even = (rows + slices - 1) / slices;
  return std::min(rows, (even + kRowGrain - 1) / kRowGrain * kRowGrain);
}

template <typename T>
struct Loops {
  PROTRAIN_CLONES static void sum_columns(const T *rows, std::int64_t count, std::int64_t ld, Range columns,
                                          bool accumulate, float *sums) {
    constexpr std::int64_t kColumns = 64;
    for (std::int64_t j = columns.begin; j < columns.end; j += kColumns) {
      const std::int64_t width = std::min(kColumns, columns.end - j);
      double lanes[kColumns] = {};
      for (std::int64_t i = 0; i < count; ++i)
        for (std::int64_t l = 0; l < width; ++l) lanes[l] += static_cast<double>(widened(rows[i * ld + j + l]));
      for (std::int64_t l = 0; l < width; ++l)
        sums[j + l] = static_cast<float>(accumulate ? static_cast<double>(sums[j + l]) + lanes[l] : lanes[l]);
    }
  }
};

// Loss and gradients of a product whose result is too large to be kept: for a large vocabulary the (M, V) logits are
// the largest activation of a model. One kernel makes them slice by slice and uses each slice at once. The gradient
// form makes the logits again, for keeping them would cost the memory that the fusion saves.
template <typename T>
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
        slice_rows_(slice_rows(rows_, classes_)),
        block_rows_(slice_rows_ * slices_of_a_block()) {
    require_dtype(request, request.inputs[1], request.inputs[0].dtype);
    if (bias_) require_dtype(request, request.inputs[3], request.inputs[0].dtype);
    require(reduction_ != Reduction::none, Code::unsupported, subject(request), "reduction none keeps no rows apart");
    // The last slice and the last block may have fewer rows. The first block starts dw, the others add to it.
    for (std::int64_t first = 0; first < rows_; first += slice_rows_) {
      const std::int64_t rows = std::min(slice_rows_, rows_ - first);
      if (first == 0 || rows != slice_rows_) logits_.emplace_back(logits_shape(rows), team_size);
      slices_.push_back({first, rows, logits_.size() - 1});
    }
    for (std::int64_t first = 0; gradient_ && first < rows_; first += block_rows_) {
      const std::int64_t rows = std::min(block_rows_, rows_ - first);
      if (products_.size() < 2 || rows != block_rows_) products_.push_back(make_products(rows, first > 0, team_size));
      blocks_.push_back({first, rows, products_.size() - 1});
    }
    lay_out(request, team_size);
  }

  void run(Member &member, const Launch &launch) override {
    const auto *losses = at<double>(launch, losses_at_);
    const std::int64_t counted = targets_.counted(launch);
    const auto *dloss = optional_input<float>(launch, 4);
    const float factor = (reduction_ == Reduction::mean ? 1.0F / static_cast<float>(counted) : 1.0F) *  //
                         (dloss != nullptr ? *dloss : 1.0F);
    for (const Rows &slice : slices_) {
      run_slice(member, launch, slice, factor);
      member.barrier();
    }
    if (gradient_) finish_gradients(member, launch);
    auto *loss = optional_output<float>(launch, 0);  // absent where only gradients are wanted
    if (member.index != 0 || loss == nullptr) return;
    double total = 0;
    for (std::int64_t i = 0; i < rows_; ++i) total += losses[i];
    if (reduction_ == Reduction::mean) total /= static_cast<double>(counted);
    *loss = static_cast<float>(total);
  }

 private:
  static constexpr bool kNarrow = !std::is_same_v<T, float>;
  static constexpr DType kType = kDTypeOf<T>;

  struct Products {
    Gemm dx, dw;
  };
  struct Rows {  // of a slice or a block
    std::int64_t first, count;
    std::size_t products;  // which of logits_, or of products_
  };

  std::int64_t slices_of_a_block() const {
    if (!kNarrow || !gradient_) return 1;
    const std::int64_t slice_bytes = slice_rows_ * classes_ * static_cast<std::int64_t>(sizeof(T));
    return std::max<std::int64_t>(kBlockBytes / std::max<std::int64_t>(slice_bytes, 1), 1);
  }

  GemmShape logits_shape(std::int64_t rows) const {
    return {.m = rows, .n = classes_, .k = depth_, .trans_b = trans_w_, .bias = bias_, .in = kType};
  }
  Products make_products(std::int64_t rows, bool accumulate, int team_size) const {
    const GemmShape dx{.m = rows, .n = depth_, .k = classes_, .trans_b = !trans_w_, .in = kType, .out = kType};
    const GemmShape dw{.m = trans_w_ ? classes_ : depth_,
                       .n = trans_w_ ? depth_ : classes_,
                       .k = rows,
                       .trans_a = true,
                       .accumulate = accumulate,
                       .in = kType,
                       .out = sums_apart() ? DType::f32 : kType};
    return {Gemm(dx, team_size), Gemm(dw, team_size)};
  }
  // Whether dw is summed over blocks in memory of its own.
  bool sums_apart() const { return kNarrow && rows_ > block_rows_; }

  // Lays out scratch: the logits of a slice, the gradients of a block, and sums that have another type than their
  // output.
  void lay_out(const KernelRequest &request, int team_size) {
    std::uint64_t total = 0;
    const auto place = [&](std::int64_t rows, std::int64_t columns, std::size_t size) {
      const auto count = checked_multiply(static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns));
      return std::exchange(total, round_up(checked_add(total, checked_multiply(count, size)), kAlignment));
    };
    logits_at_ = place(slice_rows_, classes_, sizeof(float));
    gradients_at_ = kNarrow && gradient_ ? place(std::min(block_rows_, rows_), classes_, sizeof(T)) : logits_at_;
    if (has_output(request, 2) && sums_apart()) dw_at_ = place(classes_, depth_, sizeof(float));
    if (has_output(request, 3) && kNarrow) dbias_at_ = place(1, classes_, sizeof(float));
    losses_at_ = place(rows_, 1, sizeof(double));
    for (const Gemm &logits : logits_) gemm_bytes_ = std::max(gemm_bytes_, logits.scratch_bytes());
    for (const Products &made : products_)
      gemm_bytes_ = std::max({gemm_bytes_, made.dx.scratch_bytes(), made.dw.scratch_bytes()});
    gemm_at_ = total;
    scratch_bytes = checked_add(gemm_at_, checked_multiply(gemm_bytes_, static_cast<std::uint64_t>(team_size)));
  }

  template <typename E>
  static E *at(const Launch &launch, std::uint64_t offset) {
    return reinterpret_cast<E *>(static_cast<std::byte *>(launch.scratch) + offset);
  }

  void run_slice(Member &member, const Launch &launch, const Rows &slice, float factor) {
    auto *gemm_scratch = at<std::byte>(launch, gemm_at_ + static_cast<std::uint64_t>(member.index) * gemm_bytes_);
    logits_[slice.products].run(member,
                                {input<T>(launch, 0) + slice.first * depth_, input<T>(launch, 1),
                                 at<float>(launch, logits_at_), optional_input<T>(launch, 3)},
                                gemm_scratch);
    member.barrier();
    finish_rows(member, launch, slice, factor);
    const std::int64_t end = slice.first + slice.count;
    if (!gradient_ || (end % block_rows_ != 0 && end != rows_)) return;
    member.barrier();
    run_block(member, launch, blocks_[static_cast<std::size_t>(slice.first / block_rows_)], gemm_scratch);
  }

  void run_block(Member &member, const Launch &launch, const Rows &block, void *gemm_scratch) {
    Products &products = products_[block.products];
    const T *gradients = at<T>(launch, gradients_at_);
    const T *x = input<T>(launch, 0) + block.first * depth_, *w = input<T>(launch, 1);
    if (T *dx = optional_output<T>(launch, 1))
      products.dx.run(member, {gradients, w, dx + block.first * depth_}, gemm_scratch);
    if (void *dw = optional_output<void>(launch, 2)) {
      if (sums_apart()) dw = at<float>(launch, dw_at_);
      products.dw.run(member, trans_w_ ? GemmOperands{gradients, x, dw} : GemmOperands{x, gradients, dw}, gemm_scratch);
    }
    if (void *dbias = optional_output<void>(launch, 3))
      Loops<T>::sum_columns(gradients, block.count, classes_, share(classes_, kRowGrain, member), block.first > 0,
                            kNarrow ? at<float>(launch, dbias_at_) : static_cast<float *>(dbias));
  }

  // Computes the losses of the member's rows. Where gradients are wanted, they replace the logits.
  void finish_rows(Member &member, const Launch &launch, const Rows &slice, float factor) {
    auto *losses = at<double>(launch, losses_at_);
    const Range own = share(slice.count, 1, member);
    for (std::int64_t i = own.begin; i < own.end; ++i) {
      float *row = at<float>(launch, logits_at_) + i * classes_;
      const std::int64_t label = targets_.at(launch, slice.first + i);
      double &loss = losses[slice.first + i];
      loss = 0;
      if (label == Targets::kIgnored) {
        std::fill_n(row, classes_, 0.0F);
      } else {
        const double lse = log_sum_exp(row, classes_);
        loss = lse - static_cast<double>(row[label]);
        if (gradient_) softmax_gradient(row, classes_, static_cast<float>(lse), factor, label, row);
      }
      if constexpr (kNarrow)
        if (gradient_)
          narrow(row, at<T>(launch, gradients_at_) + ((slice.first + i) % block_rows_) * classes_, classes_);
    }
  }

  // Rounds sums of another type, once, and zeroes the sums of no rows.
  void finish_gradients(const Member &member, const Launch &launch) const {
    finish_sums(member, optional_output<T>(launch, 2), classes_ * depth_,
                sums_apart() ? at<float>(launch, dw_at_) : nullptr);
    finish_sums(member, optional_output<T>(launch, 3), classes_, kNarrow ? at<float>(launch, dbias_at_) : nullptr);
  }
  void finish_sums(const Member &member, T *to, std::int64_t count, const float *sums) const {
    if (to == nullptr) return;
    const Range own = share(count, kRowGrain, member);
    if (rows_ == 0)
      std::fill(to + own.begin, to + own.end, T{});
    else if (sums != nullptr)
      narrow(sums + own.begin, to + own.begin, own.size());
  }

  const bool gradient_, trans_w_;
  const std::int64_t rows_, depth_, classes_;
  const bool bias_;
  const Targets targets_;
  const Reduction reduction_;
  const std::int64_t slice_rows_, block_rows_;
  std::vector<Gemm> logits_;
  std::vector<Products> products_;
  std::vector<Rows> slices_, blocks_;
  std::uint64_t logits_at_ = 0, gradients_at_ = 0, dw_at_ = 0, dbias_at_ = 0, losses_at_ = 0,
                gemm_at_ = 0;     // in scratch
  std::uint64_t gemm_bytes_ = 0;  // for each member
};
}  // namespace

KernelPtr make_linear_cross_entropy(const KernelRequest &request, int team_size) {
  return make_by_float<LinearCrossEntropy>(request, request.inputs.at(0), team_size);
}

}  // namespace protrain::backend::cpu
