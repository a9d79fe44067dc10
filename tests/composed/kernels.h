// Runs a graph's kernels one after the other. Every operand has an allocation of exactly its size, so that a sanitizer
// detects accesses outside of the operand.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "composed/reference.h"
#include "run/kernels.h"

namespace protrain::test {

class KernelRun {
 public:
  KernelRun() : device_(backend::open("cpu", 1)) { forget(); }

  // The scratch of every node's kernel.
  program::Workspace workspace(const graph::Graph &graph) { return kernels_->compile(graph); }
  // Arrays of the graph's outputs. Elements that no kernel wrote are NaN.
  std::map<graph::ValueId, graph::Array> run(const graph::Graph &graph, const Data &data);

 private:
  struct AlignedDelete {
    void operator()(std::byte *at) const { ::operator delete (at, std::align_val_t{kAlignment}); }
  };
  using AlignedBytes = std::unique_ptr<std::byte, AlignedDelete>;
  static AlignedBytes block(std::uint64_t bytes);

  void forget() {
    kernels_ = std::make_unique<run::Kernels>(*device_);
    compiled_ = 0;
  }

  static constexpr std::size_t kMostKernels = 100'000;  // kept for later graphs

  std::unique_ptr<backend::Device> device_;
  std::unique_ptr<run::Kernels> kernels_;
  std::size_t compiled_ = 0;
};

}  // namespace protrain::test
