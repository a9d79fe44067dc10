// Updates of weights in place, and the check that scalars are finite. The bits are the CPU's, because nvcc compiles
// this file without contracting products and sums to fma.
#include "arith/optimizer.h"

#include <algorithm>
#include <numeric>

#include "backend/common/host_update.h"
#include "backend/common/optimizer_step.h"
#include "backend/cuda/elementwise.h"
#include "backend/cuda/fold.h"
#include "base/threads.h"

namespace protrain::backend::cuda {

namespace {
constexpr std::int64_t kWorthATeam = kEmulated ? 64 : 64 << 10;  // elements; for fewer, waking the team takes too long

// The most parameters that one launch updates. Their addresses are arguments of the kernel, and there is little room
// for arguments. Each parameter has thread blocks of its own.
constexpr int kUpdateTensors = 32;
template <typename Arrays>
struct UpdateTensors {
  Arrays at[kUpdateTensors];
  std::int64_t count[kUpdateTensors];   // elements
  std::int64_t blocks[kUpdateTensors];  // of the grid
  std::uint16_t group[kUpdateTensors];  // in GroupNumbers
};

// Neighbouring weights, loaded into registers.
template <typename Weights, int kWidth>
struct WeightPack;
template <int kWidth>
struct WeightPack<WholeWeights, kWidth> {
  Pack<float, kWidth> at;
  __device__ WeightPack(const WholeWeights &weights, std::int64_t first) : at(load<kWidth>(weights.at + first)) {}
  __device__ WholeWeights view() { return {at.at}; }
  __device__ void store_to(const WholeWeights &weights, std::int64_t first) const { store(weights.at + first, at); }
};
template <typename T, int kWidth>
struct WeightPack<SplitWeights<T>, kWidth> {
  Pack<T, kWidth> high;
  Pack<arith::LowPlane<T>, kWidth> low;
  __device__ WeightPack(const SplitWeights<T> &weights, std::int64_t first)
      : high(load<kWidth>(weights.high + first)), low(load<kWidth>(weights.low + first)) {}
  __device__ SplitWeights<T> view() { return {high.at, low.at}; }
  __device__ void store_to(const SplitWeights<T> &weights, std::int64_t first) const {
    store(weights.high + first, high);
    store(weights.low + first, low);
  }
};

// Neighbouring elements of an array that only some optimizers have, loaded into registers.
template <int kWidth>
struct OptionalPack {
  Pack<float, kWidth> at{};
  __device__ OptionalPack(const float *from, std::int64_t first) {
    if (from != nullptr) at = load<kWidth>(from + first);
  }
  __device__ float *view(const float *of) { return of != nullptr ? at.at : nullptr; }
  __device__ void store_to(float *to, std::int64_t first) const {
    if (to != nullptr) store(to + first, at);
  }
};

template <int kWidth, typename Step, typename Weights, typename Gradient>
__device__ void update_pack(const Step &step, const Common &common, const UpdateArrays<Weights, Gradient> &at,
                            std::int64_t begin) {
  Pack<Gradient, kWidth> gradient = load<kWidth>(at.gradient + begin);
  WeightPack<Weights, kWidth> weights(at.weights, begin);
  OptionalPack<kWidth> average(at.average, begin), first(at.first, begin), second(at.second, begin);
  const UpdateArrays<Weights, Gradient> pack{
      {gradient.at, weights.view(), average.view(at.average)}, first.view(at.first), second.view(at.second)};
  PROTRAIN_UNROLL
  for (int i = 0; i < kWidth; ++i) update(step, common, pack, i);
  weights.store_to(at.weights, begin);
  average.store_to(at.average, begin);
  first.store_to(at.first, begin);
  second.store_to(at.second, begin);
}

template <typename Weights>
constexpr int kWeightsAtOnce = std::is_same_v<Weights, WholeWeights> ? 4 : 8;  // weights that a thread takes at once

template <typename Step>
__device__ Step numbers(const OptimizerNumbers &of) {
  if constexpr (std::is_same_v<Step, arith::AdamW>)
    return of.adamw;
  else if constexpr (std::is_same_v<Step, arith::Sgd>)
    return of.sgd;
  else if constexpr (std::is_same_v<Step, arith::Adagrad>)
    return of.adagrad;
  else if constexpr (std::is_same_v<Step, arith::Lion>)
    return of.lion;
  else
    return {};
}

// The parameter that this thread helps to update, and the thread's number among all threads of this parameter.
template <typename Arrays>
struct UpdateShare {
  Arrays at;
  std::int64_t count, thread, threads;  // elements; this thread's number among all of the parameter's threads
  const OptimizerNumbers *numbers;
  __device__ UpdateShare(const UpdateTensors<Arrays> &tensors, const OptimizerNumbers *groups) {
    int tensor = 0;
    std::int64_t block = blockIdx.x;
    for (; block >= tensors.blocks[tensor]; ++tensor) block -= tensors.blocks[tensor];
    at = tensors.at[tensor];
    count = tensors.count[tensor];
    thread = block * blockDim.x + threadIdx.x;
    threads = tensors.blocks[tensor] * blockDim.x;
    numbers = groups + tensors.group[tensor];
  }
};

template <typename Step, typename Weights, typename Gradient>
__global__ void update_kernel(UpdateTensors<UpdateArrays<Weights, Gradient>> tensors, const std::uint32_t *status,
                              const float *scale, double clip_value, const OptimizerNumbers *groups) {
  if (*status != 0) return;
  constexpr int kWidth = kWeightsAtOnce<Weights>;
  const UpdateShare<UpdateArrays<Weights, Gradient>> share(tensors, groups);
  const Common common = {treatment_of(clip_value, scale), share.numbers->average_rest};
  const Step step = numbers<Step>(*share.numbers);
  const std::int64_t packs = share.count / kWidth, rest = packs * kWidth + share.thread;
  for (std::int64_t p = share.thread; p < packs; p += share.threads)
    update_pack<kWidth>(step, common, share.at, p * kWidth);
  if (rest < share.count) update_pack<1>(step, common, share.at, rest);
}

// The number of neighbouring weights that a lane updates at a time, if moments are stored in 8 bits. The lanes of a
// warp together then update a block of kCodedBlock weights, whose moments share a scale.
constexpr int kOfBlock = static_cast<int>(arith::kCodedBlock) / kWarp;

__device__ std::int32_t largest_of_warp(std::int32_t value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = Larger::of(value, from_lane_xor(value, mask));
  return value;
}

// Updates the kWidth neighbouring weights from `begin` on, and writes their new moments to `moments`.
template <int kWidth, typename Weights, typename Gradient>
__device__ void update_coded_pack(const arith::AdamW &step, const Common &common,
                                  const CodedArrays<Weights, Gradient> &at, std::int64_t begin, CodedMoments *moments) {
  Pack<Gradient, kWidth> gradient = load<kWidth>(at.gradient + begin);
  WeightPack<Weights, kWidth> weights(at.weights, begin);
  OptionalPack<kWidth> average(at.average, begin);
  Pack<std::uint8_t, kWidth> code1 = load<kWidth>(at.code1 + begin), code2 = load<kWidth>(at.code2 + begin);
  const std::int64_t block = begin / arith::kCodedBlock;
  const CodedArrays<Weights, Gradient> pack{{gradient.at, weights.view(), average.view(at.average)},
                                            at.scale1 + block,
                                            at.scale2 + block,
                                            code1.at,
                                            code2.at};
  PROTRAIN_UNROLL
  for (int i = 0; i < kWidth; ++i) moments[i] = update_coded(step, common, pack, i, 0);
  weights.store_to(at.weights, begin);
  average.store_to(at.average, begin);
}

template <int kWidth>
__device__ void store_codes(const CodedMoments *moments, float scale1, float scale2, std::uint32_t dither,
                            std::uint8_t *code1, std::uint8_t *code2) {
  Pack<std::uint8_t, kWidth> first, second;
  PROTRAIN_UNROLL
  for (int i = 0; i < kWidth; ++i) {
    first.at[i] = arith::signed_code(moments[i].mean, scale1, dither);
    second.at[i] = arith::root_code(moments[i].root, scale2, dither);
  }
  store(code1, first);
  store(code2, second);
}

template <typename Weights, typename Gradient>
__global__ void coded_kernel(UpdateTensors<CodedArrays<Weights, Gradient>> tensors, const std::uint32_t *status,
                             const float *scale, double clip_value, const OptimizerNumbers *groups) {
  if (*status != 0) return;
  const UpdateShare<CodedArrays<Weights, Gradient>> share(tensors, groups);
  const CodedArrays<Weights, Gradient> at = share.at;
  const Common common = {treatment_of(clip_value, scale), share.numbers->average_rest};
  const arith::AdamW step = share.numbers->adamw;
  const std::int64_t lane = share.thread % kWarp;
  for (std::int64_t block = share.thread / kWarp; block * arith::kCodedBlock < share.count;
       block += share.threads / kWarp) {
    const std::int64_t begin = block * arith::kCodedBlock + lane * kOfBlock;
    const bool whole = begin + kOfBlock <= share.count;
    CodedMoments moments[kOfBlock] = {};
    if (whole) update_coded_pack<kOfBlock>(step, common, at, begin, moments);
    PROTRAIN_UNROLL
    for (int i = 0; i < kOfBlock; ++i)
      if (!whole && begin + i < share.count) update_coded_pack<1>(step, common, at, begin + i, moments + i);
    std::int32_t largest1 = 0, largest2 = 0;
    PROTRAIN_UNROLL
    for (int i = 0; i < kOfBlock; ++i) {
      largest1 = Larger::of(largest1, arith::magnitude(moments[i].mean));
      largest2 = Larger::of(largest2, arith::magnitude(moments[i].root));
    }
    // largest_of_warp() synchronizes the lanes. When it returns, all lanes have read the block's old scales, so the new
    // scales may overwrite the old ones.
    const float scale1 = arith::scale_of(largest_of_warp(largest1)),
                scale2 = arith::scale_of(largest_of_warp(largest2));
    if (whole) store_codes<kOfBlock>(moments, scale1, scale2, step.dither, at.code1 + begin, at.code2 + begin);
    PROTRAIN_UNROLL
    for (int i = 0; i < kOfBlock; ++i)
      if (!whole && begin + i < share.count)
        store_codes<1>(moments + i, scale1, scale2, step.dither, at.code1 + begin + i, at.code2 + begin + i);
    if (lane != 0) continue;
    at.scale1[block] = scale1;
    at.scale2[block] = scale2;
  }
}

template <typename Weights, typename Gradient>
class Update : public CudaKernel {
 public:
  explicit Update(const UpdateRequest &request)
      : request_(request), state_(request.optimizer), on_host_(make_host_update(request)) {}

  void run(Stream stream, const Launch &launch) override {
    if (request_.optimizer.coded)
      run_kernel<CodedArrays<Weights, Gradient>>(stream, launch, coded_kernel<Weights, Gradient>, kOfBlock);
    else
      run_kernel<UpdateArrays<Weights, Gradient>>(stream, launch, kernel_of(request_.optimizer.kind),
                                                  kWeightsAtOnce<Weights>);
  }

  void run_on_host(Team &team, const Launch &launch) override {
    const Member alone(0, 1, nullptr);
    if (std::accumulate(request_.elements.begin(), request_.elements.end(), std::int64_t{0}) < kWorthATeam)
      return on_host_->run(alone, launch);
    team.enter([&] { team.run([&](Member &member) { on_host_->run(member, launch); }); });
  }

 private:
  // `at_once` is the number of elements that a thread updates at a time.
  template <typename Arrays, typename Kernel>
  void run_kernel(Stream stream, const Launch &launch, Kernel kernel, int at_once) {
    const std::size_t count = request_.elements.size();
    for (std::size_t begin = 0; begin < count; begin += kUpdateTensors) {
      UpdateTensors<Arrays> tensors{};
      std::int64_t blocks = 0;
      for (std::size_t i = 0; i < kUpdateTensors && begin + i < count; ++i) {
        const std::int64_t elements = request_.elements[begin + i];
        tensors.at[i] = Arrays::of(launch, begin + i, state_);
        tensors.count[i] = elements;
        tensors.blocks[i] = grid_of(divided_up(elements, at_once)).blocks;
        tensors.group[i] = static_cast<std::uint16_t>(request_.group(begin + i));
        blocks += tensors.blocks[i];
      }
      cuda::launch(stream, kernel, {blocks}, tensors, input<std::uint32_t>(launch, count),
                   optional_input<float>(launch, count + 1), request_.optimizer.clip_value,
                   request_.earlier ? launch.scalars->earlier.data() : launch.scalars->update.data());
    }
  }

  static auto kernel_of(Optimizer::Kind kind) {
    switch (kind) {
      case Optimizer::Kind::adamw:
        return update_kernel<arith::AdamW, Weights, Gradient>;
      case Optimizer::Kind::sgd:
        return update_kernel<arith::Sgd, Weights, Gradient>;
      case Optimizer::Kind::adagrad:
        return update_kernel<arith::Adagrad, Weights, Gradient>;
      case Optimizer::Kind::lion:
        return update_kernel<arith::Lion, Weights, Gradient>;
      case Optimizer::Kind::assign:
        break;
    }
    return update_kernel<arith::Assign, Weights, Gradient>;
  }

  const UpdateRequest request_;
  const StateOperands state_;
  const std::unique_ptr<HostUpdate> on_host_;
};

// The scalars that one launch checks: one for each lane of a warp.
constexpr int kCheckedScalars = kWarp;
template <typename T>
struct CheckedScalars {
  const T *at[kCheckedScalars];
  std::uint32_t word[kCheckedScalars];
};

// Each lane of one warp checks one scalar. If scalar i is the first one that is not finite, sets *status to word[i]. A
// *status that is already set does not change. A noted fault (fault.h) counts as if scalar 0 were not finite.
template <typename T>
__global__ void check_kernel(CheckedScalars<T> scalars, int count, const Fault *fault, std::uint32_t *status,
                             std::uint32_t *copy) {
  const int own = static_cast<int>(threadIdx.x);
  const T value = own < count ? *scalars.at[own] : T{};
  const T distance = value - value;  // 0 if the value is finite, else NaN
  const bool wrong = distance != 0 || (own == 0 && fault->claimed != 0);
  const int first = block_fold<Smaller>(wrong ? own : kCheckedScalars);
  if (own != 0) return;
  if (first < kCheckedScalars && *status == 0) *status = scalars.word[first];
  if (copy != nullptr) *copy = *status;
}

template <typename T>
class Check : public CudaKernel {
 public:
  Check(const std::vector<std::uint32_t> &words, const Fault *fault) : words_(words), fault_(fault) {}

  void run(Stream stream, const Launch &launch) override {
    for (std::size_t begin = 0; begin < words_.size(); begin += kCheckedScalars) {
      CheckedScalars<T> scalars{};
      const std::size_t count = std::min<std::size_t>(kCheckedScalars, words_.size() - begin);
      for (std::size_t i = 0; i < count; ++i) {
        scalars.at[i] = input<T>(launch, begin + i);
        scalars.word[i] = words_[begin + i];
      }
      cuda::launch(stream, check_kernel<T>, {1, kWarp}, scalars, static_cast<int>(count), fault_,
                   output<std::uint32_t>(launch, 0), optional_output<std::uint32_t>(launch, 1));
    }
  }

 private:
  const std::vector<std::uint32_t> words_;
  const Fault *const fault_;
};
}  // namespace

// Returns the kernel of an update. Throws Code::unsupported if there is none for these types of weights and gradients.
// This function refuses weights other than float32 and bfloat16. Update's constructor calls make_host_update(), which
// refuses wrong gradients.
KernelPtr make_update(const UpdateRequest &request) {
  if (request.weights == DType::f32) return std::make_unique<Update<WholeWeights, float>>(request);
  require(request.weights == DType::bf16, Code::unsupported, "update", "of {} weights on cuda",
          name_of(request.weights));
  if (request.gradient == DType::f32) return std::make_unique<Update<SplitWeights<bf16>, float>>(request);
  return std::make_unique<Update<SplitWeights<bf16>, bf16>>(request);
}

KernelPtr make_check(DType dtype, const std::vector<std::uint32_t> &words, const DeviceState &device) {
  if (dtype == DType::f64) return std::make_unique<Check<double>>(words, device.faults.noted());
  require(dtype == DType::f32, Code::unsupported, "check", "cuda checks float32 and float64 scalars, these are {}",
          name_of(dtype));
  return std::make_unique<Check<float>>(words, device.faults.noted());
}

}  // namespace protrain::backend::cuda
