// LinearCrossEntropy and its gradient. The logits are computed for a slice of a few rows at a time, so that the (M, V)
// logits (M rows, V classes) are never in memory as a whole. The gradient kernel turns each slice of logits into
// gradients. Logits and sums are float32 whatever the operands are.
//   The logits' gradients are multiplied by w for dx, and by x for dw. The products work on blocks of one or more
// slices, and dw is summed over the blocks in order. The gradients of a block take at most kBlockBytes unless a single
// slice takes more. If neither dw nor the bias's gradient is wanted, a block is one slice. With float32 operands the
// logits' gradients overwrite the logits. With narrow operands they do so too if a block is one slice. Otherwise they
// have memory of their own, and often all slices fit into one block.
//   If the node asks for panels, products compute a panel of rows at a time, and blocks of dw consist of whole panels.
// The sizes of panels and blocks then follow from the shapes, the element type and the team's size. So the bits of the
// results do not depend on the size of the slices.
#include "backend/cpu/linear_loss.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "backend/common/linear_loss_shape.h"
#include "backend/cpu/floats.h"
#include "backend/cpu/stored_gemm.h"
#include "backend/cpu/targets.h"
#include "base/shape.h"

namespace protrain::backend::cpu {

namespace {
constexpr std::int64_t kRowGrain = 16;
constexpr StoredInputs kStored = {.matrix = 1, .scales = 6};
constexpr SliceRule kSlices{.bytes = 64 << 20, .least_rows = 64, .row_grain = kRowGrain};
template <typename T>  // most bytes of a block's gradients
constexpr std::int64_t kBlockBytes = std::is_same_v<T, float> ? kSlices.bytes : 128 << 20;
// The slices of a gradient node that computes neither dw nor dbias. Such a node sums nothing over blocks, so its slices
// and blocks can be small. Training an adapter of a large model then needs little memory for the loss.
constexpr SliceRule kSlicesWithoutSums{.bytes = 16 << 20, .least_rows = 64, .row_grain = kRowGrain};
constexpr std::int64_t kMostPanelRows = 64;  // more rows would hardly be faster

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

// Makes rows of float32 narrow, in the memory in which they lie. `to` is where `wide` is. A narrow element takes at
// most half the memory. So the elements from n to 2n fit into the memory of those from n/2 to n, which are narrow by
// then. All members work on them together. The first elements go through a buffer.
template <typename T>
void narrow_in_place(Member &member, const float *wide, T *to, std::int64_t count) {
  const std::int64_t first = std::min(kPiece, count);
  member.barrier();
  if (member.index == 0) {
    T piece[kPiece];
    narrow(wide, piece, first);
    std::copy_n(piece, first, to);
  }
  for (std::int64_t n = first; n < count; n *= 2) {
    member.barrier();
    const Range own = share(std::min(2 * n, count) - n, kRowGrain, member);
    narrow(wide + n + own.begin, to + n + own.begin, own.size());
  }
}

// True if w or the bias gets a gradient. Such a gradient is a sum over all rows.
bool sums_over_rows(const KernelRequest &request) { return has_output(request, 2) || has_output(request, 3); }

// Returns the number of rows of a panel, or 0 if the node does not ask for panels. A slice has about one panel for each
// thread, but a panel has at least kRowGrain and at most kMostPanelRows rows.
std::int64_t panel_rows_of(const KernelRequest &request, int team_size) {
  if (request.node.attributes.integer("panels", 0) == 0) return 0;
  const std::int64_t rows = LinearLossShape(with_floats(request, kStored), kSlices).slice_rows / team_size;
  return std::clamp(rows / kRowGrain * kRowGrain, kRowGrain, kMostPanelRows);
}

SliceRule with_panels(SliceRule rule, std::int64_t panel_rows) {
  if (panel_rows > 0) rule.row_grain = std::lcm(rule.row_grain, panel_rows);
  return rule;
}

// The products of a block's gradients, for the outputs that the node has.
struct GradientProducts {
  std::uint64_t scratch_bytes() const { return std::max(dx ? dx->scratch_bytes() : 0, dw ? dw->scratch_bytes() : 0); }

  std::optional<WeightGemm> dx;
  std::optional<Gemm> dw;
};

// Computes the loss, and its gradient, without ever holding all logits in memory. For a large vocabulary the (M, V)
// logits are the largest activation of a model. So the kernel computes them slice by slice and uses each slice at once.
// The gradient kernel computes them again, because keeping them would cost the memory that the fusion saves.
template <typename T>
class LinearCrossEntropy : public CpuKernel {
 public:
  LinearCrossEntropy(const KernelRequest &request, int team_size, const SliceRule &rule)
      : panel_rows_(panel_rows_of(request, team_size)),
        shape_(with_floats(request, kStored), with_panels(rule, panel_rows_)),
        targets_(request, 2, 4, shape_.classes),
        stored_(stored_matrix(request, kStored)),
        block_rows_(sums_over_rows(request) ? rows_of_a_block() : shape_.slice_rows) {
    require_dtype(request, with_floats(request, kStored).inputs[1], request.inputs[0].dtype);
    require(!stored_ || !has_output(request, 2), Code::unsupported, subject(request),
            "stored weights have no gradient");
    if (shape_.bias) require_dtype(request, request.inputs[3], request.inputs[0].dtype);
    // Cuts the rows into slices and blocks, and prepares their products. Slices with the same number of rows share
    // products. The first block has products of its own, because it sets dw and later blocks add to dw. The last block
    // also has products of its own if it has fewer rows than the others.
    std::map<std::int64_t, std::size_t> products;  // of slices, by their rows
    for (std::int64_t first = 0, rows = 0; first < shape_.rows; first += rows) {
      rows = std::min({shape_.slice_rows, shape_.rows - first, block_rows_ - first % block_rows_});
      const auto [found, is_new] = products.try_emplace(rows, logits_.size());
      if (is_new) logits_.emplace_back(logits_shape(rows), team_size, stored_);
      slices_.push_back({first, rows, found->second});
    }
    for (std::int64_t first = 0; shape_.gradient && first < shape_.rows; first += block_rows_) {
      const std::int64_t rows = std::min(block_rows_, shape_.rows - first);
      if (products_.size() < 2 || rows != block_rows_)
        products_.push_back(make_products(request, rows, first > 0, team_size));
      blocks_.push_back({first, rows, products_.size() - 1});
    }
    lay_out(request, team_size);
  }

  void run(Member &member, const Launch &launch) override {
    const auto *losses = at<double>(launch, at_.losses);
    const double weights = targets_.total(launch);
    const float of_mean = shape_.reduction == Reduction::mean ? 1.0F / static_cast<float>(weights) : 1.0F;
    for (const Rows &slice : slices_) {
      run_slice(member, launch, slice, of_mean);
      member.barrier();
    }
    if (shape_.gradient) finish_gradients(member, launch);
    auto *loss = optional_output<float>(launch, 0);  // absent if only gradients are wanted
    if (member.index != 0 || loss == nullptr) return;
    if (shape_.reduction == Reduction::none)
      return static_cast<void>(std::transform(losses, losses + shape_.rows, loss, [](double x) { return float(x); }));
    const double total = std::accumulate(losses, losses + shape_.rows, 0.0);
    *loss = static_cast<float>(shape_.reduction == Reduction::mean ? total / weights : total);
  }

 private:
  static constexpr bool kNarrow = !std::is_same_v<T, float>;
  static constexpr DType kType = kDTypeOf<T>;

  struct Rows {  // of a slice or a block
    std::int64_t first, count;
    std::size_t products;  // index into logits_ or products_
  };

  // Returns the number of rows of a block. A block consists of whole panels if there are panels, else of whole slices.
  // Their gradients fit into kBlockBytes, unless the block is a single panel or slice.
  std::int64_t rows_of_a_block() const {
    const std::int64_t unit = panel_rows_ > 0 ? panel_rows_ : shape_.slice_rows;
    const std::int64_t unit_bytes = unit * shape_.classes * static_cast<std::int64_t>(sizeof(T));
    return unit * std::max<std::int64_t>(kBlockBytes<T> / std::max<std::int64_t>(unit_bytes, 1), 1);
  }

  GemmShape logits_shape(std::int64_t rows) const {
    return {.m = rows,
            .n = shape_.classes,
            .k = shape_.depth,
            .trans_b = shape_.trans_w,
            .bias = shape_.bias,
            .in = kType,
            .panel_rows = panel_rows_};
  }
  GradientProducts make_products(const KernelRequest &request, std::int64_t rows, bool accumulate,
                                 int team_size) const {
    const GemmShape dx{.m = rows,
                       .n = shape_.depth,
                       .k = shape_.classes,
                       .trans_b = !shape_.trans_w,
                       .in = kType,
                       .out = kType,
                       .panel_rows = panel_rows_};
    const GemmShape dw{.m = shape_.trans_w ? shape_.classes : shape_.depth,
                       .n = shape_.trans_w ? shape_.depth : shape_.classes,
                       .k = rows,
                       .trans_a = true,
                       .accumulate = accumulate,
                       .in = kType,
                       .out = sums_apart() ? DType::f32 : kType};
    GradientProducts products;
    if (has_output(request, 1)) products.dx.emplace(dx, team_size, stored_);
    if (has_output(request, 2)) products.dw.emplace(dw, team_size);
    return products;
  }
  // Returns true if dw is summed in scratch, in float32: dw is narrow, and there are several blocks.
  bool sums_apart() const { return kNarrow && shape_.rows > block_rows_; }

  // Returns true if the gradients of a slice take the place of its logits, as narrow numbers.
  bool narrows_in_place() const { return kNarrow && shape_.gradient && block_rows_ == shape_.slice_rows; }

  // Lays out scratch. It holds the logits of a slice, the gradients of a block of slices, the float32 sums of narrow
  // outputs, the losses of rows, and the products' scratch. Gradients overwrite the logits that they come from if they
  // are float32, or if a block is one slice.
  void lay_out(const KernelRequest &request, int team_size) {
    std::uint64_t total = 0;
    const auto place = [&](std::int64_t rows, std::int64_t columns, std::size_t size) {
      const auto count = checked_multiply(static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns));
      return std::exchange(total, round_up(checked_add(total, checked_multiply(count, size)), kAlignment));
    };
    const std::int64_t most_rows = std::min(block_rows_, shape_.rows);  // of a block
    at_.logits = place(kNarrow ? shape_.slice_rows : most_rows, shape_.classes, sizeof(float));
    const bool apart = kNarrow && shape_.gradient && !narrows_in_place();
    at_.gradients = apart ? place(most_rows, shape_.classes, sizeof(T)) : at_.logits;
    if (has_output(request, 2) && sums_apart()) at_.dw = place(shape_.classes, shape_.depth, sizeof(float));
    if (has_output(request, 3) && kNarrow) at_.dbias = place(1, shape_.classes, sizeof(float));
    at_.losses = place(shape_.rows, 1, sizeof(double));
    for (const WeightGemm &logits : logits_) at_.gemm_bytes = std::max(at_.gemm_bytes, logits.scratch_bytes());
    for (const GradientProducts &made : products_) at_.gemm_bytes = std::max(at_.gemm_bytes, made.scratch_bytes());
    at_.gemm = total;
    scratch_bytes = checked_add(at_.gemm, checked_multiply(at_.gemm_bytes, static_cast<std::uint64_t>(team_size)));
  }

  template <typename E>
  static E *at(const Launch &launch, std::uint64_t offset) {
    return reinterpret_cast<E *>(static_cast<std::byte *>(launch.scratch) + offset);
  }

  // Returns the logits of a slice.
  float *logits_at(const Launch &launch, const Rows &slice) const {
    return at<float>(launch, at_.logits) + (kNarrow ? 0 : (slice.first % block_rows_) * shape_.classes);
  }

  void run_slice(Member &member, const Launch &launch, const Rows &slice, float of_mean) {
    auto *gemm_scratch = at<std::byte>(launch, at_.gemm + static_cast<std::uint64_t>(member.index) * at_.gemm_bytes);
    logits_[slice.products].run(member,
                                {input<T>(launch, 0) + slice.first * shape_.depth, input<T>(launch, 1),
                                 logits_at(launch, slice), optional_input<T>(launch, 3)},
                                stored_operand(launch, kStored), gemm_scratch);
    member.barrier();
    finish_rows(member, launch, slice, of_mean);
    if (narrows_in_place())
      narrow_in_place(member, logits_at(launch, slice), at<T>(launch, at_.gradients), slice.count * shape_.classes);
    const std::int64_t end = slice.first + slice.count;
    if (!shape_.gradient || (end % block_rows_ != 0 && end != shape_.rows)) return;
    member.barrier();
    run_block(member, launch, blocks_[static_cast<std::size_t>(slice.first / block_rows_)], gemm_scratch);
  }

  void run_block(Member &member, const Launch &launch, const Rows &block, void *gemm_scratch) {
    GradientProducts &products = products_[block.products];
    const T *gradients = at<T>(launch, at_.gradients);
    const T *x = input<T>(launch, 0) + block.first * shape_.depth, *w = input<T>(launch, 1);
    if (T *dx = optional_output<T>(launch, 1))
      products.dx->run(member, {gradients, w, dx + block.first * shape_.depth}, stored_operand(launch, kStored),
                       gemm_scratch);
    if (void *dw = optional_output<void>(launch, 2)) {
      if (sums_apart()) dw = at<float>(launch, at_.dw);
      products.dw->run(member, shape_.trans_w ? GemmOperands{gradients, x, dw} : GemmOperands{x, gradients, dw},
                       gemm_scratch);
    }
    if (void *dbias = optional_output<void>(launch, 3))
      Loops<T>::sum_columns(gradients, block.count, shape_.classes, share(shape_.classes, kRowGrain, member),
                            block.first > 0, kNarrow ? at<float>(launch, at_.dbias) : static_cast<float *>(dbias));
  }

  // Returns the upstream gradient of a row's loss. It is 1 if the node has no input for upstream gradients.
  float dloss_of(const Launch &launch, std::int64_t row) const {
    const auto *dloss = optional_input<float>(launch, 5);
    return dloss == nullptr ? 1 : dloss[shape_.reduction == Reduction::none ? row : 0];
  }

  // Computes the losses of the member's rows. If gradients are wanted, replaces the logits by their gradients. All
  // gradients are multiplied by `of_mean`. It is 1 divided by the sum of the rows' weights if the loss is a mean over
  // rows, else 1.
  void finish_rows(Member &member, const Launch &launch, const Rows &slice, float of_mean) {
    auto *losses = at<double>(launch, at_.losses);
    const Range own = share(slice.count, 1, member);
    for (std::int64_t i = own.begin; i < own.end; ++i) {
      float *row = logits_at(launch, slice) + i * shape_.classes;
      const float factor = of_mean * dloss_of(launch, slice.first + i);
      losses[slice.first + i] = targets_.teacher ? follow_teacher(launch, slice.first + i, row, factor)
                                                 : follow_label(targets_.at(launch, slice.first + i), row, factor);
      if constexpr (kNarrow)
        if (shape_.gradient && !narrows_in_place())
          narrow(row, at<T>(launch, at_.gradients) + ((slice.first + i) % block_rows_) * shape_.classes,
                 shape_.classes);
    }
  }

  // Returns the loss of a row of logits against its label. If gradients are wanted, the gradients of `factor` times the
  // loss replace the logits.
  double follow_label(const Target &target, float *row, float factor) const {
    if (target.label == Target::kIgnored) {
      std::fill_n(row, shape_.classes, 0.0F);
      return 0;
    }
    const double lse = log_sum_exp(row, shape_.classes);
    const double loss = row_loss(targets_.terms, row, shape_.classes, lse, target.label);
    const auto rounded = static_cast<float>(lse);
    if (shape_.gradient)
      row_gradient(targets_.terms.slopes(factor * target.weight, rounded, row[target.label], shape_.classes), row,
                   shape_.classes, rounded, target.label, row);
    return static_cast<double>(target.weight) * loss;
  }

  // Returns the distillation loss of row i against the teacher's logits. If gradients are wanted, the gradients of
  // `factor` times the loss replace the logits.
  double follow_teacher(const Launch &launch, std::int64_t i, float *row, float factor) const {
    const Teacher::Row wanted = targets_.teacher->row(launch, i);
    const double lse = targets_.teacher->log_sum_exp(row), loss = targets_.teacher->loss(wanted, row, lse);
    if (shape_.gradient) targets_.teacher->gradient(wanted, row, static_cast<float>(lse), factor, row);
    return loss;
  }

  // Rounds float32 sums to narrow outputs. If there are no rows, sets the outputs to 0.
  void finish_gradients(const Member &member, const Launch &launch) const {
    finish_sums(member, optional_output<T>(launch, 2), shape_.classes * shape_.depth,
                sums_apart() ? at<float>(launch, at_.dw) : nullptr);
    finish_sums(member, optional_output<T>(launch, 3), shape_.classes,
                kNarrow ? at<float>(launch, at_.dbias) : nullptr);
  }
  void finish_sums(const Member &member, T *to, std::int64_t count, const float *sums) const {
    if (to == nullptr) return;
    const Range own = share(count, kRowGrain, member);
    if (shape_.rows == 0)
      std::fill(to + own.begin, to + own.end, T{});
    else if (sums != nullptr)
      narrow(sums + own.begin, to + own.begin, own.size());
  }

  // Offsets in scratch.
  struct Offsets {
    std::uint64_t logits = 0, gradients = 0, dw = 0, dbias = 0, losses = 0, gemm = 0;
    std::uint64_t gemm_bytes = 0;  // of each member
  };

  const std::int64_t panel_rows_;  // 0: products choose their own panels
  const LinearLossShape shape_;
  const Targets targets_;
  const std::optional<StoredMatrix> stored_;  // w, if it is stored
  const std::int64_t block_rows_;
  std::vector<WeightGemm> logits_;
  std::vector<GradientProducts> products_;
  std::vector<Rows> slices_, blocks_;
  Offsets at_;
};
}  // namespace

KernelPtr make_linear_cross_entropy(const KernelRequest &request, int team_size) {
  const bool only_dx = request.node.op == "LinearCrossEntropyGrad" && !sums_over_rows(request);
  return make_linear_cross_entropy_in(only_dx ? kSlicesWithoutSums : kSlices, request, team_size);
}

KernelPtr make_linear_cross_entropy_in(const SliceRule &slices, const KernelRequest &request, int team_size) {
  return make_by_float<LinearCrossEntropy>(request, request.inputs.at(0), team_size, slices);
}

}  // namespace protrain::backend::cpu
