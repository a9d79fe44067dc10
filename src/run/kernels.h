// Kernels: every kernel that a graph's nodes need, compiled once per distinct (operator, attributes, types). Nodes
// whose errors depend on values have kernels of their own.
#pragma once

#include <compare>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "program/program.h"

namespace protrain::run {

class Kernels {
 public:
  explicit Kernels(backend::Device &device) : device_(device) {}

  // Compiles all kernels that `graph` needs and returns the scratch of each node. Throws Code::unsupported for
  // operators without a kernel on the device; the one error lists them all, with node names.
  program::Workspace compile(const graph::Graph &graph);

  backend::Kernel &of_node(const graph::Graph &graph, const graph::Node &node);
  // Sets which algorithm each node's kernel uses, also for kernels that are compiled already. `variants` has the number
  // of the algorithm under the node's ops::signature. Kernels without an entry use number 0.
  void use_variants(std::map<std::string, std::uint64_t> variants);

  backend::Kernel &of_check(DType dtype, const std::vector<program::StatusWord> &words);
  backend::Kernel &of_update(const backend::UpdateRequest &request);

  // Returns how many bytes of scratch each compiled kernel needs. The kernel of a node is listed under the node's
  // ops::signature.
  std::map<std::string, std::uint64_t> scratch() const;

 private:
  struct Key {
    std::string signature;
    std::string node = {};  // the name of the only node that uses the kernel; "": any node may use it
    auto operator<=>(const Key &) const = default;
  };

  void use_variant(const std::string &signature, backend::Kernel &kernel) const;

  backend::Device &device_;
  std::map<std::string, std::uint64_t> variants_;
  std::map<Key, std::unique_ptr<backend::Kernel>> kernels_;
};

}  // namespace protrain::run
