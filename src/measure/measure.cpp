#include "measure/measure.h"

#include <algorithm>
#include <exception>
#include <map>

#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"
#include "measure/contention.h"
#include "measure/disk.h"
#include "measure/operands.h"
#include "measure/rates.h"
#include "measure/stopwatch.h"
#include "ops/op.h"

namespace protrain::measure {

namespace {

using graph::Graph;
using graph::Node;

// Bytes of device memory that plans leave free: kernels and recordings are loaded there when they first run.
constexpr std::uint64_t kLeastReserve = 768ull << 20;
// The places of a kernel's operands take together kSpan times the bytes of the caches: with few more bytes than the
// caches hold, part of them would stay there. More than kMostSpan bytes or kMostPlaces would take long to fill.
constexpr std::uint64_t kSpan = 2, kMostSpan = 256ull << 20, kMostPlaces = 64;
// An algorithm replaces the default one if it takes less than this share of the default's time. Less gain is noise.
constexpr double kWorthAnother = 0.98;
// Limits for a second measurement of a kernel. Its time must be kDoubtful times what the machine's rates allow, and
// what lies above that must be kMatters of the time of all kernels of a step.
constexpr double kDoubtful = 1.5, kMatters = 0.01;

// Measures everything that a profile lacks, for one request. Work is collected first, so that progress can be reported;
// each distinct kernel signature is timed once, and once more if its time is doubtful. Optimizer, rates and disk are
// measured only if the profile lacks them.
class Measurement {
 public:
  Measurement(backend::Device &device, run::Kernels &kernels, const Request &request, profile::Profile &profile,
              const Progress &progress)
      : device_(device),
        kernels_(kernels),
        request_(request),
        profile_(profile),
        progress_(progress),
        stopwatch_(device, request.now) {}

  bool run() {
    find_work();
    const bool optimizer = profile_.device_optimizer == 0 || profile_.host_optimizer == 0;
    const bool rates = profile_.device_bandwidth == 0 || profile_.bf16_flops == 0;
    const bool disk = !request_.disk_directory.empty() && profile_.disk_both_ways == 0;
    of_ = nodes_.size() + (optimizer ? 1 : 0) + (rates ? 1 : 0) + (disk ? 1 : 0);
    if (of_ == 0) return false;
    const ThreadTimes start = thread_times();
    if (optimizer) {  // first, because the host's bandwidth is measured beside the optimizer
      tell();
      measure_optimizer(device_, stopwatch_, request_.optimizer, request_.memory, profile_);
    }
    if (rates) {
      tell();
      measure_rates(device_, stopwatch_, request_.optimizer, request_.memory, profile_);
    }
    bool timed = optimizer || rates;
    for (const auto &[graph, node] : nodes_) {
      tell();
      timed = measure_node(*graph, *node) || timed;
    }
    derive_flops();
    if (measure_doubtful_again()) derive_flops();
    if (request_.has_cores && timed) profile_.waited = std::max(profile_.waited, share_waited(start, thread_times()));
    if (disk) {
      tell();
      measure_disk(device_, request_.disk_directory, profile_);
    }
    return timed || disk;
  }

 private:
  void tell() {
    if (progress_) progress_(done_++, of_);
  }

  void find_work() {
    for (const Graph *graph : request_.graphs)
      for (const Node &node : graph->nodes()) {
        if (!ops::has_kernel(node)) continue;
        const std::string signature = ops::signature(*graph, node);
        const bool is_first = ++uses_[signature] == 1;
        if (is_first && !profile_.kernels.contains(signature) && fits(*graph, node)) nodes_.emplace_back(graph, &node);
      }
    if (!nodes_.empty()) span_ = std::min({touched_bytes(), kSpan * device_.cache_bytes(), kMostSpan});
  }

  // Returns the most bytes that the values of one of the graphs have together.
  std::uint64_t touched_bytes() const {
    std::uint64_t most = 0;
    for (const Graph *graph : request_.graphs) {
      std::uint64_t touched = 0;
      for (const graph::Value &value : graph->values()) touched += byte_count(value.type.dtype, value.type.shape);
      most = std::max(most, touched);
    }
    return most;
  }

  bool fits(const Graph &graph, const Node &node) {
    return Operands(graph, node, kernels_.of_node(graph, node).scratch_bytes).bytes() <= request_.memory;
  }

  // Returns in how many places the operands lie in turn. A launch should find them as in a step: in memory, if a step
  // touches more bytes than the caches hold, because other kernels run before a value is read again.
  std::size_t place_count(const Operands &operands) const {
    const std::uint64_t each = std::max<std::uint64_t>(operands.place_bytes(), 1);
    const std::uint64_t fitting = (request_.memory - std::min(request_.memory, operands.scratch_bytes())) / each;
    return std::clamp<std::uint64_t>(std::min((span_ + each - 1) / each, fitting), 1, kMostPlaces);
  }

  // Times one kernel. Returns false if its time cannot be measured. Its time then follows from the profile's rates.
  bool measure_node(const Graph &graph, const Node &node) {
    backend::Kernel &kernel = kernels_.of_node(graph, node);
    const std::string signature = ops::signature(graph, node);
    // Times all algorithms of the kernel if the request asks to choose one and the profile has no earlier choice.
    // Otherwise times only the algorithm that the kernel uses now. This is the earlier choice, if the profile has one.
    const int count = request_.variants && !profile_.variants.contains(signature) ? kernel.variant_count() : 1;
    const Operands operands(graph, node, most_scratch(graph, node, kernel, count));
    const std::size_t places = place_count(operands);
    DeviceMemory memory(device_, operands.bytes(places));
    const std::vector<LaunchOperands> launches = operands.place(memory, places);
    std::size_t launched = 0;
    int chosen = -1;
    double least = 0;
    std::exception_ptr refusal;
    for (int variant = 0; variant < count; ++variant) try {
        if (count > 1) kernel.use_variant(variant);
        if (kernel.scratch_bytes > operands.scratch_bytes()) continue;
        const double seconds = stopwatch_.quickest([&] { launches[launched++ % places].on(device_, kernel); });
        if (chosen >= 0 && seconds >= least * (chosen == 0 ? kWorthAnother : 1)) continue;
        chosen = variant;
        least = seconds;
      } catch (const Error &error) {
        // A kernel may refuse random numbers.
        if (error.code == Code::arg) return false;
        // A library can refuse an algorithm that it has offered. In that case the next algorithm is tried. Any other
        // error is the device's fault, and is passed on.
        if (error.code != Code::unsupported) throw;
        refusal = std::current_exception();
      }
    if (chosen < 0 && refusal) std::rethrow_exception(refusal);
    if (chosen < 0) return false;  // no algorithm fits the memory
    const double seconds = least / (tires(graph, node) ? profile_.sustained : 1);
    const auto [kept, is_new] = profile_.kernels.emplace(signature, seconds);
    if (!is_new) kept->second = std::min(kept->second, seconds);
    if (count == 1) return true;
    kernel.use_variant(chosen);
    profile_.variants[signature] = static_cast<std::uint64_t>(chosen);
    return true;
  }

  // Measures kernels a second time whose times are doubtful and matter (see kDoubtful). Others may have disturbed all
  // runs of a kernel, because its runs follow each other. The second measurement comes later, and the lesser time
  // counts. Returns true if it measured any kernel.
  bool measure_doubtful_again() {
    double all = 0;
    for (const auto &[graph, node] : nodes_) all += seconds_above(0, *graph, *node);
    bool any = false;
    for (const auto &[graph, node] : nodes_)
      if (seconds_above(kDoubtful * least_seconds(*graph, *node), *graph, *node) > kMatters * all)
        any = measure_node(*graph, *node) || any;
    return any;
  }

  // Returns by how many seconds all uses of the node's kernel together take longer than `each` per use; 0: it was not
  // measured.
  double seconds_above(double each, const Graph &graph, const Node &node) const {
    const std::string signature = ops::signature(graph, node);
    const auto found = profile_.kernels.find(signature);
    return found == profile_.kernels.end() ? 0 : static_cast<double>(uses_.at(signature)) * (found->second - each);
  }

  static DType operand_dtype(const Graph &graph, const Node &node) {
    const bool has_operand = !node.inputs.empty() && node.inputs[0] != graph::ValueId::none;
    return has_operand ? graph.value(node.inputs[0]).type.dtype : DType::none;
  }

  // Returns the least seconds in which the machine can compute a node, by its rates of compute and of memory.
  double least_seconds(const Graph &graph, const Node &node) const {
    const ops::Cost cost = ops::cost(graph, node);
    return profile_.launch_seconds + std::max(cost.flops / profile_.matrix_flops(operand_dtype(graph, node)),
                                              cost.bytes / profile_.device_bandwidth);
  }

  // True if the node's kernel computes in bfloat16 and is limited by compute, not by the device's memory. Such a kernel
  // is slower in a long run than in a short one.
  bool tires(const Graph &graph, const Node &node) const {
    const ops::Cost cost = ops::cost(graph, node);
    return operand_dtype(graph, node) == DType::bf16 &&
           cost.flops / profile_.bf16_flops > cost.bytes / profile_.device_bandwidth;
  }

  // Returns the most scratch that one of the kernel's algorithms needs. Leaves out algorithms whose scratch, together
  // with the operands, exceeds the request's memory.
  std::uint64_t most_scratch(const Graph &graph, const Node &node, backend::Kernel &kernel, int count) const {
    std::uint64_t most = kernel.scratch_bytes;
    for (int variant = 0; variant < count && count > 1; ++variant) {
      kernel.use_variant(variant);
      if (Operands(graph, node, kernel.scratch_bytes).bytes() <= request_.memory)
        most = std::max(most, kernel.scratch_bytes);
    }
    return most;
  }

  // Raises fp32_flops and bf16_flops to the best rates that measured kernels reached. These rates price the kernels
  // that were not measured.
  void derive_flops() {
    for (const auto &[graph, node] : nodes_) {
      const auto found = profile_.kernels.find(ops::signature(*graph, *node));
      if (found == profile_.kernels.end()) continue;
      const DType dtype = operand_dtype(*graph, *node);
      const double flops = ops::cost(*graph, *node).flops / found->second;
      if (dtype == DType::f32) profile_.fp32_flops = std::max(profile_.fp32_flops, flops);
      if (dtype == DType::bf16) profile_.bf16_flops = std::max(profile_.bf16_flops, flops);
    }
  }

  backend::Device &device_;
  run::Kernels &kernels_;
  const Request &request_;
  profile::Profile &profile_;
  const Progress &progress_;
  Stopwatch stopwatch_;
  std::vector<std::pair<const Graph *, const Node *>> nodes_;  // to be measured: one per signature
  std::map<std::string, std::size_t> uses_;                    // nodes of all graphs, by signature
  std::size_t done_ = 0, of_ = 0;
  std::uint64_t span_ = 0;  // bytes over which the places of a kernel's operands spread
};

}  // namespace

profile::Profile describe(const backend::DeviceInfo &device, const std::string &disk_directory) {
  profile::Profile profile;
  profile.name = device.description;
  profile.device_memory = device.memory_bytes;
  if (!device.shares_memory) profile.device_reserve = std::max(kLeastReserve, device.memory_bytes / 100);
  profile.kind = device.kind;
  profile.shares_memory = device.shares_memory;
  profile.shares_cores = device.shares_cores;
  profile.host_memory = device.shares_memory ? device.memory_bytes : available_memory();
  if (!device.shares_memory) profile.host_reserve = profile::left_to_the_system(profile.host_memory);
  if (!disk_directory.empty()) profile.disk_memory = free_space(disk_directory);
  return profile;
}

bool measure(backend::Device &device, run::Kernels &kernels, const Request &request, profile::Profile &profile,
             const Progress &progress) {
  return Measurement(device, kernels, request, profile, progress).run();
}

}  // namespace protrain::measure
