// A device that computes nothing. It has a clock of its own, which advances by the times that a profile gives. Its
// memory consists of addresses only, so it can be as large as a real device's.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "backend/backend.h"
#include "base/error.h"
#include "ops/op.h"
#include "profile/profile.h"

namespace protrain::test {

class DescribedDevice final : public backend::Device {
 public:
  explicit DescribedDevice(const profile::Profile &machine)
      : machine_(machine),
        info_{.name = "described",
              .description = machine.name,
              .kind = machine.kind,
              .precisions = {DType::f32, DType::bf16, DType::f16},
              .memory_bytes = machine.device_memory,
              .shares_memory = machine.shares_memory,
              .shares_cores = machine.shares_cores,
              .threads = 1} {}

  Code failure = Code::ok;             // if not ok, every launch of a kernel fails with this code
  std::vector<double> variants = {1};  // times of a product's algorithms, relative to the first
  int refused = -1;                    // the number of an algorithm that refuses to run
  int large = -1;                      // the number of an algorithm whose scratch exceeds all memory
  double sustained = 1;  // the share of their speed that products of bfloat16 keep after kShortRun seconds of a step
  std::uint64_t caches = 0;    // bytes of the largest caches together
  double disturbed_until = 0;  // by now(): launches before this moment take three times as long
  double lone_update = 0;      // bytes per second of an update without moments on the host; 0: the host's bandwidth

  double now() const { return now_; }
  const std::set<const void *> &written() const { return written_; }  // the first outputs of all launches
  std::uint64_t allocated() const { return allocated_; }

  const backend::DeviceInfo &info() const override { return info_; }
  std::uint64_t cache_bytes() const override { return caches; }

  std::unique_ptr<backend::Kernel> compile(const backend::KernelRequest &request) override {
    ops::NodeTypes types{request.node, {}};
    double bytes = 0;
    for (const auto *operands : {&request.inputs, &request.outputs})
      for (const graph::Type &type : *operands) bytes += static_cast<double>(byte_count(type.dtype, type.shape));
    for (const graph::Type &type : request.inputs) types.inputs.push_back(type.dtype == DType::none ? nullptr : &type);
    const ops::Op *op = ops::find(request.node.op);
    const double flops = op->flops != nullptr ? op->flops(types, request.outputs) : 0;
    auto kernel =
        timed(std::max(flops / machine_.matrix_flops(request.inputs.at(0).dtype), bytes / machine_.device_bandwidth));
    if (flops > 0) kernel->variants = variants;
    kernel->large = large;
    kernel->tires = flops > 0 && request.inputs.at(0).dtype == DType::bf16;
    return kernel;
  }
  // An update reads the gradient, and reads and writes weights and moments. On the host, an update without moments is
  // limited by memory bandwidth alone.
  std::unique_ptr<backend::Kernel> compile_update(const backend::UpdateRequest &request) override {
    double each = 3 * sizeof(float);
    for (const graph::OptimizerArray &array : request.optimizer.state()) each += 2 * array.bytes_each();
    const double bytes = static_cast<double>(request.elements.at(0)) * each;
    const bool moments = request.optimizer.state_count() > 0;
    auto update = timed(bytes / machine_.device_optimizer, bytes / (moments           ? machine_.host_optimizer
                                                                    : lone_update > 0 ? lone_update
                                                                                      : machine_.host_bandwidth));
    update->host_bytes = bytes;
    return update;
  }
  std::unique_ptr<backend::Kernel> compile_check(DType, const std::vector<std::uint32_t> &) override {
    return timed(0);
  }

  void *allocate_arena(std::uint64_t bytes) override { return allocate(bytes); }
  void *allocate(std::uint64_t bytes) override {
    require(allocated_ + bytes <= machine_.device_memory, Code::nomem, "described", "{} bytes are too many", bytes);
    void *memory = reinterpret_cast<void *>(next_);
    blocks_[next_] = bytes;
    next_ += round_up(bytes, 4096) + 4096;
    allocated_ += bytes;
    return memory;
  }
  void release(void *memory) override {
    const auto block = blocks_.find(reinterpret_cast<std::uintptr_t>(memory));
    ASSERT_NE(block, blocks_.end());
    allocated_ -= block->second;
    blocks_.erase(block);
  }
  void write(void *device, const void *host, std::uint64_t bytes) override {
    EXPECT_TRUE(holds(device, bytes) && !holds(host, 0));
  }
  void read(void *host, const void *device, std::uint64_t bytes) override {
    write(const_cast<void *>(device), host, bytes);
  }

  // Queues run in parallel, so a step takes the longest of three times. The first is the time of the busiest queue. The
  // second is the time of all copies over the bus and of the host's updates together, because these share the host's
  // memory. The third is the time of all copies together, and counts only if there are copies in both directions.
  void run_step(void (*issue)(void *), void *argument) override {
    busy_ = {};
    crossed_ = updated_ = 0;
    in_step_ = true;
    issue(argument);
    in_step_ = false;
    double longest = std::max(*std::ranges::max_element(busy_), (crossed_ + updated_) / machine_.host_bandwidth);
    if (at(Queue::upload) > 0 && at(Queue::download) > 0) longest = std::max(longest, crossed_ / machine_.both_ways);
    now_ += longest;
  }
  void launch(Queue queue, backend::Kernel &kernel, const backend::Launch &launch) override {
    if (failure != Code::ok) fail(failure, "described", "the launch fails");
    for (const auto &operands : {launch.inputs, launch.outputs})
      for (const void *operand : operands) EXPECT_TRUE(operand == nullptr || holds(operand, 0));
    if (!launch.outputs.empty()) written_.insert(launch.outputs[0]);
    const auto &timed = static_cast<TimedKernel &>(kernel);
    if (timed.variant == refused) fail(Code::unsupported, "described", "the algorithm refuses to run");
    const bool slower = timed.tires && at(queue) > kShortRun;
    at(queue) += machine_.launch_seconds + timed.on_device *
                                               timed.variants.at(static_cast<std::size_t>(timed.variant)) *
                                               (now_ < disturbed_until ? 3 : 1) / (slower ? sustained : 1);
  }
  void copy(Queue queue, const backend::Copy &copy) override {
    const auto bytes = static_cast<double>(copy.bytes);
    EXPECT_EQ(holds(copy.to, copy.bytes), queue != Queue::download);
    EXPECT_EQ(holds(copy.from, copy.bytes), queue != Queue::upload);
    EXPECT_TRUE(queue == Queue::compute || pinned_.contains(queue == Queue::upload ? copy.from : copy.to));
    if (queue != Queue::compute) crossed_ += bytes;
    at(queue) += queue == Queue::upload     ? bytes / machine_.upload
                 : queue == Queue::download ? bytes / machine_.download
                                            : 2 * bytes / machine_.device_bandwidth;
  }
  void launch_alone(backend::Kernel &kernel, const backend::Launch &launch) override {
    for (const auto &operands : {launch.inputs, launch.outputs})
      for (const void *operand : operands) EXPECT_FALSE(holds(operand, 0));
    const auto &timed = static_cast<TimedKernel &>(kernel);
    updated_ += timed.host_bytes;
    (in_step_ ? at(Queue::host) : now_) += timed.on_host;
  }
  void copy_alone(const backend::Copy &) override {}
  std::uint64_t pin(void *host, std::uint64_t bytes) override { return pinned_.insert(host).second ? bytes : 0; }
  void unpin(void *host) override { EXPECT_EQ(pinned_.erase(host), 1u); }

 private:
  static constexpr double kShortRun = 0.01;
  struct TimedKernel final : backend::Kernel {
    double on_device = 0, on_host = 0, host_bytes = 0;
    std::vector<double> variants = {1};
    int variant = 0, large = -1;
    bool tires = false;
    int variant_count() const override { return static_cast<int>(variants.size()); }
    void use_variant(int number) override {
      variant = number;
      scratch_bytes = number == large ? std::uint64_t{1} << 60 : 0;
    }
  };
  static std::unique_ptr<TimedKernel> timed(double on_device, double on_host = 0) {
    auto kernel = std::make_unique<TimedKernel>();
    kernel->on_device = on_device;
    kernel->on_host = on_host;
    return kernel;
  }

  double &at(Queue queue) { return busy_[queue]; }
  bool holds(const void *address, std::uint64_t bytes) const {
    const auto place = reinterpret_cast<std::uintptr_t>(address);
    const auto after = blocks_.upper_bound(place);
    return after != blocks_.begin() && place + bytes <= std::prev(after)->first + std::prev(after)->second;
  }

  const profile::Profile machine_;
  backend::DeviceInfo info_;
  std::map<std::uintptr_t, std::uint64_t> blocks_;  // bytes, by first address
  std::set<const void *> pinned_, written_;
  std::uintptr_t next_ = std::uintptr_t{1} << 52;  // no process on the host has such addresses
  std::uint64_t allocated_ = 0;
  double now_ = 0, crossed_ = 0, updated_ = 0;
  bool in_step_ = false;
  PerQueue<double> busy_{};
};

}  // namespace protrain::test
