// GroupNorms: the norm of the gradients of each group of parameters, from the squared norms that alarms read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "draft/parameter_groups.h"
#include "session/step_alarms.h"

namespace protrain::session {

class GroupNorms {
 public:
  GroupNorms() = default;
  // Groups of which no parameter is in `trained` are left out.
  GroupNorms(const draft::NormGroups &groups, const std::vector<StepAlarms::Parameter> &trained);

  // Takes up the squared norms of a step. `factor` is the number by which its gradients are too large.
  void take(std::uint64_t step, const std::vector<StepAlarms::Parameter> &trained, double factor);

  std::uint64_t step() const { return step_; }  // the last one that was taken up, or 0
  Json json() const;                            // by the group's name: its norm in that step

 private:
  struct Group {
    std::string name;
    double norm = 0;
  };
  std::vector<Group> groups_;
  std::vector<std::size_t> of_trained_;  // per trained parameter
  std::uint64_t step_ = 0;
};

}  // namespace protrain::session
