// GroupNorms: the norm of the gradients of each group of parameters, computed from the parameters' squared norms in
// StepAlarms.
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
  // Keeps the groups that have at least one parameter in `trained`, and leaves out all others.
  GroupNorms(const draft::NormGroups &groups, const std::vector<StepAlarms::Parameter> &trained);

  // Computes the norms of the groups from the squared norms of a step's gradients. Divides the norms by `factor`,
  // because the gradients are larger by this factor.
  void take(std::uint64_t step, const std::vector<StepAlarms::Parameter> &trained, double factor);

  std::uint64_t step() const { return step_; }  // the last step given to take(), or 0
  Json json() const;                            // the norm of each group in that step, by the group's name

 private:
  struct Group {
    std::string name;
    double norm = 0;
  };
  std::vector<Group> groups_;
  std::vector<std::size_t> of_trained_;  // the position in groups_, per trained parameter
  std::uint64_t step_ = 0;
};

}  // namespace protrain::session
