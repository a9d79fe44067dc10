// Executor: runs one Program. Everything it needs is resolved when it is made; a run is one loop over a list of
// launches.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "backend/backend.h"
#include "run/kernels.h"

namespace protrain::run {

// What happened in the last run.
struct Report {
  double seconds = 0;
  std::uint64_t device_peak_bytes = 0;
  std::uint64_t host_peak_bytes = 0;
  std::vector<std::int64_t> instruction_ns;  // per instruction of the Program
};

class Executor {
 public:
  // `graph` and `program` must outlive it; `arena` holds program.arena_bytes.
  Executor(backend::Device &device, const graph::Graph &graph, const program::Program &program, std::byte *arena);

  // Resolves kernels and addresses.
  void bind(Kernels &kernels, const backend::Optimizer &optimizer);

  // Errors name the instruction; their aftermath tells whether an Update had begun. A cancel that is seen before the
  // first Update stops the run, a later one does not.
  void run(const backend::StepScalars &scalars, const std::atomic<bool> &cancelled);

  const Report &report() const { return report_; }

 private:
  struct Issue {
    Queue queue;
    backend::Kernel *kernel;
    std::vector<void *> inputs, outputs;
    void *scratch;
  };

  static void issue_all(void *self) { static_cast<Executor *>(self)->issue(); }
  void issue();
  backend::Kernel &kernel_of(const program::Instruction &instruction, Kernels &kernels,
                             const backend::Optimizer &optimizer) const;

  backend::Device &device_;
  const graph::Graph &graph_;
  const program::Program &program_;
  std::byte *arena_;
  std::vector<Issue> issues_;
  std::size_t first_update_ = 0;
  std::size_t position_ = 0;  // the instruction being issued
  const backend::StepScalars *scalars_ = nullptr;
  const std::atomic<bool> *cancelled_ = nullptr;
  Report report_;
};

}  // namespace protrain::run
