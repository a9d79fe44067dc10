// TargetMachine: the machine that a draft is made for, at hand or only described.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "draft/log.h"
#include "draft/settings.h"
#include "measure/link.h"
#include "measure/measure.h"
#include "plan/cost.h"
#include "profile/profile.h"
#include "run/kernels.h"

namespace protrain::draft {

// Opens the device that the settings name. Code::unsupported if it cannot compute in their precision.
std::unique_ptr<backend::Device> open_device(const Settings &settings);
// Throws Code::unsupported if the device does not compute in this precision.
void require_precision(const backend::DeviceInfo &device, DType precision);

class TargetMachine {
 public:
  virtual ~TargetMachine() = default;
  // Returns the machine's profile: capacities and rates, and times of the graphs' kernels if they can be measured.
  virtual profile::Profile profile(const std::vector<const graph::Graph *> &graphs,
                                   const backend::Optimizer &optimizer) = 0;
  // Returns the scratch that the kernels of the graph need. Code::unsupported lists every operator without a kernel.
  virtual program::Workspace workspace(const graph::Graph &graph) = 0;
  // Announces that other ranks will measure this machine at the same time as this rank.
  virtual void measure_beside(const measure::Neighbours &) {}
  // Measures the link between ranks: each rank sends `bytes` to each other rank. Adds the link's speed to `profile`,
  // which may describe the machine of another rank. Returns how many bytes each tier of this rank's own machine has
  // after the measurement. All ranks must make this call together, with the same `bytes`.
  virtual plan::Bytes measure_link(const measure::Link &, [[maybe_unused]] std::uint64_t bytes,
                                   profile::Profile &profile) {
    return {profile.device_memory, profile.host_memory, profile.disk_memory};
  }
  // Makes this rank's kernels use the algorithms (Profile::variants) that another rank measured as fastest.
  virtual void adopt(const profile::Profile &) {}
  // Returns the text that make() makes on rank 0. All ranks get the same text, and only rank 0 calls make().
  virtual std::string of_rank_0(const std::function<std::string()> &make) { return make(); }
  // Throws Code::mismatch, on every rank, if the texts that make() returns differ between the ranks. With a single
  // rank, make() is not called.
  using Texts = std::map<std::string, std::string>;
  virtual void require_same(const std::function<Texts()> &) {}
};

// Says whether measurements of earlier sessions on this machine are used again.
enum class Earlier : std::uint8_t { reused, ignored };

// The device at hand. It measures what earlier sessions have not measured, and reports progress to `log`.
class LocalMachine final : public TargetMachine {
 public:
  // All arguments but `earlier` must outlive this object.
  LocalMachine(backend::Device &device, run::Kernels &kernels, const Settings &settings, const Log &log,
               Earlier earlier = Earlier::reused);
  profile::Profile profile(const std::vector<const graph::Graph *> &graphs,
                           const backend::Optimizer &optimizer) override;
  program::Workspace workspace(const graph::Graph &graph) override;
  void measure_beside(const measure::Neighbours &neighbours) override { neighbours_ = neighbours; }
  plan::Bytes measure_link(const measure::Link &link, std::uint64_t bytes, profile::Profile &profile) override;
  void adopt(const profile::Profile &profile) override { kernels_.use_variants(profile.variants); }

 private:
  bool has_cores() const;

  backend::Device &device_;
  run::Kernels &kernels_;
  const Settings &settings_;
  const Log &log_;
  const Earlier earlier_;
  measure::Neighbours neighbours_;
};

// A machine that is not at hand. Only its description, a profile, is known.
class PaperMachine final : public TargetMachine {
 public:
  explicit PaperMachine(profile::Profile profile) : profile_(std::move(profile)) {}
  profile::Profile profile(const std::vector<const graph::Graph *> &, const backend::Optimizer &) override {
    return profile_;
  }
  program::Workspace workspace(const graph::Graph &graph) override;

 private:
  profile::Profile profile_;
};

// A machine whose profile was measured for an earlier graph. Returns this profile for every graph, to save the time of
// measuring.
class ProfiledMachine final : public TargetMachine {
 public:
  // `machine` and `profile` must outlive this object.
  ProfiledMachine(TargetMachine &machine, const profile::Profile &profile) : machine_(machine), profile_(profile) {}
  profile::Profile profile(const std::vector<const graph::Graph *> &, const backend::Optimizer &) override {
    return profile_;
  }
  program::Workspace workspace(const graph::Graph &graph) override { return machine_.workspace(graph); }

 private:
  TargetMachine &machine_;
  const profile::Profile &profile_;
};

// The machine that plan_model() or profile_model() is about: the one that the option `hardware` names, or the machine
// at hand if this option is not set. In the second case a NamedMachine opens the device and owns it.
class NamedMachine {
 public:
  // `settings` and `progress` must outlive this object.
  NamedMachine(const Settings &settings, const Log &progress, Earlier earlier = Earlier::reused);
  TargetMachine &operator*() { return *machine_; }
  std::map<std::string, std::uint64_t> scratch() const { return kernels_->scratch(); }  // only for a device at hand

 private:
  std::unique_ptr<backend::Device> device_;
  std::unique_ptr<run::Kernels> kernels_;
  std::unique_ptr<TargetMachine> machine_;
};

// Returns the machine of the option `hardware`: a known name, or a JSON file.
profile::Profile described_machine(const std::string &hardware);

}  // namespace protrain::draft
