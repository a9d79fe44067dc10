#include "graph/scope.h"

#include <algorithm>

namespace protrain::graph {

std::string module_of_scope(const std::string &node_name) {
  const std::size_t last = node_name.rfind('/');
  if (!node_name.starts_with('/') || last == 0) return "";
  std::string module = node_name.substr(1, last - 1);
  std::ranges::replace(module, '/', '.');
  return module;
}

}  // namespace protrain::graph
