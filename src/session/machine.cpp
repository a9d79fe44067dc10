#include "session/machine.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/threads.h"

namespace protrain::session {

namespace {

using graph::ValueId;

bool on_trial(const Options &options, const char *what) {
  const std::vector<std::string> trials = options.list("trial");
  return std::ranges::find(trials, what) != trials.end();
}

// The disk is waited for by nobody but who needs what it brings. Where the host's cores are the device's, everything
// else runs on the team, in the Program's order; tests ask for a worker a queue, as a device of its own would have.
std::array<bool, kQueueCount> own_workers(const Options &options, const Blueprint &blueprint,
                                          const backend::DeviceInfo &device) {
  std::array<bool, kQueueCount> own{};
  // An asynchronous device runs its queues by itself; the host's are not among them.
  const bool all = !device.asynchronous && (on_trial(options, "workers") || !device.shares_cores);
  for (const Draft::Programs &programs : blueprint.draft.programs)
    for (const program::Program *program : {&programs.step, &programs.accumulate, &programs.evaluation})
      for (const program::Instruction &instruction : program->instructions)
        if (const Queue queue = instruction.queue;
            queue == Queue::disk || (queue == Queue::host && device.asynchronous) || (all && queue != Queue::compute))
          own[static_cast<std::size_t>(instruction.queue)] = true;
  return own;
}

Blueprint draw_up_here(backend::Device &device, run::Kernels &kernels, const Options &options,
                       const onnx_import::Source &source, const Log &log) {
  LiveSite site(device, kernels, options, log);
  return draw_up(options, source, site);
}

}  // namespace

Machine::Machine(const Options &options, const onnx_import::Source &source, const Log &progress)
    : device_(backend::open(options.text("device"), static_cast<int>(options.integer("threads")))),
      kernels_(*device_),
      blueprint_(draw_up_here(*device_, kernels_, options, source, progress)),
      store_(std::make_unique<run::Store>(*device_, run::Store::Room{.bytes = blueprint_.draft.bytes,
                                                                     .state_bytes = blueprint_.draft.state.bytes,
                                                                     .piece_bytes = blueprint_.chosen.plan.piece_bytes,
                                                                     .directory = options.text("offload_dir")})),
      lanes_(std::make_unique<run::Lanes>(own_workers(options, blueprint_, device_->info()))) {
  declare_disk();
  make_executors({.delays = on_trial(options, "delays"), .poison = on_trial(options, "poison")});
  fill();
}

// Chunks' arrays are on the disk whether or not a Program moves them; the rest is what Programs move.
void Machine::declare_disk() {
  const auto declare = [&](const program::Buffer &buffer, std::uint64_t offset, std::uint64_t bytes) {
    if (buffer.tier == Tier::disk) store_->declare_disk(buffer.offset + offset, bytes);
  };
  const program::State &state = blueprint_.draft.state;
  for (const program::State::Chunk &chunk : state.chunks) {
    declare(state.buffers[index(chunk.weights)], 0, state.buffers[index(chunk.weights)].bytes);
    for (program::BufferId array : chunk.optimizer)
      declare(state.buffers[index(array)], 0, state.buffers[index(array)].bytes);
  }
  for (const Draft::Programs &programs : blueprint_.draft.programs)
    for (const program::Program *program : {&programs.step, &programs.accumulate, &programs.evaluation})
      for (const program::Instruction &i : program->instructions)
        if (i.queue == Queue::disk)
          for (const auto *operands : {&i.inputs, &i.outputs})
            declare(program->buffers[index((*operands)[0].buffer)], (*operands)[0].offset, i.bytes);
}

void Machine::make_executors(const run::Trial &trial) {
  const auto make = [&](const graph::Graph &graph, const program::Program &program) {
    if (program.instructions.empty()) return std::unique_ptr<run::Executor>();
    auto executor = std::make_unique<run::Executor>(*device_, graph, program, *store_, *lanes_);
    executor->bind(kernels_, blueprint_.optimizer, trial);
    return executor;
  };
  for (std::size_t b = 0; b < blueprint_.served.size(); ++b) {
    const Served &served = *blueprint_.served[b];
    const Draft::Programs &programs = blueprint_.draft.programs[b];
    executors_.push_back({.step = make(served.training.graph, programs.step),
                          .accumulate = make(served.training.graph, programs.accumulate),
                          .evaluation = make(served.forward, programs.evaluation)});
  }
}

// Memory comes zeroed from the system, which takes longer than copying a file out of its cache: chunks that are read to
// where they rest are shared out. What the disk holds must have been written before it is read.
void Machine::fill() {
  for (std::size_t b = 0; b < blueprint_.served.size(); ++b) fill_values(b);
  std::vector<std::size_t> in_place;
  for (std::size_t c = 0; c < blueprint_.chosen.plan.chunks.size(); ++c)
    if (rests_in_memory(c))
      in_place.push_back(c);
    else
      fill_through_memory(c);
  if (in_place.empty()) return;
  const auto most = static_cast<int>(std::min<std::size_t>(in_place.size(), std::numeric_limits<int>::max()));
  Team readers(std::clamp(device().threads, 1, most), "protrain-read");
  readers.enter([&] {
    readers.run([&](Member &member) {
      const Range mine = share(static_cast<std::int64_t>(in_place.size()), 1, member);
      for (std::int64_t i = mine.begin; i < mine.end; ++i) {
        const std::size_t c = in_place[static_cast<std::size_t>(i)];
        read_weights(c, store_->address(weights(c)));
      }
    });
  });
}

void Machine::fill_values(std::size_t binding) {
  const graph::Graph &graph = blueprint_.served[binding]->training.graph;
  std::vector<std::byte> dense;
  for (const auto &[id, buffer] : blueprint_.draft.state.of_value[binding]) {
    const graph::Value &value = graph.value(id);
    if (value.origin != graph::Origin::constant) continue;
    dense.resize(byte_count(value.type.dtype, value.type.shape));
    value.array.write_dense(dense.data());
    store_->write(blueprint_.draft.state.buffers[index(buffer)], 0, dense.data(), dense.size());
  }
}

const program::Buffer &Machine::weights(std::size_t chunk) const {
  const program::State &state = blueprint_.draft.state;
  return state.buffers[index(state.chunks[chunk].weights)];
}

// Where the file's bytes can be read to at once.
bool Machine::rests_in_memory(std::size_t chunk) const {
  const Tier tier = weights(chunk).tier;
  return tier == Tier::host || (tier == Tier::device && device().shares_memory);
}

void Machine::read_weights(std::size_t chunk, std::byte *to) const {
  const graph::Graph &graph = blueprint_.first().training.graph;
  for (std::size_t p : blueprint_.chosen.plan.chunks[chunk].parameters)
    blueprint_.file->read(blueprint_.in_file(graph.value(graph.parameters[p]).name),
                          to + blueprint_.draft.state.parameters[p].weights_at);
}

void Machine::fill_through_memory(std::size_t c) {
  const program::State &state = blueprint_.draft.state;
  const program::Buffer &weights = this->weights(c);
  const graph::Graph &graph = blueprint_.first().training.graph;
  std::byte *at = store_->staging(weights.bytes);
  read_weights(c, at);
  if (weights.tier == Tier::device) return store_->write(weights, 0, at, weights.bytes);
  store_->write_disk(weights.offset, at, weights.bytes);
  for (program::BufferId array : state.chunks[c].optimizer)
    store_->clear_disk(state.buffers[index(array)].offset, state.buffers[index(array)].bytes);
  if (state.chunks[c].gradient == program::BufferId::none) return;
  for (std::size_t p : blueprint_.chosen.plan.chunks[c].parameters) {
    if (!state.parameters[p].trained) continue;
    const graph::Type &type = graph.value(blueprint_.first().training.gradients[p]).type;
    const program::Operand home = state.gradient(p);
    store_->clear_disk(state.buffers[index(home.buffer)].offset + home.offset, byte_count(type.dtype, type.shape));
  }
}

void Machine::write_input(program::BufferId buffer, const void *data, std::uint64_t bytes) {
  store_->write(blueprint_.draft.state.buffers[index(buffer)], 0, data, bytes);
}

void Machine::read_result(const program::Program &program, program::BufferId id, void *out, std::size_t bytes) {
  store_->read(program.buffers[index(id)], 0, out, bytes);
}

std::uint32_t Machine::status() {
  std::uint32_t status = 0;
  store_->read(blueprint_.draft.state.buffers[index(blueprint_.draft.state.status)], 0, &status, sizeof status);
  return status;
}

void Machine::set_status(std::uint32_t status) {
  store_->write(blueprint_.draft.state.buffers[index(blueprint_.draft.state.status)], 0, &status, sizeof status);
}

program::Operand Machine::array(std::size_t p, std::size_t which) const {
  return which == 0 ? blueprint_.draft.state.weights(p) : blueprint_.draft.state.optimizer(p, which - 1);
}

void Machine::read_array(std::size_t p, std::size_t which, std::uint64_t offset, std::span<std::byte> out) {
  const program::Operand at = array(p, which);
  store_->read(blueprint_.draft.state.buffers[index(at.buffer)], at.offset + offset, out.data(), out.size());
}

void Machine::write_array(std::size_t p, std::size_t which, std::uint64_t offset, std::span<const std::byte> in) {
  const program::Operand at = array(p, which);
  store_->write(blueprint_.draft.state.buffers[index(at.buffer)], at.offset + offset, in.data(), in.size());
}

// Gradients on disk are arrays of their own.
void Machine::read_gradient(std::size_t p, std::span<std::byte> out) {
  if (const program::BufferId kept = blueprint_.draft.state.kept[p]; kept != program::BufferId::none)
    return store_->read(blueprint_.draft.state.buffers[index(kept)], 0, out.data(), out.size());
  const program::Operand at = blueprint_.draft.state.gradient(p);
  const program::Buffer &buffer = blueprint_.draft.state.buffers[index(at.buffer)];
  if (buffer.tier != Tier::disk) return store_->read(buffer, at.offset, out.data(), out.size());
  store_->read_disk(buffer.offset + at.offset, out.data(), out.size());
}

}  // namespace protrain::session
