// Programs as readable text.
#include <fmt/format.h>

#include <iterator>

#include "program/program.h"

namespace protrain::program {

namespace {

// Appends the operand's buffer, tier, offset and size. `bytes`: the size; 0: all from the operand's offset to the
// buffer's end.
void append_buffer(std::string &out, const Program &program, const Operand &operand, std::uint64_t bytes = 0) {
  if (operand.buffer == BufferId::none) {
    out += " -";
    return;
  }
  const Buffer &buffer = program.buffers[index(operand.buffer)];
  out += fmt::format(" {}@{}:{}+{}", buffer.name, kTierNames[buffer.tier], buffer.offset + operand.offset,
                     bytes > 0 ? bytes : buffer.bytes - operand.offset);
}

std::string subject(const Program &program, const graph::Graph &graph, const Instruction &instruction) {
  if (instruction.kind == Kind::run) {
    const graph::Node &node = graph.node(instruction.node);
    return fmt::format("{} ({}){}", node.op, node.name, instruction.again ? " again" : "");
  }
  if (instruction.kind == Kind::update) {
    const Target &first = instruction.targets[0];
    std::string text = graph.value(graph.parameters[first.parameter]).name;
    if (first.group > 0) text += fmt::format(" of group {}", first.group);
    const std::size_t others = instruction.targets.size() - 1;
    return others == 0 ? text : fmt::format("{} and {} more", text, others);
  }
  return program.buffers[index(instruction.inputs[0].buffer)].name;
}

}  // namespace

std::string describe(const Program &program, const graph::Graph &graph, std::size_t position) {
  const Instruction &instruction = program.instructions[position];
  return fmt::format("{} {} {}", position, kKindNames[instruction.kind], subject(program, graph, instruction));
}

std::string operation_of(const Instruction &instruction, const graph::Graph &graph) {
  return instruction.kind == Kind::run ? graph.node(instruction.node).op : kKindNames[instruction.kind];
}

std::string print(const Program &program, const graph::Graph &graph) {
  std::string out = fmt::format("program: {} instructions", program.instructions.size());
  for (const Tier t : kTiers)
    out += fmt::format("; {} {} bytes, of which {} hold from step to step", kTierNames[t], program.arena_bytes[t],
                       program.state_bytes[t]);
  out += "\n";
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction &instruction = program.instructions[i];
    out += fmt::format("{} {}", kQueueNames[instruction.queue], describe(program, graph, i));
    for (std::size_t wait : instruction.waits) out += fmt::format(" after {}", wait);
    out += ":";
    const std::uint64_t bytes = instruction.targets.size() > 1 ? 0 : instruction.bytes;
    for (std::size_t k = 0; k < instruction.inputs.size(); ++k)
      append_buffer(out, program, instruction.inputs[k], k == 0 ? bytes : 0);
    out += " ->";
    for (const Operand &operand : instruction.outputs) append_buffer(out, program, operand, bytes);
    if (instruction.scratch != BufferId::none) {
      out += " using";
      append_buffer(out, program, {instruction.scratch, 0});
    }
    if (!instruction.releases.empty()) out += " releases";
    for (BufferId id : instruction.releases) out += " " + program.buffers[index(id)].name;
    out += "\n";
  }
  return out;
}

}  // namespace protrain::program
