#include "session/group_norms.h"

#include <cmath>
#include <limits>

namespace protrain::session {

GroupNorms::GroupNorms(const draft::NormGroups &groups, const std::vector<StepAlarms::Parameter> &trained) {
  constexpr std::size_t kEmpty = std::numeric_limits<std::size_t>::max();
  std::vector<std::size_t> place(groups.names.size(), kEmpty);
  for (const StepAlarms::Parameter &parameter : trained) place[groups.of_parameter[parameter.position]] = 0;
  for (std::size_t g = 0; g < place.size(); ++g) {
    if (place[g] == kEmpty) continue;
    place[g] = groups_.size();
    groups_.push_back({groups.names[g]});
  }
  for (const StepAlarms::Parameter &parameter : trained)
    of_trained_.push_back(place[groups.of_parameter[parameter.position]]);
}

void GroupNorms::take(std::uint64_t step, const std::vector<StepAlarms::Parameter> &trained, double factor) {
  step_ = step;
  for (Group &group : groups_) group.norm = 0;
  for (std::size_t i = 0; i < trained.size(); ++i) groups_[of_trained_[i]].norm += trained[i].squared_norm;
  for (Group &group : groups_) group.norm = std::sqrt(group.norm) / std::abs(factor);
}

Json GroupNorms::json() const {
  Json json = Json::object();
  if (step_ == 0) return json;
  for (const Group &group : groups_) json[group.name] = group.norm;
  return json;
}

}  // namespace protrain::session
