#include "run/executor.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "backend/issue.h"
#include "base/error.h"
#include "comm/agree.h"

namespace protrain::run {

namespace {

using Time = std::chrono::steady_clock;

constexpr std::uint64_t kRunsToRetry = 64;  // runs before a device that refused to record is asked again
constexpr int kPoison = 0xFF;               // a NaN in every float type, -1 in integers

std::int64_t nanoseconds_since(Time::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Time::now() - start).count();
}

// Makes about one instruction in eight sleep for up to a third of a millisecond. The hash (splitmix64) picks different
// instructions in each run.
void sleep_now_and_then(std::uint64_t run, std::size_t instruction) {
  std::uint64_t z = run * 0x9E3779B97F4A7C15ull + instruction * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  if ((z >> 61) == 0) std::this_thread::sleep_for(std::chrono::microseconds(z % 333));
}

// True if the instruction copies bytes of the host that are not pinned.
bool copies_unpinned(const program::Program &program, const program::Instruction &instruction, const Store &store) {
  if (!program::moves(instruction.kind)) return false;
  const auto is_unpinned = [&](const program::Operand &operand) {
    const program::Buffer &buffer = program.buffers[index(operand.buffer)];
    return buffer.tier == Tier::host && buffer.offset + operand.offset + instruction.bytes > store.pinned_bytes();
  };
  return is_unpinned(instruction.inputs[0]) || is_unpinned(instruction.outputs[0]);
}

}  // namespace

Executor::Executor(backend::Device &device, const graph::Graph &graph, const program::Program &program, Store &store,
                   QueueWorkers &workers, comm::Channel &channel)
    : device_(device), graph_(graph), program_(program), store_(store), workers_(workers), channel_(channel) {
  report_.peak_bytes = program.arena_bytes;
  report_.timed.spans.resize(program.instructions.size());
  for (const Queue q : kQueues)
    report_.beside[q] = workers.has(q) || (device.info().asynchronous && q != Queue::compute);
}

backend::Kernel &Executor::kernel_of(const program::Instruction &instruction, Kernels &kernels,
                                     const backend::Optimizer &optimizer) const {
  if (instruction.kind == program::Kind::run) return kernels.of_node(graph_, graph_.node(instruction.node));
  if (instruction.kind == program::Kind::check) return kernels.of_check(instruction.element, instruction.words);
  backend::UpdateRequest request{
      .optimizer = optimizer, .elements = {}, .gradient = instruction.element, .earlier = instruction.earlier};
  for (const program::Target &target : instruction.targets) {
    const graph::Value &parameter = graph_.value(graph_.parameters.at(target.parameter));
    request.weights = parameter.type.dtype;
    if (parameter.origin == graph::Origin::state) request.optimizer = {.kind = backend::Optimizer::Kind::assign};
    request.elements.push_back(static_cast<std::int64_t>(target.bytes / size_of(request.weights)));
    request.groups.push_back(target.group);
  }
  return kernels.of_update(request);
}

Executor::Issue Executor::resolve(const program::Instruction &instruction, Kernels &kernels,
                                  const backend::Optimizer &optimizer, const FaultInjection &faults) const {
  const auto buffer = [&](program::BufferId id) -> const program::Buffer & { return program_.buffers[index(id)]; };
  const auto address = [&](const program::Operand &operand) -> void * {
    if (operand.buffer == program::BufferId::none || buffer(operand.buffer).tier == Tier::disk) return nullptr;
    return store_.address(buffer(operand.buffer), operand.offset);
  };
  Issue issue{.queue = instruction.queue, .bytes = instruction.bytes, .earlier = instruction.earlier};
  for (const program::Operand &operand : instruction.inputs) issue.inputs.push_back(address(operand));
  for (const program::Operand &operand : instruction.outputs) issue.outputs.push_back(address(operand));
  if (instruction.scratch != program::BufferId::none) issue.scratch = store_.address(buffer(instruction.scratch));
  for (std::size_t wait : instruction.waits)
    if (const Queue queue = program_.instructions[wait].queue; runs_ahead(queue))
      issue.events.push_back(wait);
    else
      issue.waits.push_back({queue, wait});
  for (program::BufferId id : instruction.releases)
    if (faults.poison && buffer(id).tier != Tier::disk && !runs_ahead(instruction.queue))
      issue.poison.emplace_back(store_.address(buffer(id)), buffer(id).bytes);
  if (program::is_between_ranks(instruction.kind)) {
    add_messages(instruction, issue);
    return issue;
  }
  if (!program::moves(instruction.kind)) {
    issue.kernel = &kernel_of(instruction, kernels, optimizer);
    const std::uint64_t scratch = issue.scratch != nullptr ? buffer(instruction.scratch).bytes : 0;
    require(scratch >= issue.kernel->scratch_bytes, Code::internal, "program",
            "a kernel works in {} bytes of scratch, and the program gives it {}", issue.kernel->scratch_bytes, scratch);
    return issue;
  }
  const program::Operand &in = instruction.inputs[0], &out = instruction.outputs[0];
  issue.from = buffer(in.buffer).tier;
  issue.to = buffer(out.buffer).tier;
  if (issue.from == Tier::disk) issue.disk_offset = buffer(in.buffer).offset + in.offset;
  if (issue.to == Tier::disk) issue.disk_offset = buffer(out.buffer).offset + out.offset;
  return issue;
}

void Executor::add_messages(const program::Instruction &instruction, Issue &issue) const {
  const auto address = [&](const program::Message &message) {
    return store_.address(program_.buffers[index(message.at.buffer)], message.at.offset);
  };
  issue.between_ranks = true;
  for (const program::Message &send : instruction.sends)
    if (send.rank == channel_.rank())
      issue.own.push_back({.to = nullptr, .from = address(send), .bytes = send.bytes});
    else
      issue.sends.push_back({.rank = send.rank, .data = address(send), .bytes = send.bytes});
  auto own = issue.own.begin();
  for (const program::Message &receive : instruction.receives)
    if (receive.rank == channel_.rank())
      (own++)->to = address(receive);
    else
      issue.receives.push_back({.rank = receive.rank, .data = address(receive), .bytes = receive.bytes});
}

void Executor::bind(Kernels &kernels, const backend::Optimizer &optimizer, const FaultInjection &faults) {
  faults_ = faults;
  recordings_.of = {};
  report_.not_recorded.clear();
  recordings_.possible = device_.info().asynchronous && !faults.delays && !faults.poison &&
                         std::ranges::none_of(program_.instructions, [&](const auto &i) {
                           return workers_.has(i.queue) || copies_unpinned(program_, i, store_);
                         });
  recordings_.from_run = 0;
  if (device_.info().asynchronous) device_.reserve_events(program_.instructions.size());
  issues_.clear();
  for (auto &list : lists_) list.clear();
  const bool accumulates = program_.weight != program::BufferId::none;
  for (const program::Instruction &instruction : program_.instructions) {
    if (workers_.has(instruction.queue)) lists_[instruction.queue].push_back(issues_.size());
    issues_.push_back(resolve(instruction, kernels, optimizer, faults));
    const bool changes_state = std::ranges::any_of(instruction.outputs, [&](const program::Operand &out) {
      return out.buffer != program::BufferId::none && program_.buffers[index(out.buffer)].persistent;
    });
    Issue &issue = issues_.back();
    issue.into_state = changes_state;
    issue.updates = instruction.kind == program::Kind::update && !instruction.earlier;
    issue.adds = accumulates && changes_state && !issue.updates && issues_.size() > program_.commit;
  }
  for (std::size_t i = 0; i < issues_.size(); ++i)
    for (std::size_t event : issues_[i].events) issues_[event].awaited = true;
}

void Executor::move(const Issue &issue) {
  if (issue.from == Tier::disk)
    store_.read_disk(issue.disk_offset, static_cast<std::byte *>(issue.outputs[0]), issue.bytes);
  else if (issue.to == Tier::disk)
    store_.write_disk(issue.disk_offset, static_cast<const std::byte *>(issue.inputs[0]), issue.bytes);
  else if (const backend::Copy copy{issue.outputs[0], issue.inputs[0], issue.bytes}; workers_.has(issue.queue))
    device_.copy_alone(copy);
  else
    device_.copy(issue.queue, copy);
}

void Executor::exchange(const Issue &issue) {
  for (const backend::Copy &copy : issue.own) device_.copy_alone(copy);
  channel_.exchange(issue.sends, issue.receives);
}

// Carries out an instruction: an exchange, a kernel or a move. If the instruction fails, hands the error to the workers
// and then aborts the channel, because other ranks wait for this rank's messages. The abort makes this rank's exchanges
// on other threads fail too. These later errors do not count, because a run reports the first error that the workers
// get. An instruction that cannot be recorded only throws, because the run then issues it, and other ranks do not wait.
void Executor::work(const Issue &issue) {
  const backend::Launch launch{
      .inputs = issue.inputs, .outputs = issue.outputs, .scratch = issue.scratch, .scalars = run_.scalars};
  try {
    if (issue.between_ranks)
      exchange(issue);
    else if (issue.kernel == nullptr)
      move(issue);
    else if (workers_.has(issue.queue))
      device_.launch_alone(*issue.kernel, launch);
    else
      device_.launch(issue.queue, *issue.kernel, launch);
  } catch (const std::exception &error) {
    if (run_.recording) throw;
    if (issue.into_state && is_of_disk(issue.queue)) run_.unwritten.store(true, std::memory_order_relaxed);
    if (channel_.ranks() > 1)
      workers_.fail(static_cast<std::size_t>(&issue - issues_.data()), std::current_exception());
    comm::abort_for(channel_, error);
    throw;
  }
}

// Executes an instruction on the calling thread. But if the device runs the instruction's queue, only appends the
// instruction to that queue.
void Executor::execute(std::size_t instruction) {
  Issue &issue = issues_[instruction];
  const bool ahead = runs_ahead(issue.queue);
  for (std::size_t event : issue.events)
    if (ahead)
      device_.wait(issue.queue, event);
    else
      device_.wait_here(event);
  if (issue.adds) run_.added.store(true, std::memory_order_relaxed);
  if (issue.updates) run_.updated.store(true, std::memory_order_relaxed);
  if (faults_.delays) sleep_now_and_then(report_.runs, instruction);
  const std::int64_t start_ns = run_.timed && !ahead ? nanoseconds_since(run_.start) : 0;
  work(issue);
  if (issue.earlier) issue.over = true;
  if (ahead) {
    if (run_.timed || issue.awaited) device_.record(issue.queue, instruction);
    return;
  }
  for (const auto &[at, bytes] : issue.poison) std::memset(at, kPoison, bytes);
  if (run_.timed) report_.timed.spans[instruction] = {start_ns, nanoseconds_since(run_.start)};
}

// Stops the run if it was cancelled and has not yet changed anything that outlives the step. Returns true if it stops
// the run.
bool Executor::stopped(std::size_t instruction) {
  if (instruction > program_.commit || !run_.cancelled->load(std::memory_order_relaxed)) return false;
  run_.stopped = true;
  workers_.fail(instruction,
                std::make_exception_ptr(Error(Code::cancelled, "", "cancelled before anything was changed")));
  return true;
}

void Executor::append() {
  for (std::size_t i = 0; i < issues_.size(); ++i) execute(i);
}

// Runs the instructions that the previous step deferred to this step, and that have not run because this step ended
// early. A single thread can run them one by one, because the order of the Program's list respects every wait. If one
// of these instructions fails, its error becomes the outcome.
void Executor::finish_earlier(QueueWorkers::Outcome &outcome) {
  for (std::size_t i = 0; i < issues_.size(); ++i) {
    if (!issues_[i].earlier || issues_[i].over) continue;
    try {
      execute(i);
    } catch (...) {
      outcome = {std::current_exception(), i};
      return;
    }
  }
}

void Executor::run_watched(const backend::StepScalars &scalars, Watch &watch) {
  run_.scalars = &scalars;
  run_.timed = run_.stopped = false;
  run_.unwritten = false;
  std::size_t i = 0;
  try {
    for (; i < issues_.size(); ++i) {
      watch.before(i);
      backend::run_step(device_, [&] { execute(i); });
      watch.after(i);
    }
  } catch (Error &error) {
    error.facts.state_broken |= run_.unwritten;
    name_instruction(error, i);
    throw;
  }
}

void Executor::issue() {
  for (std::size_t i = 0; i < issues_.size(); ++i) {
    const Issue &issue = issues_[i];
    if (stopped(i)) return;
    if (workers_.has(issue.queue)) {
      workers_.issue(i);
      continue;
    }
    if (!issue.waits.empty() && !workers_.wait(issue.queue, issue.waits)) return;
    try {
      execute(i);
    } catch (...) {
      return workers_.fail(i, std::current_exception());
    }
    if (!runs_ahead(issue.queue)) workers_.over(i, issue.queue);
  }
  // Waits for the workers before the caller waits for the device's queues. Waiting for the device may keep a core busy,
  // and updates on the host need all cores.
  if (device_.info().asynchronous) workers_.wait_for_workers();
}

// Fills in the spans of the instructions that an asynchronous device ran. An event tells when its instruction ended,
// but not when the instruction began. The instruction is taken to begin as soon as its queue is free and everything
// that it waits for is over.
void Executor::note_spans() {
  std::vector<program::Span> &spans = report_.timed.spans;
  PerQueue<std::int64_t> free{};
  for (std::size_t i = 0; i < issues_.size(); ++i) {
    const Queue queue = issues_[i].queue;
    std::int64_t &queue_free = free[queue];
    if (runs_ahead(queue)) {
      std::int64_t start = queue_free;
      for (std::size_t wait : program_.instructions[i].waits) start = std::max(start, spans[wait].end_ns);
      spans[i] = {start, std::max(start, device_.event_ns(i))};
    }
    queue_free = spans[i].end_ns;
  }
}

// Records in the error's facts what the run had done when it failed, and names the instruction.
void Executor::state_facts(Error &error, std::size_t instruction) const {
  if (error.code == Code::cancelled) return;
  Facts &facts = error.facts;
  facts.channel_broken = channel_.ranks() > 1;
  // An asynchronous device found input values that it cannot use. The step went on with useless results, but no Update
  // changed anything.
  if (error.code == Code::arg && device_.info().asynchronous) {
    facts.sums_touched = program_.weight != program::BufferId::none;
    return;
  }
  const program::Instruction &failed = program_.instructions[instruction];
  facts.sums_touched = run_.added;
  // Updates on queues other than the failed one either finished or never began. So each number of the state is an old
  // one or a new one, but some parameters may have taken the step and others not (state_touched). In three cases the
  // state is lost instead (state_broken). In the first, the disk failed amid updates, so data may be lost between
  // memory and disk. In the second, new weights or a sum of gradients could not be written, and a later step would read
  // them. This holds also if an instruction of another queue failed first. In the third, the failed instruction was
  // deferred by the previous step, which was already reported as complete.
  facts.state_touched = run_.updated;
  const bool disk_lost = run_.updated ? is_of_disk(failed.queue) || run_.unwritten : run_.added && run_.unwritten;
  facts.state_broken |= failed.earlier || disk_lost;
  if (!facts.device_gone) name_instruction(error, instruction);
}

// Adds a description of the instruction to the error's text, unless memory is short.
void Executor::name_instruction(Error &error, std::size_t instruction) const {
  try {
    error.text += " [at instruction " + describe(program_, graph_, instruction) + "]";
  } catch (const std::bad_alloc &) {
  }
}

// Runs the instructions that the previous step deferred to this step and that have not run yet. They must run although
// this step ended early, because the previous step was reported as complete. If one of these instructions or the device
// fails, this error becomes the outcome.
void Executor::settle(QueueWorkers::Outcome &outcome) {
  if (issues_[outcome.instruction].earlier && !run_.stopped) return;
  try {
    backend::run_step(device_, [&] { finish_earlier(outcome); });
  } catch (Error &error) {
    error.facts.device_gone = true;
    comm::abort_for(channel_, error);
    outcome.error = std::current_exception();
  }
}

void Executor::rethrow(const QueueWorkers::Outcome &outcome) const {
  try {
    std::rethrow_exception(outcome.error);
  } catch (Error &error) {
    state_facts(error, outcome.instruction);
    throw;
  } catch (const std::bad_alloc &) {
    Error error(Code::nomem, "", "out of memory");  // short enough to need no memory
    state_facts(error, outcome.instruction);
    throw error;
  }
}

void Executor::run(const backend::StepScalars &scalars, const std::atomic<bool> &cancelled, bool timed) {
  prepare(scalars, cancelled, timed);
  backend::Recording *recording = recordings_.of[run_.timed].get();
  report_.replayed = recording != nullptr;
  run_.start = Time::now();
  workers_.begin(*this);
  std::exception_ptr gone;  // set if the device is gone: reported in place of any earlier error
  try {
    carry_out(recording);
  } catch (Error &error) {
    if (error.code != Code::arg) {
      error.facts.device_gone = true;
      gone = std::current_exception();
    }
    comm::abort_for(channel_, error);
    workers_.fail(issues_.size() - 1, std::current_exception());
  } catch (...) {  // workers must end the run all the same
    channel_.abort("a step failed");
    workers_.fail(issues_.size() - 1, std::current_exception());
  }
  QueueWorkers::Outcome outcome = workers_.end(issues_.size());
  if (gone) outcome.error = gone;
  const bool holds_earlier = std::ranges::any_of(issues_, &Issue::earlier);
  if (outcome.error && !gone && holds_earlier) settle(outcome);
  if (outcome.error) rethrow(outcome);
  note_run();
}

void Executor::prepare(const backend::StepScalars &scalars, const std::atomic<bool> &cancelled, bool timed) {
  run_.scalars = &scalars;
  run_.cancelled = &cancelled;
  run_.timed = timed || !device_.info().asynchronous;
  ++report_.runs;
  record();
  run_.added = run_.updated = run_.unwritten = false;
  run_.stopped = run_.recording = false;
  report_.seconds = 0;
  for (Issue &issue : issues_) issue.over = false;
  if (!run_.timed) return;
  report_.timed.step = scalars.step;
  report_.timed.seconds = 0;
  std::ranges::fill(report_.timed.spans, program::Span{});
}

// Issues all instructions, or replays the recording if there is one.
void Executor::carry_out(backend::Recording *recording) {
  if (recording == nullptr) return backend::run_step(device_, [this] { issue(); });
  if (stopped(0)) return;
  for (Issue &issue : issues_) issue.over = true;
  device_.replay_step(*recording, *run_.scalars);
}

// Notes the times of a run that has succeeded.
void Executor::note_run() {
  report_.seconds = static_cast<double>(nanoseconds_since(run_.start)) * 1e-9;
  if (run_.timed && device_.info().asynchronous) note_spans();
  if (run_.timed) report_.timed.seconds = report_.seconds;
  if (recordings_.from_run == 0) recordings_.from_run = report_.runs + 1;
}

// Makes the recording that this run replays, if the device can record and the recording is missing. A run without a
// recording is issued instruction by instruction.
void Executor::record() {
  if (!recordings_.possible || recordings_.of[run_.timed] || recordings_.from_run == 0 ||
      report_.runs < recordings_.from_run)
    return;
  report_.not_recorded.clear();
  run_.recording = true;
  try {
    recordings_.of[run_.timed] = backend::record_step(
        device_, [this] { append(); }, run_.timed);
    recordings_.possible = recordings_.of[run_.timed] != nullptr;
  } catch (const std::exception &error) {
    report_.not_recorded = error.what();
    recordings_.from_run = report_.runs + kRunsToRetry;
  }
}

void Executor::warm_up(std::set<const backend::Kernel *> &warm) {
  static constexpr backend::StepScalars kScalars{};
  const auto launch_all = [&] {
    for (const Issue &issue : issues_)
      if (issue.kernel != nullptr && runs_ahead(issue.queue) && warm.insert(issue.kernel).second)
        device_.launch(
            issue.queue, *issue.kernel,
            {.inputs = issue.inputs, .outputs = issue.outputs, .scratch = issue.scratch, .scalars = &kScalars});
  };
  try {
    backend::run_step(device_, launch_all);
  } catch (const Error &error) {
    if (error.code != Code::arg) throw;  // arg: memory holds no valid indices and labels yet
  }
}

}  // namespace protrain::run
