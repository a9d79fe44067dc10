// LinearCrossEntropy and its gradient. The logits are computed for a slice of a few rows at a time, so that the (M, V)
// logits (M rows, V classes) are never in memory as a whole. The gradient kernel turns each slice of logits into
// gradients. It multiplies these by w for dx and by x for dw, and sums dw over the slices in order. Logits and sums
// over slices are float32 whatever the operands are.
#include <algorithm>

#include "backend/common/linear_loss_shape.h"
#include "backend/cuda/columns.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/targets.h"
#include "backend/cuda/teacher.h"

namespace protrain::backend::cuda {

namespace {
constexpr StoredInputs kStoredTable = {.matrix = 1, .scales = 6};
constexpr SliceRule kSlices = kEmulated ? SliceRule{.bytes = 1 << 10, .least_rows = 16, .row_grain = 8}
                                        : SliceRule{.bytes = 256 << 20, .least_rows = 256, .row_grain = 64};

// Returns the distance between rows of logits, or of gradients, in elements. It is `classes` rounded up to whole cache
// lines, so that each row begins at a multiple of the 16 bytes that tensor cores read at once.
std::int64_t row_elements(std::int64_t classes) { return divided_up(classes, 64) * 64; }

// The number of classes that products see is rounded up to a multiple of this. cuBLASLt's fast algorithms need sizes M,
// N and K that are such multiples. It is not enough to round up the distance between rows. With exactly the 50257
// classes of GPT-2, an H100 computes dx at 121 TFLOP/s instead of 600. The number is not rounded up if w is a
// StoredMatrix, or if products are float32 without TF32.
constexpr std::int64_t kFastMultiple = 8;

// The rows of a matrix. `count` is their number, and `ld` is the distance between them, in elements.
template <typename T>
struct Rows {
  T *at;
  std::int64_t count, ld;
};

// The factor of a row's gradient: the gradient of the loss, divided by the sum of all weights if the loss is a mean.
// `weights` or `dloss` counts as 1 if it is nullptr.
struct Factor {
  const double *weights;
  const float *dloss;
  bool per_row;  // each row has a loss and a gradient of its own

  __device__ float of(std::int64_t row) const {
    return (weights != nullptr ? 1.0f / static_cast<float>(*weights) : 1.0f) *  //
           (dloss != nullptr ? dloss[per_row ? row : 0] : 1.0f);
  }
};

// The gradients of a slice's logits. Their rows lie as far apart as the rows of logits. A row has `columns` columns,
// and those behind the last class are 0. `at` is nullptr if no gradients are wanted.
template <typename T>
struct Gradients {
  T *at;
  std::int64_t columns;

  // Sets the columns behind the last class of a row to 0. All threads of the block call it.
  __device__ void clear_padding(T *row, std::int64_t classes) const {
    const std::int64_t column = classes + threadIdx.x;
    if (column < columns) row[column] = T{};
  }
};

// Computes the losses of a slice's rows, and the gradients of its logits. float32 gradients may overwrite the logits.
template <typename T>
__global__ void finish_kernel(Targets targets, std::int64_t first, Rows<float> logits, double *losses, Factor of,
                              Gradients<T> gradients) {
  const std::int64_t row = first + blockIdx.x, classes = targets.classes, label = targets[row];
  float *x = logits.at + blockIdx.x * logits.ld;
  const double sum = log_sum_exp<kWide<float>>(x, classes);
  double loss = label == Targets::kWrong ? NAN : 0;
  if (label >= 0) loss = static_cast<double>(targets.weight(row)) * row_loss(targets.terms, x, classes, sum, label);
  if (threadIdx.x == 0) losses[row] = loss;
  if (gradients.at == nullptr) return;
  const float at_label = label >= 0 ? x[label] : 0.0f;
  __syncthreads();  // all threads have read the label's logit
  const auto lse = static_cast<float>(sum);
  const arith::RowSlopes of_row = targets.terms.slopes(of.of(row) * targets.weight(row), lse, at_label, classes);
  T *to = gradients.at + blockIdx.x * logits.ld;
  gradients.clear_padding(to, classes);
  for_packs_of_row<kWide<float>>(classes, [&](std::int64_t first, auto width) {
    constexpr int kCount = decltype(width)::value;
    const Pack<float, kCount> from = load<kCount>(x + first);
    Pack<T, kCount> slopes;
    PROTRAIN_UNROLL
    for (int i = 0; i < kCount; ++i) {
      const float slope = of_row.of_log(from.at[i] - lse) - (first + i == label ? of_row.peak : 0.0f);
      slopes.at[i] = narrowed<T>(label == Targets::kIgnored ? 0.0f : (label == Targets::kWrong ? NAN : slope));
    }
    store(to + first, slopes);
  });
}

// Computes the same as finish_kernel, but for distillation: the targets are a teacher's logits instead of labels.
template <typename T>
__global__ void finish_taught_kernel(Teacher teacher, std::int64_t first, Rows<float> logits, double *losses, Factor of,
                                     Gradients<T> gradients) {
  const std::int64_t row = first + blockIdx.x;
  const float *x = logits.at + blockIdx.x * logits.ld, *t = teacher.row(row);
  const double sum = teacher.log_sum_exp(x), wanted = teacher.log_sum_exp(t), loss = teacher.loss(x, sum, t, wanted);
  if (threadIdx.x == 0) losses[row] = loss;
  if (gradients.at == nullptr) return;
  T *to = gradients.at + blockIdx.x * logits.ld;
  teacher.gradient(x, static_cast<float>(sum), t, wanted, of.of(row), to);
  gradients.clear_padding(to, teacher.classes);
}

// Adds a slice's column sums to the bias's gradient. The first slice sets the gradient.
struct AddTo {
  float *sums;
  bool first;
  __device__ void operator()(std::int64_t column, double sum) const {
    sums[column] = static_cast<float>(first ? sum : static_cast<double>(sums[column]) + sum);
  }
};

template <typename T>
void add_bias(Stream stream, const T *bias, std::int64_t columns, Rows<float> logits) {
  each(stream, logits.count * columns, [logits, bias, columns] __device__(std::int64_t i) {
    std::int64_t column = 0;
    const std::int64_t row = divide(i, columns, column);
    logits.at[row * logits.ld + column] += widened(bias[column]);
  });
}

// copy_rows() copies a matrix whose rows have widths.from elements to one whose rows have widths.to elements, and
// rounds it to the type of `to`. Wider rows end with zeros. Narrower rows lack the last elements.
struct Widths {
  std::int64_t from, to;
};
template <typename From, typename To>
void copy_rows(Stream stream, const From *from, std::int64_t rows, Widths widths, To *to) {
  each(stream, rows * widths.to, [from, widths, to] __device__(std::int64_t i) {
    std::int64_t column = 0;
    const std::int64_t row = divide(i, widths.to, column);
    to[i] = column < widths.from ? narrowed<To>(widened(from[row * widths.from + column])) : To{};
  });
}

// The loss of logits that are never all in memory. For a large vocabulary the (M, V) logits are the largest activation
// of a model. So the kernel computes them slice by slice and uses each slice at once. The gradient kernel computes the
// logits again, because keeping them would cost the memory that the fusion saves.
template <typename T>
class LinearCrossEntropy : public CudaKernel {
 public:
  LinearCrossEntropy(const KernelRequest &request, DeviceState &device)
      : shape_(with_floats(request, kStoredTable), kSlices),
        ld_(row_elements(shape_.classes)),
        stored_(stored_matrix(request, kStoredTable)),
        columns_(stored_ || (!kNarrow && !device.blas.tf32())
                     ? shape_.classes
                     : divided_up(shape_.classes, kFastMultiple) * kFastMultiple),
        targets_(request, 2, 4, shape_.classes, device),
        teacher_(request) {
    require_dtype(request, with_floats(request, kStoredTable).inputs[1], request.inputs[0].dtype);
    require(!stored_ || !has_output(request, 2), Code::unsupported, subject(request),
            "stored weights have no gradient");
    if (shape_.bias) require_dtype(request, request.inputs[3], request.inputs[0].dtype);
    // The first slice has products of its own, because it sets dw and later slices add to dw. A last slice with fewer
    // rows has products of its own too. All other slices share the products of the second slice.
    for (std::int64_t first = 0; first < shape_.rows; first += shape_.slice_rows) {
      const std::int64_t rows = std::min(shape_.slice_rows, shape_.rows - first);
      if (products_.size() < 2 || rows != shape_.slice_rows)
        products_.push_back(make_products(device.blas, rows, first > 0));
      slices_.push_back({first, rows, products_.size() - 1});
    }
    lay_out(request);
  }

  void run(Stream stream, const Launch &launch) override {
    const Targets targets = targets_.from(launch);
    auto *losses = at<double>(launch, losses_at_), *weights = at<double>(launch, weights_at_);
    cuda::launch(stream, sum_weights_kernel, {1}, targets, weights);
    if (padded()) fill_table(stream, input<T>(launch, 1), at<T>(launch, table_at_));
    for (const Slice &slice : slices_) run_slice(stream, launch, slice, targets);
    if (shape_.gradient) finish_gradients(stream, launch);
    auto *loss = optional_output<float>(launch, 0);  // absent if only gradients are wanted
    if (loss != nullptr && shape_.reduction == Reduction::none)
      each(stream, shape_.rows, [losses, loss] __device__(std::int64_t i) { loss[i] = static_cast<float>(losses[i]); });
    else if (loss != nullptr)
      cuda::launch(stream, total_loss_kernel, {1}, static_cast<const double *>(losses), shape_.rows,
                   static_cast<const double *>(weights), shape_.reduction == Reduction::mean, loss);
  }

 private:
  struct Products {
    Gemm logits, dx, dw;
  };
  struct Slice {
    std::int64_t first, rows;
    std::size_t products;
  };
  static constexpr bool kNarrow = !std::is_same_v<T, float>;
  static constexpr DType kType = kNarrow ? DType::bf16 : DType::f32;

  Products make_products(Blas &blas, std::int64_t rows, bool accumulate) const {
    GemmShape logits{.m = rows, .n = columns_, .k = shape_.depth, .trans_b = shape_.trans_w, .in = kType, .ld_c = ld_};
    GemmShape dx{.m = rows,
                 .n = shape_.depth,
                 .k = columns_,
                 .trans_b = !shape_.trans_w,
                 .in = kType,
                 .out = kType,
                 .ld_a = ld_};
    GemmShape dw{.m = shape_.trans_w ? columns_ : shape_.depth,
                 .n = shape_.trans_w ? shape_.depth : columns_,
                 .k = rows,
                 .trans_a = true,
                 .accumulate = accumulate,
                 .in = kType,
                 .ld_a = shape_.trans_w ? ld_ : 0,
                 .ld_b = shape_.trans_w ? 0 : ld_};
    if (!shape_.gradient) dx = dw = {};
    // Lowers the alignment of the products to one that all slices of x have. Slices begin at multiples of row_grain
    // rows, so the alignment must divide the bytes of that many rows.
    const auto row_bytes = static_cast<std::uint64_t>(kSlices.row_grain * shape_.depth) * sizeof(T);
    for (GemmShape *shape : {&logits, &dx, &dw})
      while (row_bytes % shape->alignment != 0) shape->alignment /= 2;
    if (stored_) dw = {};
    return {Gemm(blas, logits, stored_), Gemm(blas, dx, stored_), Gemm(blas, dw)};
  }

  // True if products see more classes than there are, because `columns_` is rounded up. Products then read a copy of w
  // in which the added classes are 0, and dw is copied from a sum that includes the added classes.
  bool padded() const { return columns_ != shape_.classes; }
  bool sums_apart() const { return kNarrow || padded(); }  // dw is summed in scratch
  std::uint64_t table_elements() const { return static_cast<std::uint64_t>(columns_ * shape_.depth); }

  // Lays out scratch. It holds the float32 logits of a slice, the losses of all rows, the sum of their weights, and the
  // scratch of products and column sums. With bfloat16 operands it also holds the slice's gradients in bfloat16, and
  // the float32 sums that dw and dbias are rounded from. If w is padded, it holds the padded w and the sum of dw.
  void lay_out(const KernelRequest &request) {
    std::uint64_t total = 0;
    const auto place = [&](std::uint64_t count, std::uint64_t size) {
      const std::uint64_t begin = total;
      total = round_up(checked_add(total, checked_multiply(count, size)), kAlignment);
      return begin;
    };
    const auto logits = static_cast<std::uint64_t>(shape_.slice_rows * ld_);
    logits_at_ = place(logits, sizeof(float));
    if (shape_.gradient && kNarrow) gradients_at_ = place(logits, sizeof(T));
    if (padded()) table_at_ = place(table_elements(), sizeof(T));
    if (has_output(request, 2) && sums_apart()) dw_at_ = place(table_elements(), sizeof(float));
    if (has_output(request, 3) && kNarrow) dbias_at_ = place(static_cast<std::uint64_t>(shape_.classes), sizeof(float));
    if (has_output(request, 3)) columns_at_ = place(column_bytes(), 1);
    losses_at_ = place(static_cast<std::uint64_t>(shape_.rows), sizeof(double));
    weights_at_ = place(1, sizeof(double));
    std::uint64_t gemm = 0;
    for (const Products &products : products_)
      gemm =
          std::max({gemm, products.logits.scratch_bytes(), products.dx.scratch_bytes(), products.dw.scratch_bytes()});
    gemm_at_ = place(gemm, 1);
    scratch_bytes = total;
  }

  template <typename E>
  static E *at(const Launch &launch, std::uint64_t offset) {
    return static_cast<E *>(static_cast<void *>(static_cast<std::byte *>(launch.scratch) + offset));
  }
  // Returns the bytes of scratch that the column sums for the bias's gradient take. They are enough for any slice.
  std::uint64_t column_bytes() const {
    std::uint64_t bytes = 0;
    for (const Slice &slice : slices_)
      bytes = std::max(bytes, ColumnSums<T>(slice.rows, shape_.classes, ld_).scratch_bytes());
    return bytes;
  }
  // Returns the float32 sums of output i: scratch at `offset` if `apart`, else the output itself. Returns nullptr if
  // the output is not wanted.
  float *sums(const Launch &launch, std::size_t i, bool apart, std::uint64_t offset) const {
    if (optional_output<T>(launch, i) == nullptr) return nullptr;
    return apart ? at<float>(launch, offset) : output<float>(launch, i);
  }
  float *dw_sums(const Launch &launch) const { return sums(launch, 2, sums_apart(), dw_at_); }
  float *dbias_sums(const Launch &launch) const { return sums(launch, 3, kNarrow, dbias_at_); }

  void fill_table(Stream stream, const T *w, T *table) const {
    if (!shape_.trans_w) return copy_rows(stream, w, shape_.depth, {shape_.classes, columns_}, table);
    const std::int64_t filled = shape_.classes * shape_.depth;
    copy(stream, table, w, static_cast<std::uint64_t>(filled) * sizeof(T));
    clear(stream, table + filled, table_elements() * sizeof(T) - static_cast<std::uint64_t>(filled) * sizeof(T));
  }

  void run_slice(Stream stream, const Launch &launch, const Slice &slice, const Targets &targets) {
    const Rows<float> logits{at<float>(launch, logits_at_), slice.rows, ld_};
    T *gradients = shape_.gradient ? at<T>(launch, kNarrow ? gradients_at_ : logits_at_) : nullptr;
    void *scratch = at<void>(launch, gemm_at_);
    const Products &products = products_[slice.products];
    const T *x = input<T>(launch, 0) + slice.first * shape_.depth,
            *w = padded() ? at<T>(launch, table_at_) : input<T>(launch, 1);
    const StoredOperand stored = stored_operand(launch, kStoredTable);
    products.logits.run(stream, {x, w, logits.at, nullptr, stored}, scratch);
    if (shape_.bias) add_bias(stream, optional_input<T>(launch, 3), shape_.classes, logits);
    const Factor factor{shape_.reduction == Reduction::mean ? at<double>(launch, weights_at_) : nullptr,
                        optional_input<float>(launch, 5), shape_.reduction == Reduction::none};
    const auto finish = [&](auto *kernel, const auto &compared_with) {
      cuda::launch(stream, kernel, {slice.rows, logit_threads(shape_.classes)}, compared_with, slice.first, logits,
                   at<double>(launch, losses_at_), factor, Gradients<T>{gradients, columns_});
    };
    if (targets.taught)
      finish(finish_taught_kernel<T>, teacher_.from(targets));
    else
      finish(finish_kernel<T>, targets);
    if (!shape_.gradient) return;
    if (T *dx = optional_output<T>(launch, 1))
      products.dx.run(stream, {gradients, w, dx + slice.first * shape_.depth, nullptr, stored}, scratch);
    if (float *dw = dw_sums(launch))
      products.dw.run(stream, shape_.trans_w ? GemmOperands{gradients, x, dw} : GemmOperands{x, gradients, dw},
                      scratch);
    if (float *dbias = dbias_sums(launch))
      ColumnSums<T>(slice.rows, shape_.classes, ld_)
          .run(stream, gradients, at<void>(launch, columns_at_), AddTo{dbias, slice.first == 0});
  }

  // Copies the sums dw and dbias to the outputs, except a sum that already lies in its output. If there are no rows,
  // sets the outputs to 0.
  void finish_gradients(Stream stream, const Launch &launch) const {
    // If trans_w, dw is copied as one row of classes * depth elements, in which the added classes come last.
    const std::int64_t rows = shape_.trans_w ? 1 : shape_.depth, width = shape_.trans_w ? shape_.depth : 1;
    finish_sums(stream, dw_sums(launch), optional_output<T>(launch, 2), rows,
                {columns_ * width, shape_.classes * width});
    finish_sums(stream, dbias_sums(launch), optional_output<T>(launch, 3), 1, {shape_.classes, shape_.classes});
  }
  void finish_sums(Stream stream, const float *sums, T *to, std::int64_t rows, Widths widths) const {
    if (to == nullptr) return;
    if (slices_.empty())
      clear(stream, to, static_cast<std::uint64_t>(rows * widths.to) * sizeof(T));
    else if (static_cast<const void *>(sums) != to)
      copy_rows(stream, sums, rows, widths, to);
  }

  const LinearLossShape shape_;
  const std::int64_t ld_;                     // elements from one row of logits, or of gradients, to the next
  const std::optional<StoredMatrix> stored_;  // w, if it is stored
  const std::int64_t columns_;                // classes that products see (see kFastMultiple)
  const Targets targets_;
  const Teacher teacher_;
  std::vector<Products> products_;
  std::vector<Slice> slices_;
  std::uint64_t logits_at_ = 0, gradients_at_ = 0, table_at_ = 0, dw_at_ = 0, dbias_at_ = 0, columns_at_ = 0,
                losses_at_ = 0, weights_at_ = 0, gemm_at_ = 0;  // offsets in scratch
};
}  // namespace

KernelPtr make_linear_cross_entropy(const KernelRequest &request, DeviceState &device) {
  return by_float(request, request.inputs.at(0),
                  [&]<typename T>(T) -> KernelPtr { return std::make_unique<LinearCrossEntropy<T>>(request, device); });
}

}  // namespace protrain::backend::cuda
