// Site: the machine that a session is drawn up for, the one at hand or one that is only described.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "measure/measure.h"
#include "profile/profile.h"
#include "run/kernels.h"
#include "session/options.h"
#include "session/session.h"

namespace protrain::session {

// The device that the options name; Code::unsupported where it does not compute in their precision.
std::unique_ptr<backend::Device> open_device(const Options &options);
// Code::unsupported where TF32 is asked for and nothing is computed in it.
void require_tf32(const Options &options);

class Site {
 public:
  virtual ~Site() = default;
  // Capacities, and rates; kernel times too where they can be measured.
  virtual profile::Profile profile(const std::vector<const graph::Graph *> &graphs,
                                   const backend::Optimizer &optimizer) = 0;
  // Code::unsupported lists every operator that the site has no kernel for.
  virtual program::Workspace workspace(const graph::Graph &graph) = 0;
};

// The device at hand. What it has not measured in an earlier session it measures, and tells `log` how far it is.
class LiveSite final : public Site {
 public:
  // `anew`: what was measured before does not count.
  LiveSite(backend::Device &device, run::Kernels &kernels, const Options &options, const Log &log, bool anew = false);
  profile::Profile profile(const std::vector<const graph::Graph *> &graphs,
                           const backend::Optimizer &optimizer) override;
  program::Workspace workspace(const graph::Graph &graph) override;

 private:
  backend::Device &device_;
  run::Kernels &kernels_;
  const Options &options_;
  const Log &log_;
  const bool anew_;
};

// A machine by its description alone.
class PaperSite final : public Site {
 public:
  explicit PaperSite(profile::Profile profile) : profile_(std::move(profile)) {}
  profile::Profile profile(const std::vector<const graph::Graph *> &, const backend::Optimizer &) override {
    return profile_;
  }
  program::Workspace workspace(const graph::Graph &graph) override;

 private:
  profile::Profile profile_;
};

// What the option `hardware` says: a known name, or a JSON file.
profile::Profile described_machine(const std::string &hardware);

}  // namespace protrain::session
