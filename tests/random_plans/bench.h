// Bench has a session's state and memory, and an executor that runs any Program on them.
#pragma once

#include <atomic>

#include "backend/optimizer_numbers.h"
#include "draft/loaded_model.h"
#include "random_plan.h"
#include "run/executor.h"
#include "session/machine.h"

namespace protrain::test {

class Bench {
 public:
  // The executor computes on `device`. Memory and state are made as for a session, by `memory`.
  Bench(const std::string &model, Pairs more, std::unique_ptr<backend::Device> device = backend::open("cpu", 2),
        std::unique_ptr<backend::Device> memory = backend::open("cpu", 2))
      : machine_(draft::settings_of(options(model, std::move(more))), fixture(model + ".onnx"), std::move(memory),
                 session::Channels::over(comm::open({})), nullptr),
        device_(std::move(device)),
        kernels_(*device_) {}

  const draft::Draft &draft() const { return machine_.draft(); }
  const program::Program &program() const { return draft().programs.variants[0].step; }
  run::Store &store() { return machine_.store(); }

  // Loads `program` instead of the session's own, and resets the state. If `workers` is true, every queue except
  // compute has a worker thread. An asynchronous device ignores `workers`: its queues of host and disk have workers,
  // the others have none.
  void load(const program::Program &program, bool workers, const run::FaultInjection &trial = {}) {
    executor_.reset();
    program_ = program;
    PerQueue<bool> own{};
    for (const program::Instruction &instruction : program.instructions)
      own[instruction.queue] = device_->info().asynchronous
                                   ? instruction.queue == Queue::host || is_of_disk(instruction.queue)
                                   : workers && instruction.queue != Queue::compute;
    lanes_ = std::make_unique<run::QueueWorkers>(own);
    executor_ = std::make_unique<run::Executor>(*device_, graph(), program_, store(), *lanes_, *channel);
    executor_->bind(kernels_, draft().settings.optimizer, trial);
    reset();
  }

  // Sets weights and optimizer state to those of a new session. Writes each array as a whole, because a piece on disk
  // that a faulty Program has damaged cannot be rewritten in part.
  void reset() {
    const program::State &state = draft().programs.state;
    for (const program::State::Chunk &chunk : state.chunks)
      for (program::BufferId array : chunk.optimizer) {
        const program::Buffer &buffer = state.buffers[index(array)];
        store().write(buffer, 0, std::vector<std::byte>(buffer.bytes).data(), buffer.bytes);
      }
    machine_.parameters().fill(1, true, nullptr);
    steps_ = 0;
  }

  void feed() {
    static const std::vector<std::int64_t> ids = load_tokens("input_ids.npy"), labels = load_tokens("labels.npy");
    for (graph::ValueId input : graph().inputs) {
      const auto &values = graph().value(input).name == "labels" ? labels : ids;
      machine_.write_input(draft().programs.state.of_value[0].at(input), batch(values, steps_),
                           std::size_t{kBatch} * kSequence * sizeof(std::int64_t));
    }
    machine_.set_status({});
  }

  void warm_up(std::set<const backend::Kernel *> &warm) {
    machine_.set_status(program::StatusWord::loss());
    executor_->warm_up(warm);
  }

  // Runs a step on the inputs that were set.
  void step(bool timed = true) {
    backend::StepScalars scalars = {.update = backend::numbers_of(draft().settings.optimizer, draft().groups.groups,
                                                                  1e-2, static_cast<double>(++steps_))};
    scalars.step = static_cast<std::uint64_t>(steps_);
    scalars.seed = 7;
    executor_->run(scalars, cancelled, timed);
  }

  const run::Report &report() const { return executor_->report(); }

  // True if the last step's loss and norm were finite.
  bool finite() { return machine_.status().finite(); }
  void note_step(Trace &trace) {
    float loss = 0;
    double norm = 0;
    machine_.read_result(program_, program_.loss, &loss, sizeof loss);
    machine_.read_result(program_, program_.norm, &norm, sizeof norm);
    trace.losses.push_back(std::bit_cast<std::uint32_t>(loss));
    trace.norms.push_back(std::bit_cast<std::uint64_t>(norm));
  }
  void note_weights(Trace &trace) {
    for (graph::ValueId id : graph().parameters) {
      const std::size_t p = trace.parameters.size();
      std::vector<float> &values =
          trace.parameters.emplace_back(static_cast<std::size_t>(element_count(graph().value(id).type.shape)));
      machine_.parameters().read(p, 0, 0, std::as_writable_bytes(std::span(values)));
    }
  }

  // Runs `steps` steps and returns their trace. If a step is not finite, the trace ends before that step and has no
  // weights.
  Trace train(int steps) {
    Trace trace;
    for (int i = 0; i < steps; ++i) {
      feed();
      step();
      if (!finite()) return trace;
      note_step(trace);
    }
    note_weights(trace);
    return trace;
  }

  const graph::Graph &graph() const { return draft().first().training.graph; }
  std::atomic<bool> cancelled{false};
  std::shared_ptr<comm::Channel> channel = comm::open({});  // the executor's; load() takes it

 private:
  static draft::Options options(const std::string &model, Pairs more) {
    Pairs pairs = base_options(model);
    pairs.insert(pairs.end(), more.begin(), more.end());
    return options_with(pairs);
  }

  session::Machine machine_;
  std::unique_ptr<backend::Device> device_;
  run::Kernels kernels_;
  program::Program program_;
  std::unique_ptr<run::QueueWorkers> lanes_;
  std::unique_ptr<run::Executor> executor_;
  int steps_ = 0;
};

// The training graph that a session makes from a model. Plans are drawn for it.
inline graph::Graph training_graph(const std::string &model) {
  draft::LoadedModel loaded =
      draft::load_model(draft::settings_of(options_with(base_options(model))), fixture(model + ".onnx"));
  return grad::build(std::move(loaded.prepared.graph), loaded.loss).graph;
}

// The results of a session that is given neither a plan nor a budget.
inline Trace unlimited(const std::string &model, int steps) {
  Bench bench(model, {});
  bench.load(bench.program(), false);
  return bench.train(steps);
}

}  // namespace protrain::test
