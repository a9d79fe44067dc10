#include "measure/measure.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/memory.h"
#include "base/tier.h"
#include "measure/disk.h"
#include "measure/stopwatch.h"
#include "ops/op.h"

namespace protrain::measure {

namespace {

using graph::Graph;
using graph::Node;
using graph::Type;

constexpr std::uint64_t kCopyBytes = 64ull << 20;    // past every cache
constexpr std::int64_t kUpdateElements = 4ll << 20;  // four arrays of 16 MiB
constexpr double kSecondsAtLeast = 4e-3;             // of a run of one kernel

// What a kernel of the graph works on: one block of memory with all its operands and scratch.
class Bench {
 public:
  Bench(const Graph &graph, const Node &node, std::uint64_t scratch) {
    for (graph::ValueId id : node.inputs) inputs_.push_back(place(graph, id));
    for (graph::ValueId id : node.outputs) outputs_.push_back(place(graph, id));
    scratch_at_ = take(scratch);
    for (const auto *ids : {&node.inputs, &node.outputs})  // a gradient's table is an output
      for (graph::ValueId id : *ids)
        if (id != graph::ValueId::none)
          for (std::int64_t dim : graph.value(id).type.shape) smallest_dim_ = std::min(smallest_dim_, dim);
  }

  std::uint64_t bytes() const { return bytes_; }

  // Numbers that are neither zero nor denormal, and indices that are below every dimension.
  Launch fill(const Graph &graph, const Node &node) {
    memory_ = Block(std::max<std::uint64_t>(bytes_, 1), "profiling");
    std::memset(memory_.data(), 0x3C, memory_.size());  // 0.0115 in float32 and bfloat16
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (inputs_[i] != kAbsent && is_integer(graph.value(node.inputs[i]).type.dtype))
        fill_indices(graph.value(node.inputs[i]).type, memory_.data() + inputs_[i]);
    Launch launch;
    for (std::uint64_t at : inputs_) launch.inputs.push_back(at == kAbsent ? nullptr : memory_.data() + at);
    for (std::uint64_t at : outputs_) launch.outputs.push_back(at == kAbsent ? nullptr : memory_.data() + at);
    launch.scratch = memory_.data() + scratch_at_;
    return launch;
  }

 private:
  static constexpr std::uint64_t kAbsent = ~0ull;

  std::uint64_t take(std::uint64_t bytes) {
    const std::uint64_t at = bytes_;
    bytes_ = round_up(checked_add(bytes_, bytes), kDiskAlignment);
    return at;
  }

  std::uint64_t place(const Graph &graph, graph::ValueId id) {
    if (id == graph::ValueId::none) return kAbsent;
    const Type &type = graph.value(id).type;
    return take(byte_count(type.dtype, type.shape));
  }

  void fill_indices(const Type &type, std::byte *at) const {
    const std::uint64_t width = byte_count(type.dtype, {});
    std::memset(at, 0, byte_count(type.dtype, type.shape));
    std::uint64_t value = 0;
    for (std::int64_t i = 0; i < element_count(type.shape); ++i) {
      value = (value * 6364136223846793005ull + 1442695040888963407ull);
      const std::uint64_t index = (value >> 33) % static_cast<std::uint64_t>(std::max<std::int64_t>(smallest_dim_, 1));
      std::memcpy(at + static_cast<std::uint64_t>(i) * width, &index, std::min<std::uint64_t>(width, sizeof index));
    }
  }

  std::vector<std::uint64_t> inputs_, outputs_;
  std::uint64_t scratch_at_ = 0, bytes_ = 0;
  std::int64_t smallest_dim_ = 128;  // so that an index fits any integer type
  Block memory_;
};

class Measuring {
 public:
  Measuring(backend::Device &device, run::Kernels &kernels, const Request &request, profile::Profile &profile,
            const Progress &progress)
      : device_(device),
        kernels_(kernels),
        request_(request),
        profile_(profile),
        progress_(progress),
        stopwatch_(device) {}

  bool run() {
    find_work();
    const bool rates = profile_.device_bandwidth == 0;
    const bool disk = !request_.disk_directory.empty() && profile_.disk_write == 0;
    of_ = nodes_.size() + (rates ? 2 : 0) + (disk ? 1 : 0);
    if (rates) {
      tell();
      measure_copies();
      tell();
      measure_update();
      measure_product();
    }
    for (const auto &[graph, node] : nodes_) {
      tell();
      measure_node(*graph, *node);
    }
    derive_flops();
    if (disk) {
      tell();
      measure_disk(device_, request_.disk_directory, profile_);
    }
    return of_ > 0;
  }

 private:
  void tell() {
    if (progress_) progress_(done_++, of_);
  }

  void find_work() {
    std::set<std::string> seen;
    for (const Graph *graph : request_.graphs)
      for (const Node &node : graph->nodes()) {
        if (node.op == "Reshape") continue;
        const std::string signature = ops::signature(*graph, node);
        if (!profile_.kernels.contains(signature) && seen.insert(signature).second && fits(*graph, node))
          nodes_.emplace_back(graph, &node);
      }
  }

  bool fits(const Graph &graph, const Node &node) {
    return Bench(graph, node, kernels_.of_node(graph, node).scratch_bytes).bytes() <= request_.memory;
  }

  void measure_copies() {
    const std::uint64_t bytes = std::min(kCopyBytes, std::max<std::uint64_t>(request_.memory / 4, 1 << 20));
    Block from(bytes, "profiling"), to(bytes, "profiling");
    std::memset(from.data(), 1, bytes);
    const double seconds = stopwatch_.quickest(
        kSecondsAtLeast, [&] { device_.copy(Queue::compute, {.to = to.data(), .from = from.data(), .bytes = bytes}); });
    const double rate = static_cast<double>(bytes) / seconds;
    profile_.upload = profile_.download = profile_.both_ways = rate;
    profile_.device_bandwidth = profile_.host_bandwidth = 2 * rate;  // read and written
  }

  void measure_update() {
    const auto elements = static_cast<std::int64_t>(
        std::min<std::uint64_t>(kUpdateElements, std::max<std::uint64_t>(request_.memory / 32, 1 << 14)));
    const std::uint64_t bytes = static_cast<std::uint64_t>(elements) * sizeof(float);
    const auto state = static_cast<std::size_t>(request_.optimizer.state_count());
    Block memory(bytes * (2 + state) + kDiskAlignment, "profiling");
    std::memset(memory.data(), 0x3C, memory.size());
    void *status = memory.data() + bytes * (2 + state);
    std::memset(status, 0, sizeof(std::uint32_t));
    Launch launch{.inputs = {memory.data(), status}};
    for (std::size_t i = 0; i <= state; ++i) launch.outputs.push_back(memory.data() + (i + 1) * bytes);
    backend::Kernel &kernel = kernels_.of_update({.optimizer = request_.optimizer, .elements = elements});
    const double seconds = stopwatch_.quickest(kSecondsAtLeast, [&] { launch.on(device_, kernel); });
    // The gradient is read, weights and state are read and written.
    const double traffic = static_cast<double>(bytes) * (3 + 2 * static_cast<double>(state));
    profile_.device_optimizer = profile_.host_optimizer = traffic / seconds;
    std::memset(status, 1, sizeof(std::uint32_t));  // nothing is done: what is left is the launch
    profile_.launch_seconds = stopwatch_.quickest(kSecondsAtLeast / 4, [&] { launch.on(device_, kernel); });
  }

  // What products sustain, where no graph comes with some.
  void measure_product() {
    constexpr std::int64_t kSide = 768;
    Graph graph;
    Node node{.op = "MatMul", .name = "profiling"};
    for (const char *name : {"a", "b", "c"}) {
      const graph::ValueId id = graph.add_value({.name = name, .type = {DType::f32, {kSide, kSide}}});
      (std::string_view(name) == "c" ? node.outputs : node.inputs).push_back(id);
    }
    graph.add_node(node);
    backend::Kernel &kernel = kernels_.of_node(graph, node);
    Bench bench(graph, node, kernel.scratch_bytes);
    const Launch launch = bench.fill(graph, node);
    const double seconds = stopwatch_.quickest(kSecondsAtLeast, [&] { launch.on(device_, kernel); });
    profile_.fp32_flops = std::max(profile_.fp32_flops, ops::cost(graph, node).flops / seconds);
  }

  void measure_node(const Graph &graph, const Node &node) {
    backend::Kernel &kernel = kernels_.of_node(graph, node);
    Bench bench(graph, node, kernel.scratch_bytes);
    const Launch launch = bench.fill(graph, node);
    try {
      const double seconds = stopwatch_.quickest(kSecondsAtLeast, [&] { launch.on(device_, kernel); });
      profile_.kernels[ops::signature(graph, node)] = seconds;
    } catch (const Error &) {  // it refuses these numbers; the model's own may suit it
    }
  }

  // What large products sustain: the best that was seen, for kernels that were not measured.
  void derive_flops() {
    for (const auto &[graph, node] : nodes_) {
      const auto found = profile_.kernels.find(ops::signature(*graph, *node));
      if (found == profile_.kernels.end()) continue;
      profile_.fp32_flops = std::max(profile_.fp32_flops, ops::cost(*graph, *node).flops / found->second);
    }
  }

  backend::Device &device_;
  run::Kernels &kernels_;
  const Request &request_;
  profile::Profile &profile_;
  const Progress &progress_;
  Stopwatch stopwatch_;
  std::vector<std::pair<const Graph *, const Node *>> nodes_;  // one of each signature
  std::size_t done_ = 0, of_ = 0;
};

}  // namespace

profile::Profile describe(const backend::DeviceInfo &device) {
  profile::Profile profile;
  profile.name = device.description;
  profile.device_memory = device.memory_bytes;
  profile.shares_memory = device.shares_memory;
  profile.shares_cores = device.shares_cores;
  profile.host_memory = device.shares_memory ? device.memory_bytes : available_memory();
  return profile;
}

bool measure(backend::Device &device, run::Kernels &kernels, const Request &request, profile::Profile &profile,
             const Progress &progress) {
  return Measuring(device, kernels, request, profile, progress).run();
}

}  // namespace protrain::measure
