// Groups of parameters: those that share a learning rate and a decay, and those whose gradients have one norm.
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

// Sorts the parameters of a prepared graph into groups. `weight_decay` is the decay where the settings say nothing
// else. Code::arg if a pattern matches no trained parameter or if the graph has no repeated layers for layer_decay,
// Code::limit if there are more than backend::kMostGroups groups.
ParameterGroups parameter_groups(const GroupSettings &settings, double weight_decay, const graph::Graph &graph);

// The parameters whose gradients have one norm.
struct NormGroups {
  std::vector<std::string> names;         // in the order of forward, or of the options
  std::vector<std::size_t> of_parameter;  // per parameter of the graph: its group
};

// With the option group, each of its patterns has a group, and the other parameters have the group "*". Without it,
// each repeated layer has one, between the groups "before" and "after"; all parameters are in "*" if there are no
// layers. Groups may be empty.
NormGroups norm_groups(const GroupSettings &settings, const graph::Graph &graph);

}  // namespace protrain::draft
