// Adds the waits of a Program. An instruction that reads bytes comes after the instruction that wrote them. An
// instruction that writes bytes comes after all earlier users of the same bytes. An instruction that releases a buffer
// comes after the buffer's last user. Within a queue, the queue's order ensures this. Between queues a wait ensures it,
// unless other waits imply it.
#include <algorithm>
#include <functional>

#include "program/program.h"
#include "program/vector_clocks.h"

namespace protrain::program {

namespace {

// Stands for a set of instructions, such as those that read a buffer. For each queue it has only the last instruction
// of the set, because the earlier ones are over when the last is over. The number is this instruction's position plus
// one; 0: the set has no instruction on the queue.
using Last = VectorClock;

void note(Last &last, Queue queue, std::size_t instruction) {
  std::size_t &one = last[queue];
  one = std::max(one, instruction + 1);
}

// Releases knows which instruction last released each byte of a tier's arena.
class Releases {
 public:
  template <typename Do>
  void each(const Buffer &buffer, Do &&act) const {
    auto at = by_start_.upper_bound(buffer.offset);
    if (at != by_start_.begin()) --at;
    for (; at != by_start_.end() && at->first < buffer.offset + buffer.bytes; ++at)
      if (at->second.end > buffer.offset) act(at->second.instruction);
  }

  void set(const Buffer &buffer, std::size_t instruction) {
    const std::uint64_t begin = buffer.offset, end = buffer.offset + buffer.bytes;
    auto at = by_start_.upper_bound(begin);
    if (at != by_start_.begin() && std::prev(at)->second.end > begin) --at;
    while (at != by_start_.end() && at->first < end) {
      const auto [start, span] = *at;
      at = by_start_.erase(at);
      if (start < begin) by_start_[start] = {begin, span.instruction};
      if (span.end > end) at = by_start_.insert_or_assign(end, Span{span.end, span.instruction}).first;
    }
    by_start_[begin] = {end, instruction};
  }

 private:
  struct Span {
    std::uint64_t end;
    std::size_t instruction;
  };
  std::map<std::uint64_t, Span> by_start_;
};

class Orderer {
 public:
  explicit Orderer(Program &program)
      : program_(program),
        clocks_(program.instructions.size()),
        written_(program.buffers.size()),
        read_(program.buffers.size()),
        begun_(program.buffers.size(), false) {}

  void run() {
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      wanted_ = {};
      const Instruction &instruction = program_.instructions[i];
      for (const Operand &in : instruction.inputs)
        if (in.buffer != BufferId::none) after(written_[index(in.buffer)]);
      for (const Operand &out : instruction.outputs)
        if (out.buffer != BufferId::none) before_write(out.buffer);
      if (instruction.scratch != BufferId::none) before_write(instruction.scratch);
      for (BufferId id : instruction.releases) before_write(id);
      add_waits(i);
      record(i);
    }
  }

 private:
  void after(const Last &last) {
    for (const Queue q : kQueues) wanted_[q] = std::max(wanted_[q], last[q]);
  }

  void before_write(BufferId id) {
    after(written_[index(id)]);
    after(read_[index(id)]);
    const Buffer &buffer = program_.buffers[index(id)];
    if (buffer.persistent || begun_[index(id)]) return;
    begun_[index(id)] = true;
    released_[buffer.tier].each(buffer, [&](std::size_t i) { note(wanted_, program_.instructions[i].queue, i); });
  }

  // Makes instruction `i` wait for the instructions in wanted_. Goes through them from the latest to the earliest, and
  // leaves out an instruction if its end already follows from the queue's order or from the waits added before.
  void add_waits(std::size_t i) {
    Instruction &instruction = program_.instructions[i];
    clocks_.begin(i, instruction.queue);
    VectorClock latest = wanted_;
    std::ranges::sort(latest, std::greater<>());
    for (std::size_t one : latest) {
      if (one == 0) break;
      const std::size_t earlier = one - 1;
      if (clocks_.over(earlier, program_.instructions[earlier].queue, i)) continue;
      instruction.waits.push_back(earlier);
      clocks_.join(i, earlier, program_.instructions[earlier].queue);
    }
    std::ranges::sort(instruction.waits);
    clocks_.end(i, instruction.queue);
  }

  void record(std::size_t i) {
    const Instruction &instruction = program_.instructions[i];
    for (const Operand &in : instruction.inputs)
      if (in.buffer != BufferId::none) note(read_[index(in.buffer)], instruction.queue, i);
    for (const Operand &out : instruction.outputs)
      if (out.buffer != BufferId::none) note(written_[index(out.buffer)], instruction.queue, i);
    for (BufferId id : instruction.releases) {
      const Buffer &buffer = program_.buffers[index(id)];
      released_[buffer.tier].set(buffer, i);
    }
  }

  Program &program_;
  VectorClocks clocks_;
  std::vector<Last> written_, read_;  // per buffer
  std::vector<bool> begun_;           // per buffer: true once an instruction has written it
  PerTier<Releases> released_;
  Last wanted_{};  // instructions that the current one must come after
};

}  // namespace

void add_waits(Program &program) {
  for (Instruction &instruction : program.instructions) instruction.waits.clear();
  Orderer(program).run();
}

}  // namespace protrain::program
