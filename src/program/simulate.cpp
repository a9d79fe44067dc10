#include "program/simulate.h"

#include <algorithm>

namespace protrain::program {

namespace {

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

}  // namespace

Simulation simulate(const Program &program, const std::vector<std::int64_t> &ns, const Beside &beside) {
  Simulation simulation;
  simulation.entries.reserve(program.instructions.size());
  std::array<std::int64_t, kQueueCount> free_at{};
  Books books(program);
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction &instruction = program.instructions[i];
    const auto queue = static_cast<std::size_t>(instruction.queue);
    std::int64_t &clock = free_at[beside[queue] ? queue : static_cast<std::size_t>(Queue::compute)];
    std::int64_t start = clock;
    for (std::size_t wait : instruction.waits) start = std::max(start, simulation.entries[wait].end_ns);
    Entry entry = books.record(instruction);
    entry.start_ns = start;
    entry.end_ns = clock = start + ns[i];
    simulation.busy_ns[queue] += ns[i];
    simulation.step_ns = std::max(simulation.step_ns, entry.end_ns);
    simulation.entries.push_back(entry);
  }
  return simulation;
}

}  // namespace protrain::program
