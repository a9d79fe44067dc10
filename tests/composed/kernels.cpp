#include "composed/kernels.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace protrain::test {

using graph::Array;
using graph::ValueId;

KernelRun::AlignedBytes KernelRun::block(std::uint64_t bytes) {
  return AlignedBytes(static_cast<std::byte *>(::operator new (bytes, std::align_val_t{kAlignment})));
}

std::map<ValueId, Array> KernelRun::run(const graph::Graph &graph, const Data &data) {
  if ((compiled_ += graph.node_count()) > kMostKernels) forget();
  std::vector<AlignedBytes> blocks;
  std::vector<std::byte *> at(graph.value_count(), nullptr);
  const auto place = [&](ValueId id) {
    const graph::Type &type = graph.value(id).type;
    const std::uint64_t bytes = byte_count(type.dtype, type.shape);
    blocks.push_back(block(bytes));
    std::memset(blocks.back().get(), 0xFF, bytes);
    return at[index(id)] = blocks.back().get();
  };
  const auto read = [&](ValueId id) -> void * {
    if (id == ValueId::none) return nullptr;
    if (at[index(id)] != nullptr) return at[index(id)];
    const graph::Value &value = graph.value(id);
    (value.origin == graph::Origin::constant ? value.array : data.at(id)).write_dense(place(id));
    return at[index(id)];
  };
  struct Launch {
    backend::Kernel *kernel;
    std::vector<void *> inputs, outputs;
    void *scratch;
  };
  std::vector<Launch> list;
  for (const graph::Node &node : graph.nodes()) {
    if (node.op == "Reshape") {  // an alias of the same memory
      at[index(node.outputs[0])] = static_cast<std::byte *>(read(node.inputs[0]));
      continue;
    }
    Launch launched{&kernels_->of_node(graph, node), {}, {}, nullptr};
    for (ValueId in : node.inputs) launched.inputs.push_back(read(in));
    for (ValueId out : node.outputs) launched.outputs.push_back(out == ValueId::none ? nullptr : place(out));
    blocks.push_back(block(launched.kernel->scratch_bytes));
    launched.scratch = blocks.back().get();
    list.push_back(std::move(launched));
  }
  struct Issue {
    backend::Device *device;
    std::vector<Launch> *list;
  } issue{device_.get(), &list};
  device_->run_step(
      [](void *argument) {
        static constexpr backend::StepScalars kScalars;
        const auto *issue = static_cast<Issue *>(argument);
        for (const Launch &l : *issue->list)
          issue->device->launch(Queue::compute, *l.kernel, {l.inputs, l.outputs, l.scratch, &kScalars});
      },
      &issue);
  std::map<ValueId, Array> results;
  for (ValueId id : graph.outputs) {
    const graph::Type &type = graph.value(id).type;
    const auto *from = static_cast<const std::byte *>(read(id));
    results[id] = Array::dense(type, std::vector<std::byte>(from, from + byte_count(type.dtype, type.shape)));
  }
  return results;
}

}  // namespace protrain::test
