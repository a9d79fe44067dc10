// The lives of a Program's buffers, from first to last use as an operand. They are found without looking at `releases`.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "program/program.h"
#include "program/vector_clocks.h"

namespace protrain::test {

inline constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

struct Life {
  std::size_t first = kNever;      // the first instruction that uses the buffer; kNever: there is none
  std::size_t last = 0;            // the last instruction that uses it; kNever: it is read after the step
  std::size_t last_read = kNever;  // the last instruction that reads it; kNever: there is none
  bool scratch = false;

  bool meets(const Life &other) const { return first <= other.last && other.first <= last; }
};

inline std::vector<Life> lives_of(const program::Program &program) {
  std::vector<Life> lives(program.buffers.size());
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const program::Instruction &instruction = program.instructions[i];
    const auto use = [&](program::BufferId id) -> Life * {
      if (id == program::BufferId::none) return nullptr;
      Life &life = lives[index(id)];
      life.first = std::min(life.first, i);
      life.last = i;
      return &life;
    };
    for (const program::Operand &in : instruction.inputs)
      if (Life *life = use(in.buffer)) life->last_read = i;
    for (const program::Operand &out : instruction.outputs) use(out.buffer);
    if (Life *life = use(instruction.scratch)) life->scratch = true;
  }
  for (program::BufferId id : program.results()) lives[index(id)].last = kNever;
  return lives;
}

// True if the order of queues and the waits ensure that instruction `earlier` has ended when `now` starts.
inline bool implied(const program::Program &program, std::size_t earlier, std::size_t now) {
  program::VectorClocks clocks(program.instructions.size());
  for (std::size_t i = 0; i <= now; ++i) {
    const program::Instruction &instruction = program.instructions[i];
    clocks.begin(i, instruction.queue);
    for (std::size_t wait : instruction.waits) clocks.join(i, wait, program.instructions[wait].queue);
    clocks.end(i, instruction.queue);
  }
  return clocks.over(earlier, program.instructions[earlier].queue, now);
}

}  // namespace protrain::test
