#include "draft/target_machine.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/threads.h"
#include "measure/contention.h"
#include "ops/op.h"

namespace protrain::draft {

namespace {

// Throws Code::unsupported if TF32 is asked for in another precision than float32, or for a machine that is only
// described.
void require_tf32(const Settings &settings) {
  if (!settings.tf32) return;
  require(settings.precision == DType::f32, Code::unsupported, "tf32",
          "TF32 is for products of float32; in precision {} there are none", precision_name(settings.precision));
  require(settings.hardware.empty(), Code::unsupported, "tf32",
          "machines that are only described have no rate of TF32");
}

}  // namespace

std::unique_ptr<backend::Device> open_device(const Settings &settings) {
  require_tf32(settings);
  std::unique_ptr<backend::Device> device = backend::open(settings.device, settings.threads, settings.tf32);
  require_precision(device->info(), settings.precision);
  return device;
}

void require_precision(const backend::DeviceInfo &device, DType precision) {
  if (std::ranges::find(device.precisions, precision) != device.precisions.end()) return;
  std::vector<const char *> names;
  for (const DType known : device.precisions) names.push_back(precision_name(known));
  fail(Code::unsupported, "precision", "{} is not computed on {}, which computes in {}", precision_name(precision),
       device.name, fmt::join(names, ", "));
}

LocalMachine::LocalMachine(backend::Device &device, run::Kernels &kernels, const Settings &settings, const Log &log,
                           Earlier earlier)
    : device_(device), kernels_(kernels), settings_(settings), log_(log), earlier_(earlier) {}

profile::Profile LocalMachine::profile(const std::vector<const graph::Graph *> &graphs,
                                       const backend::Optimizer &optimizer) {
  const std::string &disk = settings_.offload_dir;
  const std::string kept = settings_.profile_dir.empty() ? measure::default_cache_directory() : settings_.profile_dir;
  const measure::Cache cache(kept, device_.info(), optimizer, disk, neighbours_);
  profile::Profile profile = measure::describe(device_.info(), disk);
  const auto processors = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  if (earlier_ == Earlier::reused) cache.load(profile, measure::cores_are_idle(processors));
  const profile::Profile loaded = profile;
  kernels_.use_variants(profile.variants);
  const measure::Request request = {.graphs = graphs,
                                    .optimizer = optimizer,
                                    .disk_directory = disk,
                                    .memory = device_.info().memory_bytes / 2 / neighbours_.ranks,
                                    .variants = cache.keeps(),
                                    .has_cores = has_cores()};
  const auto tell = [this](std::size_t done, std::size_t of) {
    if (log_ && neighbours_.place == 0) log_(Json{{"event", "profiling"}, {"done", done}, {"of", of}}.dump());
  };
  if (measure::measure(device_, kernels_, request, profile, tell)) cache.store(profile, loaded);
  kernels_.use_variants(profile.variants);  // measuring may have left a kernel at an algorithm that it only tried
  // The host's memory is at least as fast as the optimizer that works in it. The two rates may come from two sessions.
  if (!profile.shares_memory) profile.host_bandwidth = std::max(profile.host_bandwidth, profile.host_optimizer);
  return profile;
}

// True if every thread of the session has a core of its own. False if there are too few cores, or if other ranks on
// this machine use the same cores: then threads wait for each other.
bool LocalMachine::has_cores() const { return neighbours_.ranks == 1 && device_.info().threads <= available_threads(); }

plan::Bytes LocalMachine::measure_link(const measure::Link &link, std::uint64_t bytes, profile::Profile &profile) {
  measure::measure_link(device_, link, bytes, profile);
  const profile::Profile own = measure::describe(device_.info(), settings_.offload_dir);
  return {link.on_device ? device_.free_bytes() : own.device_memory, own.host_memory, own.disk_memory};
}

program::Workspace LocalMachine::workspace(const graph::Graph &graph) { return kernels_.compile(graph); }

program::Workspace PaperMachine::workspace(const graph::Graph &graph) {
  program::Workspace workspace;
  for (const graph::Node &node : graph.nodes()) {
    const auto known = profile_.scratch.find(ops::signature(graph, node));
    workspace.nodes.push_back(known != profile_.scratch.end()
                                  ? known->second
                                  : ops::assumed_scratch(graph, node, profile_.kind == DeviceKind::gpu));
  }
  return workspace;
}

NamedMachine::NamedMachine(const Settings &settings, const Log &progress, Earlier earlier) {
  if (settings.hardware.empty()) {
    device_ = open_device(settings);
    kernels_ = std::make_unique<run::Kernels>(*device_);
    machine_ = std::make_unique<LocalMachine>(*device_, *kernels_, settings, progress, earlier);
    return;
  }
  require_tf32(settings);
  require(settings.offload_dir.empty(), Code::arg, "offload_dir",
          "offload_dir names a directory of this machine; with hardware, disk_memory says how much its disk may hold");
  const profile::Profile machine = described_machine(settings.hardware);
  require(!settings.disk_memory || (machine.disk_read > 0 && machine.disk_write > 0), Code::arg, "disk_memory",
          "the description of {} has no disk_read and disk_write", machine.name);
  const bool reaches_host = machine.upload > 0 && machine.download > 0 && machine.host_optimizer > 0;
  require(!settings.host_memory || machine.shares_memory || reaches_host, Code::arg, "host_memory",
          "the description of {} has no upload, download and host_optimizer", machine.name);
  machine_ = std::make_unique<PaperMachine>(profile::share_of(machine, settings.ranks.count));
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
