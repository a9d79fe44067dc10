// Two ways to group parameters. In ParameterGroups, the parameters of a group share a learning rate and a decay. In
// NormGroups, the gradients of a group have one norm together.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "draft/settings.h"
#include "graph/graph.h"

namespace protrain::draft {

struct ParameterGroups {
  std::vector<backend::Group> groups;     // the first is for parameters about which no option says anything
  std::vector<std::size_t> of_parameter;  // per parameter of the graph: its group
};

// Sorts the parameters of a prepared graph into groups. `weight_decay` is the decay of parameters for which the
// settings give no other. Code::arg if a pattern in the settings matches no trained parameter, or if layer_decay is set
// but the graph has no repeated layers. Code::limit if there are more than backend::kMostGroups groups.
ParameterGroups parameter_groups(const GroupSettings &settings, double weight_decay, const graph::Graph &graph);

// Groups of parameters. A session reports one norm for the gradients of each group.
struct NormGroups {
  std::vector<std::string> names;         // in the order of forward, or of the options
  std::vector<std::size_t> of_parameter;  // per parameter of the graph: its group
};

// Returns the groups whose norms are reported. There are three cases:
//   - The option `group` is set: one group for each of its patterns, and the group "*" for all other parameters.
//   - It is not set, and the graph has repeated layers: one group for each layer, the group "before" for parameters
//     before the first layer, and the group "after" for all others.
//   - It is not set, and the graph has no layers: the group "*" for all parameters.
// A group may have no parameters.
NormGroups norm_groups(const GroupSettings &settings, const graph::Graph &graph);

}  // namespace protrain::draft
