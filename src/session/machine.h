// Machine: everything that runs a draft. It has the device, the kernels, the memory of all tiers with the state in it,
// the workers, and an executor for each Program.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "run/executor.h"
#include "session/parameters.h"
#include "session/ranks.h"
#include "session/report.h"

namespace protrain::session {

class Machine {
 public:
  // Compiles, allocates, and fills the state: weights from the file, constants, zeros for the optimizer.
  Machine(const draft::Settings &settings, const onnx_import::ModelSource &source,
          std::unique_ptr<backend::Device> device, Channels channels, const draft::Log &progress);

  // The executors of one shape variant.
  struct Executors {
    std::unique_ptr<run::Executor> step, accumulate, evaluation, prediction;
  };

  const backend::DeviceInfo &device() const { return device_->info(); }
  const draft::Draft &draft() const { return draft_; }
  const Executors &executors(std::size_t variant) const { return executors_[variant]; }
  // Returns the executor that runs the Updates that a step left to the next step, or nullptr if the plan defers no
  // Updates.
  run::Executor *settlement() const { return settlement_.get(); }
  run::Store &store() { return *store_; }
  const run::Store &store() const { return *store_; }
  MemoryOutsideArena memory() const;

  void write_input(program::BufferId buffer, const void *data, std::uint64_t bytes);
  // Copies bytes of an output of a Program that has just run.
  void read_output(const program::Program &program, const program::Operand &output, void *out, std::uint64_t bytes);
  // Copies element number `at` of the Program's buffer `id` to `out`. An element has `bytes` bytes.
  void read_result(const program::Program &program, program::BufferId id, void *out, std::size_t bytes,
                   std::size_t at = 0);
  program::StatusWord status();
  void set_status(program::StatusWord status);
  // Notes whether the last step left Updates to the Program that runs next. Only plans that defer Updates need this
  // call.
  void set_held(bool held);

  const Channels &channels() const { return channels_; }
  // Returns the memory of the frozen weights, or nullptr if they lie in the device's own memory.
  Parameters &parameters() { return *parameters_; }
  const Parameters &parameters() const { return *parameters_; }

 private:
  draft::Draft compile(const draft::Settings &settings, const onnx_import::ModelSource &source,
                       const draft::Log &progress);
  draft::Draft compile_once(const draft::Settings &settings, const onnx_import::ModelSource &source,
                            const draft::Log &progress);
  std::optional<draft::Draft> compile_on_shared_base(const draft::Settings &settings,
                                                     const onnx_import::ModelSource &source,
                                                     const draft::Log &progress);
  void declare_disk();
  void make_executors(const run::FaultInjection &faults);
  void warm_up();
  void fill_values(const graph::Graph &graph, std::size_t binding);

  std::unique_ptr<backend::Device> device_;
  Channels channels_;  // destroyed before the device, whose memory they may use
  run::Kernels kernels_;
  std::uint64_t base_hash_ = 0;              // hash_of_base() of the draft
  std::shared_ptr<FrozenBase> frozen_base_;  // nullptr if the frozen weights lie in the device's own memory
  draft::Draft draft_;
  std::unique_ptr<run::Store> store_;
  std::unique_ptr<Parameters> parameters_;
  std::unique_ptr<run::QueueWorkers> workers_;
  std::vector<Executors> executors_;
  std::unique_ptr<run::Executor> settlement_;
};

}  // namespace protrain::session
