#include "program/simulate.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace protrain::program {

namespace {

constexpr std::size_t kNoInstruction = std::numeric_limits<std::size_t>::max();
// The latest time that the simulator reports, in nanoseconds: 146 years. A described machine may have rates close to 0.
// Anything that would happen later is reported at this time, so that an int64_t holds it.
constexpr double kLatest = 0x1p62;
// The least share of its speed that a queue keeps. Without this limit, the bandwidths of a described machine could
// bring the share close to 0.
constexpr double kLeastSpeed = 1e-9;

std::int64_t whole_ns(double ns) { return static_cast<std::int64_t>(std::min(ns, kLatest)); }

class LiveBytes {
 public:
  explicit LiveBytes(const Program &program) : program_(program), begun_(program.buffers.size(), false) {
    for (const Tier t : kTiers) now_.live_bytes[t] = now_.high_bytes[t] = program.state_bytes[t];
  }

  Entry record(const Instruction &instruction) {
    for (const Operand &out : instruction.outputs) take(out.buffer);
    take(instruction.scratch);
    const Entry entry = now_;
    for (BufferId id : instruction.releases) {
      const Buffer &buffer = program_.buffers[index(id)];
      now_.live_bytes[buffer.tier] -= buffer.bytes;
    }
    return entry;
  }

 private:
  void take(BufferId id) {
    if (id == BufferId::none || program_.buffers[index(id)].persistent || begun_[index(id)]) return;
    begun_[index(id)] = true;
    const Buffer &buffer = program_.buffers[index(id)];
    const Tier tier = buffer.tier;
    now_.live_bytes[tier] += buffer.bytes;
    now_.high_bytes[tier] = std::max(now_.high_bytes[tier], buffer.offset + buffer.bytes);
  }

  const Program &program_;
  std::vector<bool> begun_;
  Entry now_;
};

// Advances the time from one event to the next. An event is the start or the end of an instruction. Between two events,
// each queue works at a constant speed, which depends on the other busy queues (profile::Shares).
class Time {
 public:
  Time(const Program &program, const std::vector<std::int64_t> &ns, const Queues &queues)
      : program_(program), ns_(ns), queues_(queues), over_(program.instructions.size(), false) {
    for (std::size_t i = 0; i < program.instructions.size(); ++i) lists_[worker_of(i)].push_back(i);
  }

  void run(std::vector<Entry> &entries) {
    do {
      start(entries);
    } while (finish(entries));
  }

 private:
  // Returns the queue whose worker runs instruction `i`. Compute's worker also runs the queues that have no worker of
  // their own.
  Queue worker_of(std::size_t i) const {
    const Queue queue = program_.instructions[i].queue;
    return queues_.beside[queue] ? queue : Queue::compute;
  }

  // Returns the worker's first instruction that is not over; kNoInstruction: there is none.
  std::size_t head(Queue worker) const {
    return next_[worker] < lists_[worker].size() ? lists_[worker][next_[worker]] : kNoInstruction;
  }

  bool ready(std::size_t i, Queue worker) const {
    if (queues_.issued_in_turn && worker != Queue::compute && head(Queue::compute) < i) return false;
    return std::ranges::all_of(program_.instructions[i].waits, [&](std::size_t wait) { return over_[wait]; });
  }

  void start(std::vector<Entry> &entries) {
    for (const Queue worker : kQueues) {
      const std::size_t i = head(worker);
      if (running_[worker] || i == kNoInstruction || !ready(i, worker)) continue;
      running_[worker] = true;
      left_[worker] = static_cast<double>(ns_[i]);
      entries[i].start_ns = whole_ns(now_);
    }
  }

  // Returns the speeds of the instructions that the workers run; 1 is full speed, 0 is that of an idle worker.
  // Everything on compute's worker counts as compute, even an instruction of another queue: it is slowed like compute,
  // and slows other queues like compute.
  PerQueue<double> speeds() const {
    PerQueue<double> speeds{};
    for (const Queue worker : kQueues)
      if (running_[worker] && worker != Queue::compute) speeds[worker] = speed(worker);
    if (running_[Queue::compute]) speeds[Queue::compute] = speed_of_compute(speeds);
    return speeds;
  }

  double speed(Queue worker) const {
    double speed = 1;
    for (const Queue other : kQueues)
      if (other != worker && running_[other]) speed *= queues_.shares[worker][other];
    return std::max(speed, kLeastSpeed);
  }

  // Returns compute's speed beside the other workers. A queue takes from compute in proportion to the bytes that it
  // moves, so a queue that is slowed itself takes less.
  double speed_of_compute(const PerQueue<double> &others) const {
    double speed = 1;
    for (const Queue other : kQueues)
      if (other != Queue::compute) speed *= 1 - (1 - queues_.shares[Queue::compute][other]) * others[other];
    return std::max(speed, kLeastSpeed);
  }

  // Advances the time until the next instruction ends. Returns false if no instruction is running.
  bool finish(std::vector<Entry> &entries) {
    const PerQueue<double> speeds = this->speeds();
    double step = std::numeric_limits<double>::infinity();
    for (const Queue worker : kQueues)
      if (running_[worker]) step = std::min(step, left_[worker] / speeds[worker]);
    if (step == std::numeric_limits<double>::infinity()) return false;
    now_ += step;
    for (const Queue worker : kQueues) {
      if (!running_[worker]) continue;
      left_[worker] -= step * speeds[worker];
      if (left_[worker] > 0.5) continue;  // half a nanosecond
      const std::size_t i = head(worker);
      entries[i].end_ns = whole_ns(now_);
      over_[i] = true;
      running_[worker] = false;
      ++next_[worker];
    }
    return true;
  }

  const Program &program_;
  const std::vector<std::int64_t> &ns_;
  const Queues &queues_;
  PerQueue<std::vector<std::size_t>> lists_;  // per worker: its instructions
  PerQueue<std::size_t> next_{};              // per worker: the number of its instructions that are over
  PerQueue<bool> running_{};
  PerQueue<double> left_{};  // what is left of the running instruction, ns at full speed
  std::vector<bool> over_;   // per instruction
  double now_ = 0;
};

}  // namespace

Queues::Queues(const Beside &own) : beside(own) {
  for (auto &row : shares) row.fill(1);
}

Queues queues_of(const profile::Profile &profile) {
  Queues queues;
  queues.beside.fill(!profile.shares_cores);
  queues.beside[Queue::compute] = false;
  queues.beside[Queue::disk_read] = queues.beside[Queue::disk_write] = queues.beside[Queue::comm] = true;
  queues.issued_in_turn = profile.shares_cores;
  queues.shares = profile::shares(profile);
  return queues;
}

std::vector<std::int64_t> price(const Program &program, const plan::Durations &durations) {
  std::vector<std::int64_t> ns;
  ns.reserve(program.instructions.size());
  // Limits the time of each instruction, so that even the sum of all times is at most kLatest.
  const double most = kLatest / static_cast<double>(std::max<std::size_t>(program.instructions.size(), 1));
  const auto tier = [&](const Operand &operand) { return program.buffers[index(operand.buffer)].tier; };
  for (const Instruction &i : program.instructions) {
    double seconds = 0;
    if (i.kind == Kind::run)
      seconds = durations.run(i.node);
    else if (i.kind == Kind::update)
      seconds =
          std::accumulate(i.targets.begin(), i.targets.end(), durations.launch(), [&](double sum, const Target &t) {
            return sum + durations.update(tier(i.outputs[0]), t.parameter, t.bytes);
          });
    else if (is_between_ranks(i.kind))
      seconds = durations.exchange(i.bytes);
    else if (moves(i.kind))
      seconds = durations.move(tier(i.inputs[0]), tier(i.outputs[0]), i.bytes);
    else
      seconds = durations.launch();
    ns.push_back(static_cast<std::int64_t>(std::min(seconds * 1e9, most)));
  }
  return ns;
}

Simulation simulate(const Program &program, const std::vector<std::int64_t> &ns, const Queues &queues) {
  Simulation simulation;
  simulation.entries.reserve(program.instructions.size());
  LiveBytes books(program);
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    simulation.entries.push_back(books.record(program.instructions[i]));
    simulation.busy_ns[program.instructions[i].queue] += ns[i];
  }
  Time(program, ns, queues).run(simulation.entries);
  // A step takes at least a nanosecond, because callers divide by its time.
  for (const Entry &entry : simulation.entries)
    simulation.step_ns = std::max({simulation.step_ns, entry.end_ns, std::int64_t{1}});
  return simulation;
}

}  // namespace protrain::program
