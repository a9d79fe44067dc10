#include "run/executor.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace protrain::run {

namespace {

using Time = std::chrono::steady_clock;

std::int64_t nanoseconds_since(Time::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Time::now() - start).count();
}

}  // namespace

Executor::Executor(backend::Device &device, const graph::Graph &graph, const program::Program &program,
                   std::byte *arena)
    : device_(device), graph_(graph), program_(program), arena_(arena) {
  const auto &instructions = program.instructions;
  const auto is_update = [](const program::Instruction &i) { return i.kind == program::Kind::update; };
  first_update_ = static_cast<std::size_t>(std::ranges::find_if(instructions, is_update) - instructions.begin());
  report_.device_peak_bytes = program.arena_bytes;
  report_.instruction_ns.assign(instructions.size(), 0);
}

backend::Kernel &Executor::kernel_of(const program::Instruction &instruction, Kernels &kernels,
                                     const backend::Optimizer &optimizer) const {
  switch (instruction.kind) {
    case program::Kind::run:
      return kernels.of_node(graph_, graph_.node(instruction.node));
    case program::Kind::check:
      // The loss is float32, squared norms are float64.
      return kernels.of_check(instruction.mark == 1 ? DType::f32 : DType::f64, instruction.mark);
    case program::Kind::update:
      break;
  }
  return kernels.of_update(optimizer, element_count(graph_.value(graph_.parameters[instruction.parameter]).type.shape));
}

void Executor::bind(Kernels &kernels, const backend::Optimizer &optimizer) {
  const auto address = [this](program::BufferId id) -> void * {
    return id == program::BufferId::none ? nullptr : arena_ + program_.buffers[index(id)].offset;
  };
  issues_.clear();
  for (const program::Instruction &instruction : program_.instructions) {
    Issue issue{.queue = instruction.queue,
                .kernel = &kernel_of(instruction, kernels, optimizer),
                .inputs = {},
                .outputs = {},
                .scratch = address(instruction.scratch)};
    for (program::BufferId id : instruction.inputs) issue.inputs.push_back(address(id));
    for (program::BufferId id : instruction.outputs) issue.outputs.push_back(address(id));
    issues_.push_back(std::move(issue));
  }
}

void Executor::issue() {
  for (position_ = 0; position_ < issues_.size(); ++position_) {
    const Issue &issue = issues_[position_];
    if (position_ <= first_update_ && cancelled_->load(std::memory_order_relaxed))
      throw Error(Code::cancelled, "", "cancelled before any parameter was updated");
    const Time::time_point start = Time::now();
    device_.launch(issue.queue, *issue.kernel,
                   {.inputs = issue.inputs, .outputs = issue.outputs, .scratch = issue.scratch, .scalars = scalars_});
    report_.instruction_ns[position_] = nanoseconds_since(start);
  }
}

void Executor::run(const backend::StepScalars &scalars, const std::atomic<bool> &cancelled) {
  scalars_ = &scalars;
  cancelled_ = &cancelled;
  const Time::time_point start = Time::now();
  try {
    device_.run_step(&Executor::issue_all, this);
  } catch (Error &error) {
    if (error.code != Code::cancelled) error.text += " [at instruction " + describe(program_, graph_, position_) + "]";
    if (position_ > first_update_) error.aftermath = Aftermath::half_applied;
    throw;
  }
  report_.seconds = static_cast<double>(nanoseconds_since(start)) * 1e-9;
}

}  // namespace protrain::run
