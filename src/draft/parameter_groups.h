// Parameter groups: which trained parameters share a learning rate and a decay.
#pragma once

#include <vector>

#include "backend/backend.h"
#include "draft/settings.h"
#include "graph/graph.h"

namespace protrain::draft {

struct ParameterGroups {
  std::vector<backend::Group> groups;     // the first is for parameters about which no option says anything
  std::vector<std::size_t> of_parameter;  // per parameter of the graph: its group
};

// Sorts the parameters of a prepared graph into groups. `weight_decay` is the decay where the settings say nothing
// else. Code::arg if a pattern matches no trained parameter or if the graph has no repeated layers for layer_decay,
// Code::limit if there are more than backend::kMostGroups groups.
ParameterGroups parameter_groups(const GroupSettings &settings, double weight_decay, const graph::Graph &graph);

}  // namespace protrain::draft
