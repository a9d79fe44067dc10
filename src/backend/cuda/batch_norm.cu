// BatchNorm, its gradient, and the update of running statistics. A block sums a part of a channel. A launch with one
// thread for each channel joins the parts, in order, and a last launch computes the result element by element.
#include "arith/statistics.h"
#include "backend/common/channels.h"
#include "backend/cuda/elementwise.h"
#include "backend/cuda/fold.h"

namespace protrain::backend::cuda {

namespace {
using arith::Moments;

constexpr std::int64_t kEnoughParts = kEmulated ? 7 : 132 * 4;  // parts of all channels together

// Returns where element i of a part of a channel lies in the tensor.
__device__ inline std::int64_t position(const ChannelParts &channels, std::int64_t channel, std::int64_t part,
                                        std::int64_t i) {
  std::int64_t inner = 0;
  const std::int64_t sample = divide(i, channels.inner, inner);
  return channels.begin(part * channels.part + sample, channel) + inner;
}

__device__ inline std::int64_t channel_of(const ChannelParts &channels, std::int64_t i) {
  std::int64_t channel = 0, inner = 0;
  divide(divide(i, channels.inner, inner), channels.count, channel);
  return channel;
}

template <typename T>
__global__ void moments_kernel(ChannelParts channels, const T *x, Moments *parts) {
  std::int64_t part = 0;
  const std::int64_t channel = divide(blockIdx.x, channels.parts, part);
  const std::int64_t count = channels.samples_in(part) * channels.inner;
  const auto at = [&](std::int64_t i) { return widened(x[position(channels, channel, part, i)]); };
  const float mean = static_cast<float>(fold_terms<Plus, double>(count, at) / static_cast<double>(count));
  const double squares = fold_terms<Plus, double>(count, [&](std::int64_t i) {
    const float distance = at(i) - mean;
    return distance * distance;
  });
  if (threadIdx.x == 0) parts[blockIdx.x] = {static_cast<double>(count), mean, squares};
}

// The numbers by which a channel is normalized: y = (x - mean) * factor + bias.
struct Terms {
  float mean, factor, bias;
};

struct Statistics {
  float *mean, *variance, *kept;  // nullptr: not wanted
};

// Joins the moments of a channel's parts.
__device__ inline Moments joined(const ChannelParts &channels, const Moments *parts, std::int64_t channel) {
  Moments all;
  for (std::int64_t part = 0; part < channels.parts; ++part) all.join(parts[channel * channels.parts + part]);
  return all;
}

template <typename T>
class BatchNorm : public CudaKernel {
 public:
  explicit BatchNorm(const KernelRequest &request)
      : channels_(request.inputs.at(0).shape, kEnoughParts),
        epsilon_(request.node.attributes.real("epsilon", 1e-5)),
        running_(request.node.attributes.integer("running", 0) != 0),
        unbiased_(request.node.attributes.integer("unbiased", 0) != 0) {
    const auto parts = static_cast<std::uint64_t>(channels_.count * channels_.parts);
    terms_at_ = round_up(checked_multiply(parts, sizeof(Moments)), kAlignment);
    scratch_bytes = checked_add(terms_at_, static_cast<std::uint64_t>(channels_.count) * sizeof(Terms));
  }

  void run(Stream stream, const Launch &launch) override {
    auto *parts = static_cast<Moments *>(launch.scratch);
    auto *terms = reinterpret_cast<Terms *>(static_cast<std::byte *>(launch.scratch) + terms_at_);
    const T *x = input<T>(launch, 0), *scale = input<T>(launch, 1), *bias = input<T>(launch, 2);
    const float *means = input<float>(launch, 3), *variances = input<float>(launch, 4);
    const Statistics to{optional_output<float>(launch, 1), optional_output<float>(launch, 2),
                        optional_output<float>(launch, 3)};
    if (!running_) cuda::launch(stream, moments_kernel<T>, {channels_.count * channels_.parts}, channels_, x, parts);
    each(stream, channels_.count,
         [=, channels = channels_, epsilon = epsilon_, running = running_,
          unbiased = unbiased_] __device__(std::int64_t c) {
           Moments all{1, 0, 0};
           if (running)
             all = {1, means[c], variances[c]};
           else
             all = joined(channels, parts, c);
           const auto variance = static_cast<float>(all.squares / all.count);
           const double inverse = 1 / sqrt(static_cast<double>(variance) + epsilon);
           terms[c] = {static_cast<float>(all.mean), static_cast<float>(widened(scale[c]) * inverse), widened(bias[c])};
           if (to.mean != nullptr) to.mean[c] = terms[c].mean;
           if (to.variance != nullptr) to.variance[c] = variance;
           if (to.kept != nullptr)
             to.kept[c] = static_cast<float>(all.squares / (unbiased && !running ? all.count - 1 : all.count));
         });
    T *y = optional_output<T>(launch, 0);
    if (y == nullptr) return;
    each(stream, channels_.count * channels_.elements(), [=, channels = channels_] __device__(std::int64_t i) {
      const Terms own = terms[channel_of(channels, i)];
      y[i] = narrowed<T>((widened(x[i]) - own.mean) * own.factor + own.bias);
    });
  }

 private:
  const ChannelParts channels_;
  const double epsilon_;
  const bool running_, unbiased_;
  std::uint64_t terms_at_;
};

template <typename T>
__global__ void grad_sums_kernel(ChannelParts channels, const T *dy, const T *x, const float *means, SumPair *parts) {
  std::int64_t part = 0;
  const std::int64_t channel = divide(blockIdx.x, channels.parts, part);
  const std::int64_t count = channels.samples_in(part) * channels.inner;
  const float mean = means[channel];
  SumPair own{};
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    const std::int64_t at = position(channels, channel, part, i);
    const float d = widened(dy[at]);
    own = own + SumPair{d, d * (widened(x[at]) - mean)};
  }
  own = block_fold<Plus>(own);
  if (threadIdx.x == 0) parts[blockIdx.x] = own;
}

// The numbers by which a channel's gradient is computed: dx = factor * (dy - shift - (x - mean) * slope).
struct GradTerms {
  float mean, factor, shift, slope;
};

template <typename T>
class BatchNormGrad : public CudaKernel {
 public:
  explicit BatchNormGrad(const KernelRequest &request)
      : channels_(request.inputs.at(1).shape, kEnoughParts), epsilon_(request.node.attributes.real("epsilon", 1e-5)) {
    const auto parts = static_cast<std::uint64_t>(channels_.count * channels_.parts);
    terms_at_ = round_up(checked_multiply(parts, sizeof(SumPair)), kAlignment);
    scratch_bytes = checked_add(terms_at_, static_cast<std::uint64_t>(channels_.count) * sizeof(GradTerms));
  }

  void run(Stream stream, const Launch &launch) override {
    auto *parts = static_cast<SumPair *>(launch.scratch);
    auto *terms = reinterpret_cast<GradTerms *>(static_cast<std::byte *>(launch.scratch) + terms_at_);
    const T *dy = input<T>(launch, 0), *x = input<T>(launch, 1), *scale = input<T>(launch, 2);
    const float *means = input<float>(launch, 3), *variances = input<float>(launch, 4);
    T *dx = optional_output<T>(launch, 0), *dscale = optional_output<T>(launch, 1),
      *dbias = optional_output<T>(launch, 2);
    cuda::launch(stream, grad_sums_kernel<T>, {channels_.count * channels_.parts}, channels_, dy, x, means, parts);
    each(stream, channels_.count, [=, channels = channels_, epsilon = epsilon_] __device__(std::int64_t c) {
      double sum = 0, dot = 0;
      for (std::int64_t part = 0; part < channels.parts; ++part) {
        const SumPair own = parts[c * channels.parts + part];
        sum += own.first;
        dot += own.second;
      }
      const double n = static_cast<double>(channels.elements());
      const double inverse = 1 / sqrt(static_cast<double>(variances[c]) + epsilon);
      terms[c] = {means[c], static_cast<float>(widened(scale[c]) * inverse), static_cast<float>(sum / n),
                  static_cast<float>(dot * inverse * inverse / n)};
      if (dscale != nullptr) dscale[c] = narrowed<T>(static_cast<float>(dot * inverse));
      if (dbias != nullptr) dbias[c] = narrowed<T>(static_cast<float>(sum));
    });
    if (dx == nullptr) return;
    each(stream, channels_.count * channels_.elements(), [=, channels = channels_] __device__(std::int64_t i) {
      const GradTerms own = terms[channel_of(channels, i)];
      dx[i] = narrowed<T>(own.factor * (widened(dy[i]) - own.shift - (widened(x[i]) - own.mean) * own.slope));
    });
  }

 private:
  const ChannelParts channels_;
  const double epsilon_;
  std::uint64_t terms_at_;
};

// The statistics of batches (means or variances) that one launch folds into a running statistic.
constexpr std::size_t kMostStatistics = 16;
struct FoldedInputs {
  const float *at[kMostStatistics];
  int count;
};

// Folds the statistics of batches into the state, a running mean or variance. FoldStatistics always begins with the
// state. AccumulateStatistics begins with the state in a step's first micro-batch. In later micro-batches it continues
// with its own result, which is both inputs[0] and outputs[0].
class FoldStatistics : public CudaKernel {
 public:
  explicit FoldStatistics(const KernelRequest &request)
      : first_(request.node.op == "FoldStatistics" ? 1 : 2),
        momentum_(arith::momentum_of(request.node.attributes.real("momentum", 0.9))),
        parts_(request.node.attributes.integer("parts", 1)),
        count_(element_count(request.outputs.at(0).shape)) {
    for (const graph::Type &type : request.inputs) require_dtype(request, type, DType::f32);
    require(request.inputs.size() - first_ <= kMostStatistics, Code::unsupported, subject(request),
            "a layer that is applied {} times; cuda folds at most {} statistics", request.inputs.size() - first_,
            kMostStatistics);
  }

  void run(Stream stream, const Launch &launch) override {
    FoldedInputs statistics{};
    for (std::size_t s = first_; s < launch.inputs.size(); ++s)
      statistics.at[statistics.count++] = input<float>(launch, s);
    const float *state = input<float>(launch, first_ - 1);
    float *to = output<float>(launch, 0);
    each(stream, count_,
         [=, momentum = momentum_, parts = parts_, count = count_, begins = first_ == 1,
          scalars = launch.scalars] __device__(std::int64_t i) {
           float running = begins || scalars->micro_batch == 0 ? state[i] : to[i];
           for (std::int64_t part = 0; part < parts; ++part)
             for (int s = 0; s < statistics.count; ++s)
               running = arith::folded(momentum, running, statistics.at[s][part * count + i]);
           to[i] = running;
         });
  }

 private:
  const std::size_t first_;  // number of the first input that is a statistic
  const arith::Momentum momentum_;
  const std::int64_t parts_, count_;
};
}  // namespace

KernelPtr make_batch_norm(const KernelRequest &request, DeviceState &) {
  return by_float(request, request.inputs.at(0),
                  [&]<typename T>(T) -> KernelPtr { return std::make_unique<BatchNorm<T>>(request); });
}

KernelPtr make_batch_norm_grad(const KernelRequest &request, DeviceState &) {
  return by_float(request, request.inputs.at(0),
                  [&]<typename T>(T) -> KernelPtr { return std::make_unique<BatchNormGrad<T>>(request); });
}

KernelPtr make_fold_statistics(const KernelRequest &request, DeviceState &) {
  return std::make_unique<FoldStatistics>(request);
}

}  // namespace protrain::backend::cuda
