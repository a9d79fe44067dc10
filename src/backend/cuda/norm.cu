// LossScale, SquaredNorm, JoinSquares, GlobalNorm, ScaledNorm and GradientScale. Squares are summed in double, first in
// parts of fixed length, then over the parts in a fixed tree. So the order of the additions depends on the number of
// elements alone.
#include <algorithm>
#include <bit>

#include "arith/norm_tree.h"
#include "backend/cuda/columns.h"
#include "backend/cuda/fold.h"

namespace protrain::backend::cuda {

namespace {
constexpr std::int64_t kPart = kEmulated ? 1 << 10 : arith::kNormPiece;
static_assert(arith::kNormPiece % kPart == 0 && std::has_single_bit(static_cast<std::uint64_t>(kPart)));

// Returns the sum of the squares of `count` elements, which the block's threads read in packs. The last elements may
// not fill a pack; they are read one by one.
template <typename T>
__device__ double sum_of_squares(const T *x, std::int64_t count) {
  constexpr int kWidth = kWide<T>;
  const auto squared = [](T element) {
    const auto value = static_cast<double>(widened(element));
    return value * value;
  };
  double sum = 0;
  for (std::int64_t p = threadIdx.x; p < count / kWidth; p += blockDim.x) {
    const Pack<T, kWidth> pack = load<kWidth>(x + p * kWidth);
    PROTRAIN_UNROLL
    for (int i = 0; i < kWidth; ++i) sum += squared(pack.at[i]);
  }
  const std::int64_t rest = count / kWidth * kWidth + threadIdx.x;
  if (rest < count) sum += squared(x[rest]);
  return block_fold<Plus>(sum);
}

template <typename T>
__global__ void squares_kernel(const T *x, std::int64_t count, double *sums) {
  const std::int64_t first = blockIdx.x * kPart, rest = count - first;
  const double sum = sum_of_squares(x + first, rest < kPart ? rest : kPart);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

constexpr int kJoinThreads = kEmulated ? 64 : 1024;
constexpr std::int64_t kJoined = 4 * kJoinThreads;  // sums that one block joins

// Sums the leaves in the order of the tree of arith/norm_tree.h. There are at most 4 leaves for each thread of the
// block. Missing leaves count as 0. That changes no bit, because no sum of squares is -0.
__device__ double tree_sum(const double *leaves, std::int64_t count) {
  __shared__ double warps[kWarp];
  const auto leaf = [&](std::int64_t i) { return i < count ? leaves[i] : 0.0; };
  const auto warp_sum = [](double sum) {
    for (int mask = 1; mask < kWarp; mask *= 2) sum += from_lane_xor(sum, mask);
    return sum;
  };
  const std::int64_t first = std::int64_t{4} * threadIdx.x;
  const double sum = warp_sum((leaf(first) + leaf(first + 1)) + (leaf(first + 2) + leaf(first + 3)));
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (lane == 0) warps[threadIdx.x / kWarp] = sum;
  __syncthreads();
  return warp_sum(lane < static_cast<int>(blockDim.x) / kWarp ? warps[lane] : 0.0);
}

// Sums each group of `run` consecutive leaves to one number. Each thread block sums one group.
__global__ void join_kernel(const double *leaves, std::int64_t count, std::int64_t run, double *to) {
  const std::int64_t first = blockIdx.x * run, rest = count - first;
  const double sum = tree_sum(leaves + first, rest < run ? rest : run);
  if (threadIdx.x == 0) to[blockIdx.x] = sum;
}

// Returns the number of leaves of the smallest full tree that has at least `count` leaves.
std::int64_t whole_tree(std::int64_t count) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(count)));
}

// Returns how many numbers join_runs() needs as scratch.
std::int64_t join_room(std::int64_t count, std::int64_t run) {
  std::int64_t room = 0;
  for (; run > kJoined; run /= kJoined) room += count = divided_up(count, kJoined);
  return room;
}

// Sums each group of `run` consecutive leaves to one number. `run` is a power of two. The last group may have fewer
// leaves.
void join_runs(Stream stream, const double *leaves, std::int64_t count, std::int64_t run, double *scratch, double *to) {
  for (; run > kJoined; run /= kJoined) {
    const std::int64_t joined = divided_up(count, kJoined);
    cuda::launch(stream, join_kernel, {joined, kJoinThreads}, leaves, count, kJoined, scratch);
    leaves = scratch;
    scratch += joined;
    count = joined;
  }
  const auto threads = static_cast<int>(std::max<std::int64_t>(run / 4, kWarp));
  cuda::launch(stream, join_kernel, {divided_up(count, run), threads}, leaves, count, run, to);
}

// The largest number of tensors that one launch takes. It is small, because the tensors' addresses are arguments of the
// kernel, and there is little room for arguments. Each tensor has a thread block of its own.
constexpr int kNormTensors = 64;
template <typename T>
struct NormTensors {
  const T *at[kNormTensors];
  std::int64_t count[kNormTensors];
  double *sum[kNormTensors];
};
template <typename T>
__global__ void small_squares_kernel(NormTensors<T> tensors) {
  const double sum = sum_of_squares(tensors.at[blockIdx.x], tensors.count[blockIdx.x]);
  if (threadIdx.x == 0) *tensors.sum[blockIdx.x] = sum;
}
__global__ void small_joins_kernel(NormTensors<double> tensors) {
  const double sum = tree_sum(tensors.at[blockIdx.x], tensors.count[blockIdx.x]);
  if (threadIdx.x == 0) *tensors.sum[blockIdx.x] = sum;
}

// Collects small tensors and launches a kernel for many of them together.
template <typename T>
class SmallTensors {
 public:
  SmallTensors(Stream stream, void (*kernel)(NormTensors<T>), int threads)
      : stream_(stream), kernel_(kernel), threads_(threads) {}

  void add(const T *at, std::int64_t count, double *sum) {
    tensors_.at[size_] = at;
    tensors_.count[size_] = count;
    tensors_.sum[size_] = sum;
    if (++size_ == kNormTensors) launch();
  }
  void launch() {
    cuda::launch(stream_, kernel_, {size_, threads_}, tensors_);
    size_ = 0;
  }

 private:
  const Stream stream_;
  void (*const kernel_)(NormTensors<T>);
  const int threads_;
  NormTensors<T> tensors_ = {};
  int size_ = 0;
};

template <typename T>
class SquaredNorm : public CudaKernel {
 public:
  explicit SquaredNorm(const KernelRequest &request) : piece_(request.node.attributes.integer("piece", 0)) {
    for (const graph::Type &type : request.inputs) {
      require_dtype(request, type, request.inputs[0].dtype);
      elements_.push_back(element_count(type.shape));
      const std::int64_t parts = divided_up(elements_.back(), kPart), run = parts_joined(parts);
      if (run > 1) scratch_bytes = std::max(scratch_bytes, byte_count(DType::f64, {parts + join_room(parts, run)}));
    }
  }

  void run(Stream stream, const Launch &launch) override {
    SmallTensors<T> small(stream, small_squares_kernel<T>, kBlock);
    for (std::size_t i = 0; i < elements_.size(); ++i) {
      auto *to = optional_output<double>(launch, i);
      if (to == nullptr || (piece_ > 0 && elements_[i] == 0)) continue;  // a tensor without elements has no pieces
      if (elements_[i] > kPart)
        run_large(stream, input<T>(launch, i), elements_[i], static_cast<double *>(launch.scratch), to);
      else
        small.add(input<T>(launch, i), elements_[i], to);
    }
    small.launch();
  }

 private:
  // Returns how many parts are joined into one result: a power of two. A result belongs to one piece of a tensor, or to
  // the whole tensor if piece_ is 0. The last result of a tensor can have fewer parts.
  std::int64_t parts_joined(std::int64_t parts) const {
    return piece_ > 0 ? std::min(piece_ / kPart, whole_tree(parts)) : whole_tree(parts);
  }
  void run_large(Stream stream, const T *x, std::int64_t elements, double *sums, double *to) const {
    const std::int64_t parts = divided_up(elements, kPart), run = parts_joined(parts);
    cuda::launch(stream, squares_kernel<T>, {parts}, x, elements, run > 1 ? sums : to);
    if (run > 1) join_runs(stream, sums, parts, run, sums + parts, to);
  }

  const std::int64_t piece_;            // 0: a tensor has one norm
  std::vector<std::int64_t> elements_;  // of each tensor
};

class JoinSquares : public CudaKernel {
 public:
  explicit JoinSquares(const KernelRequest &request) {
    for (const graph::Type &type : request.inputs) {
      require_dtype(request, type, DType::f64);
      pieces_.push_back(element_count(type.shape));
      const std::int64_t room = join_room(pieces_.back(), whole_tree(pieces_.back()));
      scratch_bytes = std::max(scratch_bytes, byte_count(DType::f64, {room}));
    }
  }

  void run(Stream stream, const Launch &launch) override {
    SmallTensors<double> small(stream, small_joins_kernel, kJoinThreads);
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      auto *to = optional_output<double>(launch, i);
      if (to == nullptr) continue;
      const auto *leaves = input<double>(launch, i);
      if (pieces_[i] > kJoined)
        join_runs(stream, leaves, pieces_[i], whole_tree(pieces_[i]), static_cast<double *>(launch.scratch), to);
      else
        small.add(leaves, pieces_[i], to);
    }
    small.launch();
  }

 private:
  std::vector<std::int64_t> pieces_;  // of each tensor
};

// The largest number of scalars that one launch adds. It is small, because the scalars' addresses are arguments of the
// kernel, and there is little room for arguments.
constexpr int kNormScalars = 256;
struct NormScalars {
  const double *at[kNormScalars];
};

__global__ void add_scalars_kernel(NormScalars scalars, int count, bool first, bool last, double *to) {
  __shared__ double values[kNormScalars];
  if (static_cast<int>(threadIdx.x) < count) values[threadIdx.x] = *scalars.at[threadIdx.x];
  __syncthreads();
  if (threadIdx.x != 0) return;
  double sum = first ? 0 : *to;
  for (int i = 0; i < count; ++i) sum += values[i];
  *to = last ? sqrt(sum) : sum;
}

class GlobalNorm : public CudaKernel {
 public:
  explicit GlobalNorm(const KernelRequest &request) {
    for (const graph::Type &type : request.inputs) require_dtype(request, type, DType::f64);
  }

  void run(Stream stream, const Launch &launch) override {
    const std::size_t count = launch.inputs.size();
    for (std::size_t first = 0; first == 0 || first < count; first += kNormScalars) {
      NormScalars scalars{};
      const std::size_t size = std::min<std::size_t>(kNormScalars, count - first);
      for (std::size_t i = 0; i < size; ++i) scalars.at[i] = input<double>(launch, first + i);
      cuda::launch(stream, add_scalars_kernel, {1, kNormScalars}, scalars, static_cast<int>(size), first == 0,
                   first + size == count, output<double>(launch, 0));
    }
  }
};

class LossScale : public CudaKernel {
 public:
  void run(Stream stream, const Launch &launch) override {
    double *to = output<double>(launch, 0);
    each(stream, 1, [to, scalars = launch.scalars] __device__(std::int64_t) { *to = scalars->loss_scale; });
  }
};

class ScaledNorm : public CudaKernel {
 public:
  explicit ScaledNorm(const KernelRequest &request) {
    for (const graph::Type &type : request.inputs) require_dtype(request, type, DType::f64);
  }

  void run(Stream stream, const Launch &launch) override {
    const double *norm = input<double>(launch, 0), *weights = input<double>(launch, 1);
    double *to = output<double>(launch, 0);
    each(stream, 1, [norm, weights, to] __device__(std::int64_t) { *to = *norm / fabs(*weights); });
  }
};

class GradientScale : public CudaKernel {
 public:
  explicit GradientScale(const KernelRequest &request) : max_norm_(request.node.attributes.real("max_norm", 0)) {
    for (std::size_t i = 0; i < request.inputs.size(); ++i)
      if (has_input(request, i)) require_dtype(request, request.inputs[i], DType::f64);
  }

  void run(Stream stream, const Launch &launch) override {
    const double *norm = optional_input<double>(launch, 0), *weights = optional_input<double>(launch, 1);
    float *to = output<float>(launch, 0);
    each(stream, 1, [norm, weights, to, max_norm = max_norm_] __device__(std::int64_t) {
      double scale = weights != nullptr ? 1 / *weights : 1;
      if (max_norm > 0 && norm != nullptr) {
        const double most = max_norm / (*norm + 1e-6);
        scale *= most < 1.0 ? most : 1.0;
      }
      *to = static_cast<float>(scale);
    });
  }

 private:
  const double max_norm_;
};
}  // namespace

KernelPtr make_loss_scale(const KernelRequest &, DeviceState &) { return std::make_unique<LossScale>(); }

KernelPtr make_squared_norm(const KernelRequest &request, DeviceState &) {
  return by_float(request, request.inputs.at(0),
                  [&]<typename T>(T) -> KernelPtr { return std::make_unique<SquaredNorm<T>>(request); });
}

KernelPtr make_join_squares(const KernelRequest &request, DeviceState &) {
  return std::make_unique<JoinSquares>(request);
}

KernelPtr make_global_norm(const KernelRequest &request, DeviceState &) {
  return std::make_unique<GlobalNorm>(request);
}

KernelPtr make_scaled_norm(const KernelRequest &request, DeviceState &) {
  return std::make_unique<ScaledNorm>(request);
}

KernelPtr make_gradient_scale(const KernelRequest &request, DeviceState &) {
  return std::make_unique<GradientScale>(request);
}

}  // namespace protrain::backend::cuda
