// LayerNormalization, RMSNormalization and their gradients. Tensors are (rows, width). In forward a block normalizes
// one row.
//   For gradients the rows are cut into parts, which the shape fixes. If a row fits into a block's registers, one
// launch has a block for each part, which computes dx and the part's sums for the gradients of scale and bias.
// Otherwise one launch computes dx, and another computes the sums. A last launch adds up the sums of all parts.
#include <algorithm>

#include "backend/common/axes.h"
#include "backend/cuda/columns.h"
#include "backend/cuda/fold.h"

namespace protrain::backend::cuda {

namespace {
void require_scale(const KernelRequest &request, std::size_t scale, const NormalizedRows &dims) {
  const std::int64_t scales = element_count(request.inputs.at(scale).shape);
  require(scales == dims.width, Code::unsupported, subject(request),
          "a scale of {} elements for rows of {}: cuda wants one for each", scales, dims.width);
}

// The operands of a normalization. `mean` and `inverse` get the statistics of each row, and are nullptr if they are not
// wanted. `inverse` is 1 / standard deviation, or 1 / root mean square.
template <typename T>
struct Operands {
  const T *x, *scale, *bias;  // bias may be nullptr
  T *y;                       // nullptr: not wanted
  float *mean, *inverse;
};

// The distribution of a row's packs over the registers of a block. Thread t holds packs t, t + threads, t + 2 threads
// and so on, `held` packs in all. `held` is 1, 2 or 4: the smallest of them with which kHeldThreads threads can hold
// the row. If even 4 is too small, `holds` is false.
constexpr int kHeldThreads = kEmulated ? 64 : 256;  // most threads of a block that holds a row
constexpr int kMostHeld = 4;
struct RegisterRows {
  RegisterRows(std::int64_t width, std::size_t element_bytes) {
    const std::int64_t packs = divided_up(width * static_cast<std::int64_t>(element_bytes), 16);
    while (held < kMostHeld && packs > held * kHeldThreads) held *= 2;
    threads = static_cast<int>(divided_up(std::max<std::int64_t>(packs, 1), held * kWarp)) * kWarp;
    holds = threads <= kHeldThreads && begins_wide_rows(width, element_bytes);
  }

  // Returns the number of blocks that the gradient's kernel should have. An H100 can run this many blocks at the same
  // time, so no block waits for another one to end. The more packs a thread holds, the more registers a block needs,
  // and the fewer blocks can run at the same time.
  std::int64_t blocks() const { return kEmulated ? 64 : 132 * (held == 1 ? 3 : held == 2 ? 2 : 1); }

  int held = 1, threads = kWarp;  // packs of a thread; threads of a block
  bool holds;                     // a block can hold a row: it is narrow enough, and consists of whole packs
};
// Calls body(h, column) for each of this thread's packs that lie within the row. Pack h begins at `column`.
template <typename T, int kHeld, typename Body>
__device__ void each_held(std::int64_t width, Body body) {
  PROTRAIN_UNROLL
  for (int h = 0; h < kHeld; ++h) {
    const std::int64_t column = (static_cast<std::int64_t>(h) * blockDim.x + threadIdx.x) * kWide<T>;
    if (column < width) body(h, column);
  }
}
template <typename T, bool kCentered, int kHeld>
__global__ void __launch_bounds__(kHeldThreads) held_kernel(NormalizedRows dims, float epsilon, Operands<T> o) {
  constexpr int kWidth = kWide<T>;
  const std::int64_t begin = blockIdx.x * dims.width;
  const auto count = static_cast<float>(dims.width);
  Pack<T, kWidth> x[kHeld] = {};
  each_held<T, kHeld>(dims.width, [&](int h, std::int64_t column) { x[h] = load<kWidth>(o.x + begin + column); });
  // Returns the sum of term(element) over the row.
  const auto sum = [&](auto term) {
    float own = 0;
    each_held<T, kHeld>(dims.width, [&](int h, std::int64_t) {
      PROTRAIN_UNROLL
      for (int i = 0; i < kWidth; ++i) own += term(widened(x[h].at[i]));
    });
    return block_fold<Plus>(own);
  };
  const float mean = kCentered ? sum([](float element) { return element; }) / count : 0.0f;
  const float squares = sum([mean](float element) { return (element - mean) * (element - mean); });
  const float inverse = 1.0f / __builtin_sqrtf(squares / count + epsilon);
  if (o.y != nullptr)
    each_held<T, kHeld>(dims.width, [&](int h, std::int64_t column) {
      const Pack<T, kWidth> scale = load<kWidth>(o.scale + column);
      Pack<T, kWidth> bias{}, y;
      if (o.bias != nullptr) bias = load<kWidth>(o.bias + column);
      PROTRAIN_UNROLL
      for (int i = 0; i < kWidth; ++i) {
        const float normal = (widened(x[h].at[i]) - mean) * inverse * widened(scale.at[i]);
        y.at[i] = narrowed<T>(o.bias != nullptr ? normal + widened(bias.at[i]) : normal);
      }
      store(o.y + begin + column, y);
    });
  if (threadIdx.x != 0) return;
  if (o.mean != nullptr) o.mean[blockIdx.x] = mean;
  if (o.inverse != nullptr) o.inverse[blockIdx.x] = inverse;
}

// Normalizes rows that do not fit into registers.
template <typename T, bool kCentered>
__global__ void normalize_kernel(NormalizedRows dims, float epsilon, Operands<T> o) {
  const T *x = o.x + blockIdx.x * dims.width;
  const auto count = static_cast<float>(dims.width);
  const float mean =
      kCentered ? fold_terms<Plus, float>(dims.width, [&](std::int64_t i) { return widened(x[i]); }) / count : 0.0f;
  const auto squares = fold_terms<Plus, float>(dims.width, [&](std::int64_t i) {
    const float distance = widened(x[i]) - mean;
    return distance * distance;
  });
  const float inverse = 1.0f / __builtin_sqrtf(squares / count + epsilon);
  for (std::int64_t i = threadIdx.x; o.y != nullptr && i < dims.width; i += blockDim.x) {
    const float normal = (widened(x[i]) - mean) * inverse * widened(o.scale[i]);
    o.y[blockIdx.x * dims.width + i] = narrowed<T>(o.bias != nullptr ? normal + widened(o.bias[i]) : normal);
  }
  if (threadIdx.x != 0) return;
  if (o.mean != nullptr) o.mean[blockIdx.x] = mean;
  if (o.inverse != nullptr) o.inverse[blockIdx.x] = inverse;
}

template <typename T>
struct GradOperands {
  const T *dy, *x, *scale;
  const float *mean, *inverse;  // mean nullptr: all means are 0
  const T *rest;                // nullptr: nothing is added
};

// Returns dx + rest. Rounds dx to T before the addition, so that the bits are those of a separate Add.
template <typename T>
__device__ T added(float dx, T rest) {
  return narrowed<T>(widened(narrowed<T>(dx)) + widened(rest));
}

// Computes dx = inverse * (g - mean(g) - n * mean(g n)) + rest, where n = (x - mean) * inverse and g = dy * scale.
// mean(...) averages over the row. For RMSNormalization, mean(g) and the mean of x are replaced by 0.
template <typename T, bool kCentered>
__global__ void normalize_grad_kernel(NormalizedRows dims, GradOperands<T> o, T *dx) {
  const std::int64_t begin = blockIdx.x * dims.width;
  const float mean = kCentered ? o.mean[blockIdx.x] : 0.0f, inverse = o.inverse[blockIdx.x];
  const auto count = static_cast<float>(dims.width);
  const auto normal = [&](std::int64_t i) { return (widened(o.x[begin + i]) - mean) * inverse; };
  const auto scaled = [&](std::int64_t i) { return widened(o.dy[begin + i]) * widened(o.scale[i]); };
  const float sum = kCentered ? fold_terms<Plus, float>(dims.width, scaled) / count : 0.0f;
  const float dot = fold_terms<Plus, float>(dims.width, [&](std::int64_t i) { return scaled(i) * normal(i); }) / count;
  for (std::int64_t i = threadIdx.x; i < dims.width; i += blockDim.x) {
    const float own = inverse * (scaled(i) - sum - normal(i) * dot);
    dx[begin + i] = o.rest != nullptr ? added(own, o.rest[begin + i]) : narrowed<T>(own);
  }
}

// This thread's share of a row, in registers.
template <typename T, int kHeld>
struct RegisterRow {
  Pack<T, kWide<T>> dy[kHeld], x[kHeld];
  float mean, inverse;
};
template <typename T, int kHeld>
__device__ RegisterRow<T, kHeld> hold(NormalizedRows dims, const GradOperands<T> &o, std::int64_t row) {
  RegisterRow<T, kHeld> held;
  each_held<T, kHeld>(dims.width, [&](int h, std::int64_t column) {
    held.dy[h] = load<kWide<T>>(o.dy + row * dims.width + column);
    held.x[h] = load<kWide<T>>(o.x + row * dims.width + column);
  });
  held.mean = o.mean != nullptr ? o.mean[row] : 0.0f;
  held.inverse = o.inverse[row];
  return held;
}

// Computes dx as normalize_grad_kernel does, and sums for the gradients of scale and bias. Each block takes one part of
// the rows. It writes to partial (parts, 1 or 2, width) the part's sums of dy * n, with n as in normalize_grad_kernel,
// and if kCentered also the part's sums of dy. While the block's threads synchronize for one row, the next row is
// loaded. If dx or partial is nullptr, the kernel does not write that result.
template <typename T, bool kCentered, int kHeld>
__global__ void __launch_bounds__(kHeldThreads)
    held_grad_kernel(NormalizedRows dims, GradOperands<T> o, std::int64_t part, T *dx, float *partial) {
  constexpr int kWidth = kWide<T>;
  const std::int64_t first = blockIdx.x * part, end = first + part < dims.rows ? first + part : dims.rows;
  const auto count = static_cast<float>(dims.width);
  Pack<T, kWidth> scale[kHeld];
  Pack<float, kWidth> dscale[kHeld] = {}, dbias[kHeld] = {};
  each_held<T, kHeld>(dims.width, [&](int h, std::int64_t column) { scale[h] = load<kWidth>(o.scale + column); });
  RegisterRow<T, kHeld> next = hold<T, kHeld>(dims, o, first);
  for (std::int64_t row = first; row < end; ++row) {
    const RegisterRow<T, kHeld> now = next;
    if (row + 1 < end) next = hold<T, kHeld>(dims, o, row + 1);
    const auto normal = [&](int h, int i) { return (widened(now.x[h].at[i]) - now.mean) * now.inverse; };
    const auto scaled = [&](int h, int i) { return widened(now.dy[h].at[i]) * widened(scale[h].at[i]); };
    SumPair sums{};  // of g; of g * n
    each_held<T, kHeld>(dims.width, [&](int h, std::int64_t) {
      PROTRAIN_UNROLL
      for (int i = 0; i < kWidth; ++i) {
        const float dy = widened(now.dy[h].at[i]), n = normal(h, i), g = scaled(h, i);
        sums = sums + SumPair{g, g * n};
        dscale[h].at[i] += dy * n;
        dbias[h].at[i] += dy;
      }
    });
    if (dx == nullptr) continue;
    Pack<T, kWidth> rest[kHeld] = {};
    if (o.rest != nullptr)
      each_held<T, kHeld>(
          dims.width, [&](int h, std::int64_t column) { rest[h] = load<kWidth>(o.rest + row * dims.width + column); });
    sums = block_fold<Plus>(sums);
    const float sum = kCentered ? sums.first / count : 0.0f, dot = sums.second / count;
    each_held<T, kHeld>(dims.width, [&](int h, std::int64_t column) {
      Pack<T, kWidth> to;
      PROTRAIN_UNROLL
      for (int i = 0; i < kWidth; ++i) {
        const float own = now.inverse * (scaled(h, i) - sum - normal(h, i) * dot);
        to.at[i] = o.rest != nullptr ? added(own, rest[h].at[i]) : narrowed<T>(own);
      }
      store(dx + row * dims.width + column, to);
    });
  }
  if (partial == nullptr) return;
  float *own = partial + blockIdx.x * dims.width * (kCentered ? 2 : 1);
  each_held<T, kHeld>(dims.width, [&](int h, std::int64_t column) {
    store(own + column, dscale[h]);
    if (kCentered) store(own + dims.width + column, dbias[h]);
  });
}

// Computes the sums that held_grad_kernel writes to `partial`, for rows that do not fit into registers.
template <typename T, bool kCentered>
__global__ void sums_kernel(NormalizedRows dims, GradOperands<T> o, std::int64_t part, std::int64_t parts,
                            float *partial) {
  for (std::int64_t at = thread_index(); at < parts * dims.width; at += thread_count()) {
    std::int64_t column = 0;
    const std::int64_t p = divide(at, dims.width, column), first = p * part;
    const std::int64_t end = first + part < dims.rows ? first + part : dims.rows;
    float dscale = 0, dbias = 0;
    for (std::int64_t row = first; row < end; ++row) {
      const float dy = widened(o.dy[row * dims.width + column]), x = widened(o.x[row * dims.width + column]);
      dscale += dy * ((x - (kCentered ? o.mean[row] : 0.0f)) * o.inverse[row]);
      dbias += dy;
    }
    float *own = partial + p * dims.width * (kCentered ? 2 : 1) + column;
    own[0] = dscale;
    if (kCentered) own[dims.width] = dbias;
  }
}

// Writes the sums over all parts to the gradients of scale and bias.
template <typename T>
struct ToScaleAndBias {
  std::int64_t width;
  T *dscale, *dbias;
  __device__ void operator()(std::int64_t column, double sum) const {
    T *to = column < width ? dscale : dbias;
    if (to != nullptr) to[column < width ? column : column - width] = narrowed<T>(static_cast<float>(sum));
  }
};

template <typename T, bool kCentered>
class Normalization : public CudaKernel {
 public:
  explicit Normalization(const KernelRequest &request)
      : dims_(request, request.inputs.at(0).shape),
        register_rows_(dims_.width, sizeof(T)),
        epsilon_(static_cast<float>(request.node.attributes.real("epsilon", 1e-5))) {
    require_scale(request, 1, dims_);
    for (const graph::Type &operand : request.inputs)
      if (operand.dtype != DType::none) require_dtype(request, operand, request.inputs[0].dtype);
  }

  void run(Stream stream, const Launch &launch) override {
    const Operands<T> operands{input<T>(launch, 0),
                               input<T>(launch, 1),
                               kCentered ? optional_input<T>(launch, 2) : nullptr,
                               optional_output<T>(launch, 0),
                               kCentered ? optional_output<float>(launch, 1) : nullptr,
                               optional_output<float>(launch, kCentered ? 2 : 1)};
    const auto held = register_rows_.held == 1   ? held_kernel<T, kCentered, 1>
                      : register_rows_.held == 2 ? held_kernel<T, kCentered, 2>
                                                 : held_kernel<T, kCentered, kMostHeld>;
    cuda::launch(stream, register_rows_.holds ? held : normalize_kernel<T, kCentered>,
                 {dims_.rows, register_rows_.holds ? register_rows_.threads : row_threads(dims_.width)}, dims_,
                 epsilon_, operands);
  }

 private:
  const NormalizedRows dims_;
  const RegisterRows register_rows_;
  const float epsilon_;
};

template <typename T, bool kCentered>
class NormalizationGrad : public CudaKernel {
 public:
  explicit NormalizationGrad(const KernelRequest &request)
      : dims_(request, request.inputs.at(1).shape),
        register_rows_(dims_.width, sizeof(T)),
        part_(std::max(kLeastPart, divided_up(dims_.rows, register_rows_.blocks()))),
        parts_(divided_up(dims_.rows, part_)),
        columns_((kCentered ? 2 : 1) * dims_.width) {
    require_scale(request, 2, dims_);
    for (std::size_t i : {std::size_t{0}, std::size_t{1}, std::size_t{2}, kRest})
      if (has_input(request, i)) require_dtype(request, request.inputs[i], request.inputs[0].dtype);
    sums_ = has_output(request, 1) || (kCentered && has_output(request, 2));
    const std::uint64_t floats =
        checked_multiply(static_cast<std::uint64_t>(parts_), static_cast<std::uint64_t>(columns_));
    if (sums_) scratch_bytes = checked_multiply(floats, sizeof(float));
  }

  void run(Stream stream, const Launch &launch) override {
    const GradOperands<T> operands{input<T>(launch, 0),
                                   input<T>(launch, 1),
                                   input<T>(launch, 2),
                                   kCentered ? input<float>(launch, 3) : nullptr,
                                   input<float>(launch, kRest - 1),
                                   optional_input<T>(launch, kRest)};
    T *dx = optional_output<T>(launch, 0);
    auto *partial = sums_ ? static_cast<float *>(launch.scratch) : nullptr;
    if (register_rows_.holds)
      run_held(stream, operands, dx, partial);
    else
      run_apart(stream, operands, dx, partial);
    if (sums_)
      join_parts(stream, Matrix<float>{partial, parts_, columns_, columns_},
                 ToScaleAndBias<T>{dims_.width, optional_output<T>(launch, 1),
                                   kCentered ? optional_output<T>(launch, 2) : nullptr});
  }

 private:
  static constexpr std::size_t kRest = kCentered ? 5 : 4;
  static constexpr std::int64_t kLeastPart = kEmulated ? 4 : 8;  // rows

  void run_held(Stream stream, const GradOperands<T> &operands, T *dx, float *partial) const {
    const auto kernel = register_rows_.held == 1   ? held_grad_kernel<T, kCentered, 1>
                        : register_rows_.held == 2 ? held_grad_kernel<T, kCentered, 2>
                                                   : held_grad_kernel<T, kCentered, kMostHeld>;
    cuda::launch(stream, kernel, {parts_, register_rows_.threads}, dims_, operands, part_, dx, partial);
  }
  void run_apart(Stream stream, const GradOperands<T> &operands, T *dx, float *partial) const {
    if (dx != nullptr)
      cuda::launch(stream, normalize_grad_kernel<T, kCentered>, {dims_.rows, row_threads(dims_.width)}, dims_, operands,
                   dx);
    if (partial != nullptr)
      cuda::launch(stream, sums_kernel<T, kCentered>, grid_of(parts_ * dims_.width), dims_, operands, part_, parts_,
                   partial);
  }

  const NormalizedRows dims_;
  const RegisterRows register_rows_;
  const std::int64_t part_, parts_;  // rows in a part; number of parts
  const std::int64_t columns_;       // elements in a row of partial sums
  bool sums_;                        // dscale or dbias is wanted
};
}  // namespace

KernelPtr make_normalization(const KernelRequest &request, DeviceState &) {
  const bool centered = request.node.op == "LayerNormalization";
  return by_float(request, request.inputs.at(0), [&]<typename T>(T) -> KernelPtr {
    if (centered) return std::make_unique<Normalization<T, true>>(request);
    return std::make_unique<Normalization<T, false>>(request);
  });
}

KernelPtr make_normalization_grad(const KernelRequest &request, DeviceState &) {
  const bool centered = request.node.op == "LayerNormalizationGrad";
  return by_float(request, request.inputs.at(0), [&]<typename T>(T) -> KernelPtr {
    if (centered) return std::make_unique<NormalizationGrad<T, true>>(request);
    return std::make_unique<NormalizationGrad<T, false>>(request);
  });
}

}  // namespace protrain::backend::cuda
