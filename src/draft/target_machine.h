// TargetMachine: the machine that a draft is made for, the one at hand or one that is only described.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "draft/log.h"
#include "draft/settings.h"
#include "measure/measure.h"
#include "profile/profile.h"
#include "run/kernels.h"

namespace protrain::draft {

// The device that the settings name; Code::unsupported where it does not compute in their precision.
std::unique_ptr<backend::Device> open_device(const Settings &settings);
// Code::unsupported where the device does not compute in that precision.
void require_precision(const backend::DeviceInfo &device, DType precision);

class TargetMachine {
 public:
  virtual ~TargetMachine() = default;
  // Capacities, and rates; kernel times too where they can be measured.
  virtual profile::Profile profile(const std::vector<const graph::Graph *> &graphs,
                                   const backend::Optimizer &optimizer) = 0;
  // Code::unsupported lists every operator that the machine has no kernel for.
  virtual program::Workspace workspace(const graph::Graph &graph) = 0;
};

// The device at hand. What it has not measured in an earlier session it measures, and tells `log` how far it is.
class LocalMachine final : public TargetMachine {
 public:
  // All must outlive it. `anew`: what was measured before does not count.
  LocalMachine(backend::Device &device, run::Kernels &kernels, const Settings &settings, const Log &log,
               bool anew = false);
  profile::Profile profile(const std::vector<const graph::Graph *> &graphs,
                           const backend::Optimizer &optimizer) override;
  program::Workspace workspace(const graph::Graph &graph) override;

 private:
  backend::Device &device_;
  run::Kernels &kernels_;
  const Settings &settings_;
  const Log &log_;
  const bool anew_;
};

// A machine by its description alone.
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

// A machine whose profile is there already: no time is spent on measuring it for another graph.
class ProfiledMachine final : public TargetMachine {
 public:
  // Both must outlive it.
  ProfiledMachine(TargetMachine &machine, const profile::Profile &profile) : machine_(machine), profile_(profile) {}
  profile::Profile profile(const std::vector<const graph::Graph *> &, const backend::Optimizer &) override {
    return profile_;
  }
  program::Workspace workspace(const graph::Graph &graph) override { return machine_.workspace(graph); }

 private:
  TargetMachine &machine_;
  const profile::Profile &profile_;
};

// The machine that the settings name for a look alone, with a device behind it where it is the one at hand.
class NamedMachine {
 public:
  // `settings` and `progress` must outlive it. `anew`: as for a LocalMachine.
  NamedMachine(const Settings &settings, const Log &progress, bool anew = false);
  TargetMachine &operator*() { return *machine_; }
  std::map<std::string, std::uint64_t> scratch() const { return kernels_->scratch(); }  // of a device at hand

 private:
  std::unique_ptr<backend::Device> device_;
  std::unique_ptr<run::Kernels> kernels_;
  std::unique_ptr<TargetMachine> machine_;
};

// What the option `hardware` says: a known name, or a JSON file.
profile::Profile described_machine(const std::string &hardware);

}  // namespace protrain::draft
