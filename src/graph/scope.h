// Scopes in the names of nodes.
#pragma once

#include <string>

namespace protrain::graph {

// Returns the module that a node belongs to by its name, as PyTorch's older exporter writes names: "layers.0.norm" of
// "/layers.0/norm/Mul". Returns "" for a name without a scope, and for a node outside of any module.
std::string module_of_scope(const std::string &node_name);

}  // namespace protrain::graph
