#include "measure/rates.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

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

constexpr double kSecondsOfOne = 2.5e-4;           // of one launch; shorter launches show launch overhead
constexpr double kSecondsOfHostUpdate = 2e-3;      // of one update; arrays of shorter ones fit into the host's caches
constexpr std::uint64_t kFirstCopy = 64ull << 20;  // bytes, beyond the caches of processors
constexpr std::uint64_t kFirstArray = 16ull << 20, kMostArray = 64ull << 20;  // of an update on the host
constexpr std::uint64_t kGrowth = 4;
constexpr std::int64_t kFirstSide = 768;
// A device is slow if a matrix product with sides of kSmallSide takes at least kSecondsIfSlow. The rate of a slow
// device is taken from this product, because larger products would take seconds.
constexpr std::int64_t kSmallSide = 192;
constexpr double kSecondsIfSlow = 1e-2;
constexpr int kUpdatesTogether = 8;            // on the host, beside copies
constexpr double kSecondsOfFastCopies = 4e-3;  // copies of kFirstCopy in both directions are fast if they take less
// The speed that a device sustains is measured after kSecondsToTire of matrix products and copies. These sides of the
// products are tried in order, until a product fits into memory and takes at most kLongestProduct seconds.
constexpr std::int64_t kLongSides[] = {8192, 4096, 2048};
constexpr double kLongestProduct = 5e-2;
constexpr double kSecondsToTire = 0.8, kLeastSustained = 0.25;

// A block of host memory, pinned if the system allows it, so that copies to and from the device run at full speed.
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

// Copies between the memories of device and host, through pinned memory.
class Crossing {
 public:
  Crossing(backend::Device &device, std::uint64_t bytes)
      : device_(device), bytes_(bytes), memory_(device, 2 * bytes), from_(device, bytes), to_(device, bytes) {}

  std::uint64_t bytes() const { return bytes_; }
  void copy(bool up, bool down) const {
    if (up) device_.copy(Queue::upload, {.to = memory_.data(), .from = from_.data(), .bytes = bytes_});
    if (down) device_.copy(Queue::download, {.to = to_.data(), .from = memory_.data() + bytes_, .bytes = bytes_});
  }

 private:
  backend::Device &device_;
  const std::uint64_t bytes_;
  const DeviceMemory memory_;
  const PinnedBlock from_, to_;
};

// Returns how many bytes an update moves for each byte of weights. An update reads gradients, and it reads and writes
// weights and state.
double traffic(const Optimizer &optimizer) {
  double bytes = 3;
  for (const graph::OptimizerArray &array : optimizer.state()) bytes += 2 * array.bytes_each() / sizeof(float);
  return bytes;
}

// The operands of an update, one after another in memory: the gradient, the weights (both of `weight_bytes` bytes), the
// arrays of the state, and the status word.
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

// The product of two square matrices on a device.
class SquareProduct {
 public:
  SquareProduct(backend::Device &device, DType dtype, std::int64_t side)
      : device_(device),
        node_(node_in(graph_, dtype, side)),
        kernels_(device),
        kernel_(kernels_.of_node(graph_, node_)) {}

  double flops() const { return ops::cost(graph_, node_).flops; }
  std::uint64_t bytes() const { return operands().bytes(); }
  // Calls time(launch), where launch() starts the product on the device. Returns the seconds that time() returns.
  template <typename Time>
  double seconds(Time time) {
    DeviceMemory memory(device_, bytes());
    const Operands placed = operands();
    const LaunchOperands launch = placed.place(memory).front();
    return time([&] { launch.on(device_, kernel_); });
  }

 private:
  static Node node_in(Graph &graph, DType dtype, std::int64_t side) {
    Node node{.op = "MatMul", .name = "profiling"};
    for (auto *ids : {&node.inputs, &node.inputs, &node.outputs})
      ids->push_back(graph.add_value({.name = "matrix", .type = {dtype, {side, side}}}));
    return node;
  }
  Operands operands() const { return Operands(graph_, node_, kernel_.scratch_bytes); }

  backend::Device &device_;
  Graph graph_;
  const Node node_;
  run::Kernels kernels_;
  backend::Kernel &kernel_;
};

// An update that the host's threads compute, with operands of its own.
class HostUpdate {
 public:
  HostUpdate(backend::Device &device, const Optimizer &optimizer, std::uint64_t array_bytes)
      : device_(device),
        arrays_(optimizer, array_bytes),
        memory_(arrays_.bytes() + kAlignment, "profiling"),  // zeroed, including the status word
        kernel_(device.compile_update(
            {.optimizer = optimizer, .elements = {static_cast<std::int64_t>(array_bytes / sizeof(float))}})),
        launch_(arrays_.launch(memory_.data())) {
    const std::vector<std::byte> tile = random_tile(DType::f32, arrays_.bytes(), false);
    for (std::uint64_t done = 0; done < arrays_.bytes(); done += tile.size())
      std::memcpy(memory_.data() + done, tile.data(), std::min<std::uint64_t>(tile.size(), arrays_.bytes() - done));
  }
  void run() const { device_.launch_alone(*kernel_, launch_); }

 private:
  backend::Device &device_;
  const UpdateOperands arrays_;
  const MemoryBlock memory_;
  const std::unique_ptr<backend::Kernel> kernel_;
  const LaunchOperands launch_;
};

// Measures one machine's rates and writes them to a profile. For each rate, measures larger and larger pieces of work,
// within the memory limit, until launch overhead no longer shows. If the device has memory of its own, device and host
// are both measured with the same optimizer's updates, so their optimizer rates are comparable.
class RateMeasurement {
 public:
  RateMeasurement(backend::Device &device, const Stopwatch &stopwatch, const Optimizer &optimizer, std::uint64_t memory,
                  profile::Profile &profile)
      : device_(device), stopwatch_(stopwatch), optimizer_(optimizer), memory_(memory), profile_(profile) {}

  void of_optimizer() {
    profile_.device_optimizer = device_update_rate();
    profile_.host_optimizer = profile_.shares_cores ? profile_.device_optimizer : host_update_rate(optimizer_);
  }

  void of_machine() {
    profile_.device_bandwidth = 2 * largest(kFirstCopy, memory_ / 4, [&](auto bytes) { return inside_copy(bytes); });
    if (profile_.shares_memory) {
      profile_.upload = profile_.download = profile_.both_ways = profile_.device_bandwidth / 2;
      profile_.host_bandwidth = profile_.device_bandwidth;
    } else {
      measure_crossings();
      profile_.host_bandwidth =
          std::max({host_update_rate({.kind = Optimizer::Kind::sgd}), profile_.host_optimizer, traffic_together()});
    }
    profile_.launch_seconds = update_on_device(kAlignment);
    profile_.fp32_flops = std::max(profile_.fp32_flops, product_flops(DType::f32));
    const double in_short = product_flops(DType::bf16);
    if (!profile_.shares_memory) profile_.sustained = sustained(in_short);
    profile_.bf16_flops = std::max(profile_.bf16_flops, in_short * profile_.sustained);
  }

 private:
  // Calls time(bytes), which does work on that many bytes and returns its seconds. The bytes grow from `first` to at
  // most `most`, until the work takes `enough` seconds. Returns the bytes per second of the last call.
  template <typename Time>
  static double largest(std::uint64_t first, std::uint64_t most, Time time, double enough = kSecondsOfOne) {
    std::uint64_t bytes = std::min(first, std::max<std::uint64_t>(round_up(most, kDiskAlignment), kDiskAlignment));
    double seconds = time(bytes);
    while (seconds < enough && bytes * kGrowth <= most) seconds = time(bytes *= kGrowth);
    return static_cast<double>(bytes) / seconds;
  }

  double inside_copy(std::uint64_t bytes) const {
    DeviceMemory memory(device_, 2 * bytes);
    memory.fill(0, bytes, random_tile(DType::f32, bytes, true));
    return stopwatch_.quickest(
        [&] { device_.copy(Queue::compute, {.to = memory.data() + bytes, .from = memory.data(), .bytes = bytes}); });
  }

  void measure_crossings() {
    std::optional<Crossing> crossing;  // kept while the size stays: pinning takes long
    const auto timed = [&](bool up, bool down) {
      return [&, up, down](std::uint64_t bytes) {
        if (!crossing || crossing->bytes() != bytes) {
          crossing.reset();
          crossing.emplace(device_, bytes);
        }
        return stopwatch_.quickest([&] { crossing->copy(up, down); });
      };
    };
    profile_.upload = largest(kFirstCopy, memory_ / 4, timed(true, false));
    profile_.download = largest(kFirstCopy, memory_ / 4, timed(false, true));
    profile_.both_ways = 2 * largest(kFirstCopy, memory_ / 4, timed(true, true));
  }

  double device_update_rate() const {
    const double arrays = largest(kFirstArray, memory_ / 8, [&](auto bytes) { return update_on_device(bytes); });
    return traffic(optimizer_) * arrays;
  }
  double update_on_device(std::uint64_t array_bytes) const {
    const UpdateOperands arrays(optimizer_, array_bytes);
    const std::uint64_t bytes = arrays.bytes();
    DeviceMemory memory(device_, bytes + kAlignment);
    memory.fill(0, bytes, random_tile(DType::f32, bytes, false));
    memory.fill(bytes, kAlignment, std::vector<std::byte>(kAlignment));
    const LaunchOperands launch = arrays.launch(memory.data());
    const auto kernel = device_.compile_update(
        {.optimizer = optimizer_, .elements = {static_cast<std::int64_t>(array_bytes / sizeof(float))}});
    return stopwatch_.quickest([&] { launch.on(device_, *kernel); });
  }

  // Returns the bytes per second that an update on the host reads and writes. An update without moments is little more
  // than a pass over memory, so its rate stands for the host's bandwidth.
  double host_update_rate(const Optimizer &optimizer) const {
    const double arrays = largest(
        kFirstArray, std::min(memory_ / 8, kMostArray), [&](auto bytes) { return update_on_host(optimizer, bytes); },
        kSecondsOfHostUpdate);
    return traffic(optimizer) * arrays;
  }
  double update_on_host(const Optimizer &optimizer, std::uint64_t array_bytes) const {
    const HostUpdate update(device_, optimizer, array_bytes);
    return stopwatch_.quickest_here([&] { update.run(); });
  }

  // Runs updates on the host while copies in both directions run. Returns the bytes per second that updates and copies
  // together read and write in the host's memory. The number of copies is chosen so that the copies alone take about as
  // long as the updates alone.
  //   Quick updates and fast copies get larger arrays, which do not fit into the processor's caches. With smaller
  // arrays, updates and copies would partly read and write the caches instead of memory, and the rate would be too
  // high.
  double traffic_together() const {
    const bool quick =
        traffic(optimizer_) * static_cast<double>(kFirstArray) / profile_.host_optimizer < kSecondsOfHostUpdate;
    const std::uint64_t array = std::min(quick ? kMostArray : kFirstArray, round_up(memory_ / 8, kDiskAlignment));
    const bool fast = 2 * static_cast<double>(kFirstCopy) / profile_.both_ways < kSecondsOfFastCopies;
    const std::uint64_t side =
        std::min(fast ? kGrowth * kFirstCopy : kFirstCopy, round_up(memory_ / 4, kDiskAlignment));
    const HostUpdate update(device_, optimizer_, array);
    const Crossing crossing(device_, side);
    const double update_bytes = traffic(optimizer_) * static_cast<double>(array) * kUpdatesTogether;
    const double crossing_bytes = 2 * static_cast<double>(side);
    const double crossings =
        std::max(1.0, std::round(update_bytes / profile_.host_optimizer / (crossing_bytes / profile_.both_ways)));
    const double seconds = stopwatch_.quickest([&] {
      for (double i = 0; i < crossings; ++i) crossing.copy(true, true);  // these only begin here
      for (int i = 0; i < kUpdatesTogether; ++i) update.run();
    });
    return (update_bytes + crossings * crossing_bytes) / seconds;
  }

  // Returns the speed of bfloat16 matrix products in a long run, divided by their speed in a short one. A GPU that
  // limits its power lowers its clock after a while. The long run has copies between the products. These copies take a
  // third of the run's time, as kernels that are limited by memory do in a step.
  double sustained(double flops) const {
    for (const std::int64_t side : kLongSides) {
      SquareProduct product(device_, DType::bf16, side);
      if (product.bytes() + 2 * kFirstCopy <= memory_ && product.flops() / flops <= kLongestProduct)
        return sustained(product);
    }
    return 1;
  }
  double sustained(SquareProduct &product) const {
    DeviceMemory memory(device_, 2 * kFirstCopy);
    memory.fill(0, kFirstCopy, random_tile(DType::f32, kFirstCopy, true));
    const auto copy = [&] {
      device_.copy(Queue::compute, {.to = memory.data() + kFirstCopy, .from = memory.data(), .bytes = kFirstCopy});
    };
    return product.seconds([&](const auto &launch) {
      const double alone = stopwatch_.quickest(launch), of_copy = stopwatch_.quickest(copy);
      const double copies = std::max(1.0, std::round(alone / 2 / of_copy));
      const double in_long = stopwatch_.after(kSecondsToTire, [&] {
        launch();
        for (double i = 0; i < copies; ++i) copy();
      });
      return std::clamp(alone / std::max(in_long - copies * of_copy, alone), kLeastSustained, 1.0);
    });
  }

  // Returns the flops per second of products of square matrices. The matrices grow until launch overhead no longer
  // shows.
  double product_flops(DType dtype) const {
    SquareProduct small(device_, dtype, kSmallSide);
    const double rough = small.seconds([&](const auto &launch) { return stopwatch_.roughly(launch); });
    if (rough >= kSecondsIfSlow) return small.flops() / rough;
    double flops = 0;
    for (std::int64_t side = kFirstSide;; side *= 2) {
      SquareProduct product(device_, dtype, side);
      if (product.bytes() > memory_ && flops > 0) return flops;
      const double seconds = product.seconds([&](const auto &launch) { return stopwatch_.quickest(launch); });
      flops = product.flops() / seconds;
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

void measure_optimizer(backend::Device &device, const Stopwatch &stopwatch, const Optimizer &optimizer,
                       std::uint64_t memory, profile::Profile &profile) {
  RateMeasurement(device, stopwatch, optimizer, memory, profile).of_optimizer();
}

void measure_rates(backend::Device &device, const Stopwatch &stopwatch, const Optimizer &optimizer,
                   std::uint64_t memory, profile::Profile &profile) {
  RateMeasurement(device, stopwatch, optimizer, memory, profile).of_machine();
}

}  // namespace protrain::measure
