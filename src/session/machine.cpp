#include "session/machine.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "draft/compile.h"
#include "draft/ranked_machine.h"

namespace protrain::session {

namespace {

// Returns the queues that have a worker of their own. Each queue of the disk has one, so that only the users of a disk
// read wait for this read. The queue comm has one, because an exchange waits for other ranks. If device and host share
// their cores, all other queues run on the team, in the Program's order. Tests can ask for more workers even then.
PerQueue<bool> own_workers(const draft::Draft &draft, const backend::DeviceInfo &device) {
  // An asynchronous device runs its queues itself, so they need no workers. The queue host is not among them.
  const bool all = !device.asynchronous && (draft.settings.test_modes.workers || !device.shares_cores);
  const auto has_worker = [&](Queue queue) {
    if (is_of_disk(queue) || queue == Queue::comm) return true;
    if (queue == Queue::host && device.asynchronous) return true;
    return all && queue != Queue::compute;
  };
  PerQueue<bool> own{};
  draft.programs.each([&](const program::Program &program) {
    for (const program::Instruction &instruction : program.instructions)
      if (has_worker(instruction.queue)) own[instruction.queue] = true;
  });
  return own;
}

}  // namespace

Machine::Machine(const draft::Settings &settings, const onnx_import::ModelSource &source,
                 std::unique_ptr<backend::Device> opened, Channels channels, const draft::Log &progress)
    : device_(std::move(opened)),
      channels_(std::move(channels)),
      kernels_(*device_),
      draft_(compile(settings, source, progress)),
      store_(std::make_unique<run::Store>(
          *device_, run::Store::Room{.bytes = draft_.programs.bytes,
                                     .state_bytes = draft_.programs.state.bytes,
                                     .frozen = frozen_base_ ? frozen_base_->bytes() : std::span<std::byte>(),
                                     .piece_bytes = draft_.decision.plan.piece_bytes,
                                     .directory = settings.offload_dir})),
      parameters_(std::make_unique<Parameters>(draft_, *store_, *channels_.hosts, base_hash_)),
      workers_(std::make_unique<run::QueueWorkers>(own_workers(draft_, device_->info()))) {
  declare_disk();
  make_executors({.delays = settings.test_modes.delays, .poison = settings.test_modes.poison});
  if (device_->info().asynchronous) warm_up();
  for (std::size_t v = 0; v < draft_.variants.size(); ++v) {
    fill_values(draft_.variants[v]->training.graph, v);
    if (draft_.predicts()) fill_values(draft_.variants[v]->outputs, draft_.programs.binding_of_outputs(v));
  }
  parameters_->fill(device().threads, device().shares_memory, frozen_base_.get());
  if (settings.declared_state && settings.resume.empty()) parameters_->fill_moments();
}

draft::Draft Machine::compile_once(const draft::Settings &settings, const onnx_import::ModelSource &source,
                                   const draft::Log &progress) {
  draft::LocalMachine machine(*device_, kernels_, settings, progress);
  if (channels_.hosts->ranks() == 1) return draft::compile(settings, source, machine);
  draft::RankedMachine ranked(
      machine, {.hosts = *channels_.hosts, .steps = *channels_.steps, .on_device = channels_.steps != channels_.hosts});
  return draft::compile(settings, source, ranked);
}

// Looks for a FrozenBase that this session can share, among those of this model that other sessions of this process
// hold. For each of them, compiles a draft as if this session shared the FrozenBase's memory. If the draft has the same
// frozen weights at the same places, sets frozen_base_ to the FrozenBase and returns the draft. Returns an empty
// optional if this session can share no FrozenBase.
std::optional<draft::Draft> Machine::compile_on_shared_base(const draft::Settings &settings,
                                                            const onnx_import::ModelSource &source,
                                                            const draft::Log &progress) {
  for (const std::shared_ptr<FrozenBase> &others : FrozenBase::of_model(source)) {
    draft::Settings own = settings;
    own.base_at_hand = others->bytes().size();
    std::optional<draft::Draft> draft;
    try {
      draft.emplace(compile_once(own, source, progress));
    } catch (const Error &error) {
      if (error.code != Code::budget) throw;
    }
    if (!draft || draft->programs.state.frozen_bytes != others->bytes().size()) continue;
    base_hash_ = hash_of_base(*draft, device().threads);
    if (!others->holds(*draft, base_hash_)) continue;
    frozen_base_ = others;
    return draft;
  }
  return std::nullopt;
}

// Compiles a draft and sets frozen_base_, the memory of its frozen weights. If the session has adapters and a single
// rank, it shares this memory with other sessions of this process where it can.
draft::Draft Machine::compile(const draft::Settings &settings, const onnx_import::ModelSource &source,
                              const draft::Log &progress) {
  const bool several = channels_.hosts->ranks() > 1, in_host_memory = device_->info().shares_memory;
  const bool adapts = !settings.adapters.empty() || !settings.adapter.empty();
  if (adapts && in_host_memory && !several)
    if (std::optional<draft::Draft> shared = compile_on_shared_base(settings, source, progress))
      return std::move(*shared);
  draft::Draft draft = compile_once(settings, source, progress);
  base_hash_ = hash_of_base(draft, device().threads);
  if (!in_host_memory) return draft;
  frozen_base_ =
      several ? FrozenBase::of_ranks(draft, *channels_.hosts) : FrozenBase::of_process(draft, source, base_hash_);
  return draft;
}

// Declares all regions on the disk. They are the operands of Programs and the arrays of chunks, even of chunks that no
// Program moves.
void Machine::declare_disk() {
  const auto declare = [&](const program::Buffer &buffer, std::uint64_t offset, std::uint64_t bytes) {
    if (buffer.tier == Tier::disk) store_->declare_disk(buffer.offset + offset, bytes);
  };
  const program::State &state = draft_.programs.state;
  for (const program::State::Chunk &chunk : state.chunks) {
    declare(state.buffers[index(chunk.weights)], 0, state.buffers[index(chunk.weights)].bytes);
    for (program::BufferId array : chunk.optimizer)
      declare(state.buffers[index(array)], 0, state.buffers[index(array)].bytes);
  }
  draft_.programs.each([&](const program::Program &program) {
    for (const program::Instruction &i : program.instructions)
      if (is_of_disk(i.queue))
        for (const auto *operands : {&i.inputs, &i.outputs})
          declare(program.buffers[index((*operands)[0].buffer)], (*operands)[0].offset, i.bytes);
  });
}

void Machine::make_executors(const run::FaultInjection &faults) {
  const auto make = [&](const graph::Graph &graph, const program::Program &program) {
    if (program.instructions.empty()) return std::unique_ptr<run::Executor>();
    auto executor = std::make_unique<run::Executor>(*device_, graph, program, *store_, *workers_, *channels_.steps);
    executor->bind(kernels_, draft_.settings.optimizer, faults);
    return executor;
  };
  for (std::size_t v = 0; v < draft_.variants.size(); ++v) {
    const draft::ShapeVariant &variant = *draft_.variants[v];
    const draft::ProgramSet::Variant &programs = draft_.programs.variants[v];
    executors_.push_back({.step = make(variant.training.graph, programs.step),
                          .accumulate = make(variant.training.graph, programs.accumulate),
                          .evaluation = make(variant.forward, programs.evaluation),
                          .prediction = make(variant.outputs, programs.prediction)});
  }
  settlement_ = make(draft_.first().training.graph, draft_.programs.settlement);
  set_held(false);
}

MemoryOutsideArena Machine::memory() const {
  if (device_->info().shares_memory) return {};
  return {.device_free_before = device_->info().memory_bytes,
          .device_free = device_->free_bytes(),
          .pinned = store_->pinned_bytes(),
          .unpinned = store_->unpinned_bytes()};
}

// Launches the kernels once. At the first launch of a kernel, a GPU loads the kernel, and the parts of libraries that
// the kernel uses, into memory outside the arena. If this memory is missing, the creation of the session fails, and not
// a later step. The state is not filled yet, so a status is set with which updates change nothing.
void Machine::warm_up() {
  set_status(program::StatusWord::loss());
  std::set<const backend::Kernel *> warm;
  for (const Executors &executors : executors_)
    for (const auto *executor : {&executors.step, &executors.accumulate, &executors.evaluation, &executors.prediction})
      if (*executor) (*executor)->warm_up(warm);
  if (settlement_) settlement_->warm_up(warm);
  set_status({});
}

// Writes the constants of a graph.
void Machine::fill_values(const graph::Graph &graph, std::size_t binding) {
  std::vector<std::byte> dense;
  for (const auto &[id, buffer] : draft_.programs.state.of_value[binding]) {
    const graph::Value &value = graph.value(id);
    if (value.origin != graph::Origin::constant) continue;
    dense.resize(byte_count(value.type.dtype, value.type.shape));
    value.array.write_dense(dense.data());
    store_->write(draft_.programs.state.buffers[index(buffer)], 0, dense.data(), dense.size());
  }
}

void Machine::write_input(program::BufferId buffer, const void *data, std::uint64_t bytes) {
  store_->write(draft_.programs.state.buffers[index(buffer)], 0, data, bytes);
}

void Machine::read_output(const program::Program &program, const program::Operand &output, void *out,
                          std::uint64_t bytes) {
  store_->read(program.buffers[index(output.buffer)], output.offset, out, bytes);
}

void Machine::read_result(const program::Program &program, program::BufferId id, void *out, std::size_t bytes,
                          std::size_t at) {
  store_->read(program.buffers[index(id)], at * bytes, out, bytes);
}

program::StatusWord Machine::status() {
  std::uint32_t bits = 0;
  store_->read(draft_.programs.state.buffers[index(draft_.programs.state.status)], 0, &bits, sizeof bits);
  return program::StatusWord::from_bits(bits);
}

void Machine::set_status(program::StatusWord status) {
  const std::uint32_t bits = status.bits();
  store_->write(draft_.programs.state.buffers[index(draft_.programs.state.status)], 0, &bits, sizeof bits);
}

void Machine::set_held(bool held) {
  const program::State &state = draft_.programs.state;
  if (state.held == program::BufferId::none) return;
  const std::uint32_t bits = (held ? program::StatusWord() : program::StatusWord::loss()).bits();
  for (program::BufferId word : {state.held, state.host_status})
    if (word != program::BufferId::none) store_->write(state.buffers[index(word)], 0, &bits, sizeof bits);
}

}  // namespace protrain::session
