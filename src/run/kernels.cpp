#include "run/kernels.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "ops/op.h"

namespace protrain::run {

namespace {

graph::Type type_of(const graph::Graph &graph, graph::ValueId id) {
  return id == graph::ValueId::none ? graph::Type{} : graph.value(id).type;
}

backend::KernelRequest request(const graph::Graph &graph, const graph::Node &node) {
  backend::KernelRequest request{.node = node, .inputs = {}, .outputs = {}};
  for (graph::ValueId in : node.inputs) request.inputs.push_back(type_of(graph, in));
  for (graph::ValueId out : node.outputs) request.outputs.push_back(type_of(graph, out));
  return request;
}

}  // namespace

backend::Kernel &Kernels::of_node(const graph::Graph &graph, const graph::Node &node) {
  const std::string signature = ops::signature(graph, node);
  std::unique_ptr<backend::Kernel> &kernel = kernels_[{signature, ops::checks_values(node) ? node.name : ""}];
  if (!kernel) {
    kernel = device_.compile(request(graph, node));
    use_variant(signature, *kernel);
  }
  return *kernel;
}

void Kernels::use_variants(std::map<std::string, std::uint64_t> variants) {
  variants_ = std::move(variants);
  for (const auto &[key, kernel] : kernels_)
    if (kernel) use_variant(key.signature, *kernel);
}

void Kernels::use_variant(const std::string &signature, backend::Kernel &kernel) const {
  const auto chosen = variants_.find(signature);
  const auto count = static_cast<std::uint64_t>(kernel.variant_count());
  kernel.use_variant(chosen != variants_.end() && chosen->second < count ? static_cast<int>(chosen->second) : 0);
}

backend::Kernel &Kernels::of_check(DType dtype, const std::vector<program::StatusWord> &words) {
  std::vector<std::uint32_t> bits;
  for (const program::StatusWord word : words) bits.push_back(word.bits());
  std::unique_ptr<backend::Kernel> &kernel =
      kernels_[{fmt::format("check {} {}", name_of(dtype), fmt::join(bits, " "))}];
  if (!kernel) kernel = device_.compile_check(dtype, bits);
  return *kernel;
}

backend::Kernel &Kernels::of_update(const backend::UpdateRequest &request) {
  std::unique_ptr<backend::Kernel> &kernel = kernels_[{fmt::format(
      "update{} {} {} {} of {}{}", request.optimizer.kind == backend::Optimizer::Kind::assign ? " of state" : "",
      name_of(request.weights), name_of(request.gradient), fmt::join(request.elements, " "),
      fmt::join(request.groups, " "), request.earlier ? " earlier" : "")}];
  if (!kernel) kernel = device_.compile_update(request);
  return *kernel;
}

std::map<std::string, std::uint64_t> Kernels::scratch() const {
  std::map<std::string, std::uint64_t> scratch;
  for (const auto &[key, kernel] : kernels_)
    if (kernel) scratch[key.signature] = kernel->scratch_bytes;
  return scratch;
}

program::Workspace Kernels::compile(const graph::Graph &graph) {
  program::Workspace workspace;
  std::vector<std::string> missing;
  for (const graph::Node &node : graph.nodes()) {
    workspace.nodes.push_back(0);
    if (!ops::has_kernel(node)) continue;
    try {
      workspace.nodes.back() = of_node(graph, node).scratch_bytes;
    } catch (const Error &error) {
      if (error.code != Code::unsupported) throw;
      missing.push_back(fmt::format("{} ({}): {}", node.op, node.name, error.text));
    }
  }
  require(missing.empty(), Code::unsupported, device_.info().name, "{} operators have no kernel on {}: {}",
          missing.size(), device_.info().name, fmt::join(missing, "; "));
  return workspace;
}

}  // namespace protrain::run
