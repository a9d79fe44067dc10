#include "draft/target_machine.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "ops/op.h"

namespace protrain::draft {

namespace {

// Code::unsupported where TF32 is asked for and nothing is computed in it.
void require_tf32(const Settings &settings) {
  if (!settings.tf32) return;
  require(settings.device.starts_with("cuda:"), Code::unsupported, "tf32",
          "TF32 is a GPU's; device {} multiplies float32 as it is", settings.device);
  require(settings.precision == DType::f32, Code::unsupported, "tf32",
          "TF32 is for products of float32; in precision {} there are none", precision_name(settings.precision));
  require(settings.hardware.empty(), Code::unsupported, "tf32",
          "machines that are only described have no rate of TF32");
}

}  // namespace

std::unique_ptr<backend::Device> open_device(const Settings &settings) {
  require_tf32(settings);
  require(settings.precision != DType::f16 || settings.device == "cpu", Code::unsupported, "precision",
          "fp16 is computed on the cpu alone, not on {}; bf16 takes no more memory", settings.device);
  return backend::open(settings.device, settings.threads, settings.tf32);
}

LocalMachine::LocalMachine(backend::Device &device, run::Kernels &kernels, const Settings &settings, const Log &log,
                           bool anew)
    : device_(device), kernels_(kernels), settings_(settings), log_(log), anew_(anew) {}

profile::Profile LocalMachine::profile(const std::vector<const graph::Graph *> &graphs,
                                       const backend::Optimizer &optimizer) {
  const std::string &disk = settings_.offload_dir;
  const std::string kept = settings_.profile_dir.empty() ? measure::default_cache_directory() : settings_.profile_dir;
  const measure::Cache cache(kept, device_.info(), disk);
  profile::Profile profile = measure::describe(device_.info());
  if (!anew_) cache.load(profile);
  kernels_.use_variants(profile.variants);
  const measure::Request request = {.graphs = graphs,
                                    .optimizer = optimizer,
                                    .disk_directory = disk,
                                    .memory = device_.info().memory_bytes / 2,
                                    .variants = cache.keeps()};
  const auto tell = [this](std::size_t done, std::size_t of) {
    if (log_) log_(Json{{"event", "profiling"}, {"done", done}, {"of", of}}.dump());
  };
  if (measure::measure(device_, kernels_, request, profile, tell)) {
    cache.store(profile);
    kernels_.use_variants(profile.variants);
  }
  return profile;
}

program::Workspace LocalMachine::workspace(const graph::Graph &graph) { return kernels_.compile(graph); }

namespace {

// Of a linear loss: a slice of logits in float32; its gradient of a narrow type takes a slice of gradients beside
// it and, on a GPU, sums of dw.
std::uint64_t loss_scratch(const graph::Graph &graph, const graph::Node &node, bool on_gpu) {
  const graph::Type &rows = graph.value(node.inputs[0]).type, &weights = graph.value(node.inputs[1]).type;
  const auto classes = element_count(weights.shape) / std::max<std::int64_t>(rows.shape.back(), 1);
  const auto logits = static_cast<std::uint64_t>(rows.shape.front() * classes) * sizeof(float);
  std::uint64_t bytes = std::min<std::uint64_t>(logits, (on_gpu ? 256 : 64) << 20);
  if (node.op != "LinearCrossEntropyGrad" || rows.dtype == DType::f32) return bytes;
  bytes += std::min<std::uint64_t>(logits / 2, 128 << 20);
  if (on_gpu && node.outputs.size() > 2 && node.outputs[2] != graph::ValueId::none)
    bytes += static_cast<std::uint64_t>(element_count(weights.shape)) * sizeof(float);
  return bytes;
}

// Beside losses: what libraries of matrix products ask for, and a gradient of attention for a sum in float32.
std::uint64_t assumed_scratch(const graph::Graph &graph, const graph::Node &node, bool on_gpu) {
  constexpr std::uint64_t kProduct = 32ull << 20;
  const ops::Op *op = ops::find(node.op);
  std::uint64_t bytes = op != nullptr && op->flops != nullptr ? kProduct : 0;
  if (node.op.starts_with("LinearCrossEntropy")) bytes += loss_scratch(graph, node, on_gpu);
  if (node.op.find("AttentionGrad") != std::string::npos) {
    const graph::Type &query = graph.value(node.inputs[0]).type;
    bytes += static_cast<std::uint64_t>(element_count(query.shape)) * sizeof(float);
  }
  return bytes;
}

}  // namespace

program::Workspace PaperMachine::workspace(const graph::Graph &graph) {
  program::Workspace workspace;
  for (const graph::Node &node : graph.nodes()) {
    const auto known = profile_.scratch.find(ops::signature(graph, node));
    workspace.nodes.push_back(known != profile_.scratch.end() ? known->second
                                                              : assumed_scratch(graph, node, !profile_.shares_memory));
  }
  return workspace;
}

NamedMachine::NamedMachine(const Settings &settings, const Log &progress, bool anew) {
  require_tf32(settings);
  if (settings.hardware.empty()) {
    device_ = open_device(settings);
    kernels_ = std::make_unique<run::Kernels>(*device_);
    machine_ = std::make_unique<LocalMachine>(*device_, *kernels_, settings, progress, anew);
    return;
  }
  const profile::Profile machine = described_machine(settings.hardware);
  require(!settings.disk_memory || (machine.disk_read > 0 && machine.disk_write > 0), Code::arg, "disk_memory",
          "the description of {} has no disk_read and disk_write", machine.name);
  machine_ = std::make_unique<PaperMachine>(machine);
}

profile::Profile described_machine(const std::string &hardware) {
  const auto known = profile::known_machines();
  if (std::ranges::find(known, hardware) != known.end() || !identity_of(hardware))
    return profile::known_machine(hardware);
  try {
    return profile::from_json(read_text(hardware));
  } catch (Error &error) {
    error.subject = hardware;
    throw;
  }
}

}  // namespace protrain::draft
