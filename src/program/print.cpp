// The readable form of a Program.
#include <fmt/format.h>

#include <iterator>

#include "program/program.h"

namespace protrain::program {

namespace {

void append_buffers(std::string &out, const Program &program, const std::vector<BufferId> &ids) {
  for (BufferId id : ids) {
    if (id == BufferId::none) {
      out += " -";
      continue;
    }
    const Buffer &buffer = program.buffers[index(id)];
    fmt::format_to(std::back_inserter(out), " {}@{}+{}", buffer.name, buffer.offset, buffer.bytes);
  }
}

}  // namespace

std::string describe(const Program &program, const graph::Graph &graph, std::size_t position) {
  const Instruction &instruction = program.instructions[position];
  switch (instruction.kind) {
    case Kind::run: {
      const graph::Node &node = graph.node(instruction.node);
      return fmt::format("{} run {} ({})", position, node.op, node.name);
    }
    case Kind::check:
      return fmt::format("{} check {}", position, program.buffers[index(instruction.inputs[0])].name);
    case Kind::update:
      return fmt::format("{} update {}", position, program.buffers[index(instruction.outputs[0])].name);
  }
  return std::to_string(position);
}

std::string print(const Program &program, const graph::Graph &graph) {
  std::string out = fmt::format("program: {} instructions, arena {} bytes, of which {} hold from step to step\n",
                                program.instructions.size(), program.arena_bytes, program.state_bytes);
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction &instruction = program.instructions[i];
    fmt::format_to(std::back_inserter(out), "{} {}", kQueueNames[static_cast<std::size_t>(instruction.queue)],
                   describe(program, graph, i));
    for (std::size_t wait : instruction.waits) fmt::format_to(std::back_inserter(out), " after {}", wait);
    out += ":";
    append_buffers(out, program, instruction.inputs);
    out += " ->";
    append_buffers(out, program, instruction.outputs);
    if (instruction.scratch != BufferId::none) {
      out += " using";
      append_buffers(out, program, {instruction.scratch});
    }
    out += "\n";
  }
  return out;
}

}  // namespace protrain::program
