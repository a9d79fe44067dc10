#include "program/simulate.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace protrain::program {

namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
constexpr double kYear = 365.0 * 86400;
constexpr auto kCompute = static_cast<std::size_t>(Queue::compute);

class Books {
 public:
  explicit Books(const Program &program) : program_(program), begun_(program.buffers.size(), false) {
    for (std::size_t t = 0; t < kTierCount; ++t) now_.live_bytes[t] = now_.high_bytes[t] = program.state_bytes[t];
  }

  Entry record(const Instruction &instruction) {
    for (const Operand &out : instruction.outputs) take(out.buffer);
    take(instruction.scratch);
    const Entry entry = now_;
    for (BufferId id : instruction.releases) {
      const Buffer &buffer = program_.buffers[index(id)];
      now_.live_bytes[static_cast<std::size_t>(buffer.tier)] -= buffer.bytes;
    }
    return entry;
  }

 private:
  void take(BufferId id) {
    if (id == BufferId::none || program_.buffers[index(id)].persistent || begun_[index(id)]) return;
    begun_[index(id)] = true;
    const Buffer &buffer = program_.buffers[index(id)];
    const auto tier = static_cast<std::size_t>(buffer.tier);
    now_.live_bytes[tier] += buffer.bytes;
    now_.high_bytes[tier] = std::max(now_.high_bytes[tier], buffer.offset + buffer.bytes);
  }

  const Program &program_;
  std::vector<bool> begun_;
  Entry now_;
};

// Moves time from one start or end of an instruction to the next. Between two of them every queue works at a constant
// speed: its own, less what the others at work take from it.
class Time {
 public:
  Time(const Program &program, const std::vector<std::int64_t> &ns, const Queues &queues)
      : program_(program), ns_(ns), queues_(queues), over_(program.instructions.size(), false) {
    for (std::size_t i = 0; i < program.instructions.size(); ++i) lists_[lane_of(i)].push_back(i);
  }

  void run(std::vector<Entry> &entries) {
    do {
      start(entries);
    } while (finish(entries));
  }

 private:
  std::size_t lane_of(std::size_t i) const {
    const auto queue = static_cast<std::size_t>(program_.instructions[i].queue);
    return queues_.beside[queue] ? queue : kCompute;
  }

  // The first instruction of the lane that is not over; kNone where there is none.
  std::size_t head(std::size_t lane) const {
    return next_[lane] < lists_[lane].size() ? lists_[lane][next_[lane]] : kNone;
  }

  bool ready(std::size_t i, std::size_t lane) const {
    if (queues_.issued_in_turn && lane != kCompute && head(kCompute) < i) return false;
    return std::ranges::all_of(program_.instructions[i].waits, [&](std::size_t wait) { return over_[wait]; });
  }

  void start(std::vector<Entry> &entries) {
    for (std::size_t lane = 0; lane < kQueueCount; ++lane) {
      const std::size_t i = head(lane);
      if (running_[lane] || i == kNone || !ready(i, lane)) continue;
      running_[lane] = true;
      left_[lane] = static_cast<double>(ns_[i]);
      entries[i].start_ns = static_cast<std::int64_t>(now_);
    }
  }

  // A lane's own queue at present: what runs on compute in turn is slowed, and slows, as what it is.
  std::size_t queue_at(std::size_t lane) const {
    return static_cast<std::size_t>(program_.instructions[head(lane)].queue);
  }

  double speed(std::size_t lane) const {
    double speed = 1;
    for (std::size_t other = 0; other < kQueueCount; ++other)
      if (other != lane && running_[other])
        speed *= queues_.shares[lane == kCompute ? kCompute : queue_at(lane)][other];
    return speed;
  }

  // Goes on to the next end; false where nothing runs.
  bool finish(std::vector<Entry> &entries) {
    std::array<double, kQueueCount> speeds{};
    double step = std::numeric_limits<double>::infinity();
    for (std::size_t lane = 0; lane < kQueueCount; ++lane)
      if (running_[lane]) {
        speeds[lane] = speed(lane);
        step = std::min(step, left_[lane] / speeds[lane]);
      }
    if (step == std::numeric_limits<double>::infinity()) return false;
    now_ += step;
    for (std::size_t lane = 0; lane < kQueueCount; ++lane) {
      if (!running_[lane]) continue;
      left_[lane] -= step * speeds[lane];
      if (left_[lane] > 0.5) continue;  // half a nanosecond
      const std::size_t i = head(lane);
      entries[i].end_ns = static_cast<std::int64_t>(now_);
      over_[i] = true;
      running_[lane] = false;
      ++next_[lane];
    }
    return true;
  }

  const Program &program_;
  const std::vector<std::int64_t> &ns_;
  const Queues &queues_;
  std::array<std::vector<std::size_t>, kQueueCount> lists_;  // per lane: its instructions
  std::array<std::size_t, kQueueCount> next_{};              // per lane: those that are over
  std::array<bool, kQueueCount> running_{};
  std::array<double, kQueueCount> left_{};  // of what runs, ns at full speed
  std::vector<bool> over_;                  // per instruction
  double now_ = 0;
};

}  // namespace

Queues::Queues(const Beside &own) : beside(own) {
  for (auto &row : shares) row.fill(1);
}

Queues queues_of(const profile::Profile &profile) {
  Queues queues;
  queues.beside.fill(!profile.shares_cores);
  queues.beside[kCompute] = false;
  queues.beside[static_cast<std::size_t>(Queue::disk)] = true;
  queues.issued_in_turn = profile.shares_cores;
  queues.shares = profile::shares(profile);
  return queues;
}

std::vector<std::int64_t> price(const Program &program, const plan::Clock &clock) {
  std::vector<std::int64_t> ns;
  ns.reserve(program.instructions.size());
  const auto tier = [&](const Operand &operand) { return program.buffers[index(operand.buffer)].tier; };
  for (const Instruction &i : program.instructions) {
    double seconds = 0;
    if (i.kind == Kind::run)
      seconds = clock.run(i.node);
    else if (i.kind == Kind::update)
      seconds = std::accumulate(i.targets.begin(), i.targets.end(), clock.launch(), [&](double sum, const Target &t) {
        return sum + clock.update(tier(i.outputs[0]), t.parameter, t.bytes);
      });
    else if (moves(i.kind))
      seconds = clock.move(tier(i.inputs[0]), tier(i.outputs[0]), i.bytes);
    else
      seconds = clock.launch();
    // A year is long enough, also for a machine that is described with rates next to nothing.
    ns.push_back(static_cast<std::int64_t>(std::min(seconds, kYear) * 1e9));
  }
  return ns;
}

Simulation simulate(const Program &program, const std::vector<std::int64_t> &ns, const Queues &queues) {
  Simulation simulation;
  simulation.entries.reserve(program.instructions.size());
  Books books(program);
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    simulation.entries.push_back(books.record(program.instructions[i]));
    simulation.busy_ns[static_cast<std::size_t>(program.instructions[i].queue)] += ns[i];
  }
  Time(program, ns, queues).run(simulation.entries);
  for (const Entry &entry : simulation.entries) simulation.step_ns = std::max(simulation.step_ns, entry.end_ns);
  return simulation;
}

}  // namespace protrain::program
