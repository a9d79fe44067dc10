#include "measure/rates.h"

#include <algorithm>
#include <cstring>

#include "base/memory.h"
#include "base/shape.h"
#include "base/tier.h"
#include "measure/operands.h"
#include "ops/op.h"
#include "run/kernels.h"

namespace protrain::measure {

namespace {

using backend::Optimizer;
using graph::Graph;
using graph::Node;

constexpr double kSecondsOfOne = 2.5e-4;           // of one launch; below that, launch overhead shows
constexpr std::uint64_t kFirstCopy = 64ull << 20;  // bytes, beyond the caches of processors
constexpr std::uint64_t kFirstArray = 16ull << 20;
constexpr std::uint64_t kGrowth = 4;
constexpr std::int64_t kFirstSide = 768;

// Host memory that copies reach at full speed, if the system allows it.
class PinnedBlock {
 public:
  PinnedBlock(backend::Device &device, std::uint64_t bytes)
      : device_(device), block_(bytes, "profiling"), pinned_((touch(), device.pin(block_.data(), bytes) > 0)) {}
  ~PinnedBlock() {
    if (pinned_) device_.unpin(block_.data());
  }
  PinnedBlock(const PinnedBlock &) = delete;
  PinnedBlock &operator=(const PinnedBlock &) = delete;

  std::byte *data() const { return block_.data(); }

 private:
  void touch() const { std::memset(block_.data(), 1, block_.size()); }

  backend::Device &device_;
  MemoryBlock block_;
  const bool pinned_;
};

// Bytes that an update moves for each byte of weights: it reads the gradient, and reads and writes weights and state.
double traffic(const Optimizer &optimizer) {
  double bytes = 3;
  for (const graph::OptimizerArray &array : optimizer.state()) bytes += 2 * array.bytes_each() / sizeof(float);
  return bytes;
}

// The arrays of an update, one after another: gradient, weights of `weight_bytes`, state; then the status word.
struct UpdateOperands {
  UpdateOperands(const Optimizer &optimizer, std::uint64_t weight_bytes) : offsets{0, weight_bytes, 2 * weight_bytes} {
    for (const graph::OptimizerArray &array : optimizer.state())
      offsets.push_back(offsets.back() + round_up(array.bytes(weight_bytes / sizeof(float)), kAlignment));
  }
  std::uint64_t bytes() const { return offsets.back(); }  // without the status word
  LaunchOperands launch(std::byte *memory) const {
    LaunchOperands launch{.inputs = {memory, memory + bytes()}};
    for (std::size_t i = 1; i + 1 < offsets.size(); ++i) launch.outputs.push_back(memory + offsets[i]);
    return launch;
  }

  std::vector<std::uint64_t> offsets;
};

// Measures one machine's rates into a profile. For each rate the work grows until launch overhead no longer shows,
// within the memory limit. On a device with its own memory the same updates run on device and host, so that the two
// optimizer rates are comparable.
class RateMeasurement {
 public:
  RateMeasurement(backend::Device &device, const Stopwatch &stopwatch, const Optimizer &optimizer, std::uint64_t memory,
                  profile::Profile &profile)
      : device_(device), stopwatch_(stopwatch), optimizer_(optimizer), memory_(memory), profile_(profile) {}

  void run() {
    profile_.device_bandwidth = 2 * largest(kFirstCopy, memory_ / 4, [&](auto bytes) { return inside_copy(bytes); });
    if (profile_.shares_memory) {
      profile_.upload = profile_.download = profile_.both_ways = profile_.device_bandwidth / 2;
      profile_.host_bandwidth = profile_.device_bandwidth;
    } else {
      measure_crossings();
      profile_.host_bandwidth = host_update_rate({.kind = Optimizer::Kind::sgd});
    }
    profile_.device_optimizer = device_update_rate();
    profile_.host_optimizer = profile_.shares_cores ? profile_.device_optimizer : host_update_rate(optimizer_);
    profile_.launch_seconds = update_on_device(kAlignment);
    for (DType dtype : {DType::f32, DType::bf16}) {
      double &flops = dtype == DType::f32 ? profile_.fp32_flops : profile_.bf16_flops;
      flops = std::max(flops, product_flops(dtype));
    }
  }

 private:
  // Calls time(bytes), which does work on that many bytes and returns its seconds. The bytes grow from `first` to at
  // most `most`, until overhead no longer shows. Returns the bytes per second of the last call.
  template <typename Time>
  static double largest(std::uint64_t first, std::uint64_t most, Time time) {
    std::uint64_t bytes = std::min(first, std::max<std::uint64_t>(round_up(most, kDiskAlignment), kDiskAlignment));
    double seconds = time(bytes);
    while (seconds < kSecondsOfOne && bytes * kGrowth <= most) seconds = time(bytes *= kGrowth);
    return static_cast<double>(bytes) / seconds;
  }

  double inside_copy(std::uint64_t bytes) const {
    DeviceMemory memory(device_, 2 * bytes);
    memory.fill(0, bytes, random_tile(DType::f32, true));
    return stopwatch_.quickest(
        [&] { device_.copy(Queue::compute, {.to = memory.data() + bytes, .from = memory.data(), .bytes = bytes}); });
  }

  // Copies between the two memories, through pinned memory.
  void measure_crossings() {
    const auto timed = [&](bool up, bool down) {
      return [this, up, down](std::uint64_t bytes) { return crossing(bytes, up, down); };
    };
    profile_.upload = largest(kFirstCopy, memory_ / 4, timed(true, false));
    profile_.download = largest(kFirstCopy, memory_ / 4, timed(false, true));
    profile_.both_ways = 2 * largest(kFirstCopy, memory_ / 4, timed(true, true));
  }
  double crossing(std::uint64_t bytes, bool up, bool down) const {
    DeviceMemory memory(device_, 2 * bytes);
    const PinnedBlock from(device_, bytes), to(device_, bytes);
    return stopwatch_.quickest([&] {
      if (up) device_.copy(Queue::upload, {.to = memory.data(), .from = from.data(), .bytes = bytes});
      if (down) device_.copy(Queue::download, {.to = to.data(), .from = memory.data() + bytes, .bytes = bytes});
    });
  }

  std::unique_ptr<backend::Kernel> update_of(const Optimizer &optimizer, std::uint64_t array_bytes) const {
    return device_.compile_update(
        {.optimizer = optimizer, .elements = {static_cast<std::int64_t>(array_bytes / sizeof(float))}});
  }

  double device_update_rate() const {
    const double arrays = largest(kFirstArray, memory_ / 8, [&](auto bytes) { return update_on_device(bytes); });
    return traffic(optimizer_) * arrays;
  }
  double update_on_device(std::uint64_t array_bytes) const {
    const UpdateOperands arrays(optimizer_, array_bytes);
    const std::uint64_t bytes = arrays.bytes();
    DeviceMemory memory(device_, bytes + kAlignment);
    memory.fill(0, bytes, random_tile(DType::f32, false));
    memory.fill(bytes, kAlignment, std::vector<std::byte>(kAlignment));
    const LaunchOperands launch = arrays.launch(memory.data());
    const auto kernel = update_of(optimizer_, array_bytes);
    return stopwatch_.quickest([&] { launch.on(device_, *kernel); });
  }

  // An update without moments is little more than a pass over memory, so its rate stands for the host's bandwidth.
  double host_update_rate(const Optimizer &optimizer) const {
    const double arrays =
        largest(kFirstArray, memory_ / 8, [&](auto bytes) { return update_on_host(optimizer, bytes); });
    return traffic(optimizer) * arrays;
  }
  double update_on_host(const Optimizer &optimizer, std::uint64_t array_bytes) const {
    const UpdateOperands arrays(optimizer, array_bytes);
    const std::uint64_t bytes = arrays.bytes();
    const MemoryBlock memory(bytes + kAlignment, "profiling");  // zeroed, including the status word
    const std::vector<std::byte> tile = random_tile(DType::f32, false);
    for (std::uint64_t done = 0; done < bytes; done += tile.size())
      std::memcpy(memory.data() + done, tile.data(), std::min<std::uint64_t>(tile.size(), bytes - done));
    const LaunchOperands launch = arrays.launch(memory.data());
    const auto kernel = update_of(optimizer, array_bytes);
    return stopwatch_.quickest_here([&] { device_.launch_alone(*kernel, launch); });
  }

  // Multiplies square matrices that grow until launch overhead no longer shows.
  double product_flops(DType dtype) const {
    double flops = 0;
    for (std::int64_t side = kFirstSide;; side *= 2) {
      Graph graph;
      Node node{.op = "MatMul", .name = "profiling"};
      for (auto *ids : {&node.inputs, &node.inputs, &node.outputs})
        ids->push_back(graph.add_value({.name = "matrix", .type = {dtype, {side, side}}}));
      run::Kernels kernels(device_);
      backend::Kernel &kernel = kernels.of_node(graph, node);
      const Operands operands(graph, node, kernel.scratch_bytes);
      if (operands.bytes() > memory_ && flops > 0) return flops;
      DeviceMemory memory(device_, operands.bytes());
      const LaunchOperands launch = operands.place(memory);
      const double seconds = stopwatch_.quickest([&] { launch.on(device_, kernel); });
      flops = ops::cost(graph, node).flops / seconds;
      if (seconds >= kSecondsOfOne) return flops;
    }
  }

  backend::Device &device_;
  const Stopwatch &stopwatch_;
  const Optimizer &optimizer_;
  const std::uint64_t memory_;
  profile::Profile &profile_;
};

}  // namespace

void measure_rates(backend::Device &device, const Stopwatch &stopwatch, const Optimizer &optimizer,
                   std::uint64_t memory, profile::Profile &profile) {
  RateMeasurement(device, stopwatch, optimizer, memory, profile).run();
}

}  // namespace protrain::measure
