#include "program/builder.h"

#include <algorithm>

#include "base/error.h"
#include "base/shape.h"
#include "program/arena.h"
#include "program/storage.h"

namespace protrain::program {

namespace {

Queue queue_between(Tier from, Tier to) {
  if (from == Tier::disk) return Queue::disk_read;
  if (to == Tier::disk) return Queue::disk_write;
  if (from == to) return from == Tier::device ? Queue::compute : Queue::host;
  return to == Tier::device ? Queue::upload : Queue::download;
}

bool is_towards_device(Tier from, Tier to) { return static_cast<int>(to) < static_cast<int>(from); }

Kind kind_between(Tier from, Tier to) {
  if (from == Tier::disk) return Kind::read;
  if (to == Tier::disk) return Kind::write;
  return is_towards_device(from, to) ? Kind::fetch : Kind::offload;
}

}  // namespace

Builder::Builder(const State &state, const plan::Plan &plan) : slack_(plan.slack) {
  program.buffers = state.buffers;
  program.state_bytes = state.bytes;
  program.status = state.status;
  program.shares_memory = plan.shared_memory;
  program.exchanges = state.exchanges;
}

BufferId Builder::add(const std::string &name, Tier tier, std::uint64_t bytes, std::uint64_t alignment, Owner owner) {
  program.buffers.push_back(
      {.name = name, .tier = tier, .bytes = std::max<std::uint64_t>(bytes, 1), .alignment = alignment, .owner = owner});
  return static_cast<BufferId>(program.buffers.size() - 1);
}

void Builder::emit(Instruction instruction) {
  instruction.earlier = earlier_;
  program.instructions.push_back(std::move(instruction));
}

void Builder::move(Operand from, Operand to, std::uint64_t bytes) {
  copy(kind_between(buffer(from.buffer).tier, buffer(to.buffer).tier), from, to, bytes);
}

void Builder::swap(Operand from, Operand to, std::uint64_t bytes) {
  const bool comes_back = is_towards_device(buffer(from.buffer).tier, buffer(to.buffer).tier);
  copy(comes_back ? Kind::swap_in : Kind::swap_out, from, to, bytes);
}

void Builder::copy(Kind kind, Operand from, Operand to, std::uint64_t bytes) {
  const Queue queue = queue_between(buffer(from.buffer).tier, buffer(to.buffer).tier);
  emit({.kind = kind, .queue = queue, .bytes = bytes, .inputs = {from}, .outputs = {to}});
}

Tier Builder::next(Tier from, Tier to) const {
  const bool apart = (from == Tier::disk && to == Tier::device) || (from == Tier::device && to == Tier::disk);
  return apart && !program.shares_memory ? Tier::host : to;
}

std::uint64_t Builder::alignment_for(Tier tier, Tier other) const {
  return std::max(alignment_in(tier), alignment_in(other));
}

Operand Builder::bring(Operand home, std::uint64_t bytes, Tier to) {
  Operand at = home;
  while (buffer(at.buffer).tier != to) {
    const Tier from = buffer(at.buffer).tier, tier = next(from, to);
    // If the bytes rest on the disk, the copy has the disk's alignment too, because it may be written back.
    const Buffer &rest = buffer(home.buffer);
    const Operand copy = {add(rest.name, tier, bytes, alignment_for(from, rest.tier), rest.owner), 0};
    move(at, copy, bytes);
    at = copy;
  }
  return at;
}

void Builder::store(Operand from, Operand home, std::uint64_t bytes) {
  const Tier target = buffer(home.buffer).tier;
  Operand at = from;
  for (Tier tier = next(buffer(at.buffer).tier, target); tier != target; tier = next(tier, target)) {
    const Operand copy = {
        add(buffer(home.buffer).name, tier, bytes, alignment_for(tier, target), buffer(home.buffer).owner), 0};
    move(at, copy, bytes);
    at = copy;
  }
  move(at, home, bytes);
}

void Builder::keep_to_end(BufferId id) {
  require(id != BufferId::none, Code::internal, "", "a value to keep is nowhere");
  kept_.push_back(id);
}

std::size_t Builder::end_of_slack(std::size_t instruction) const {
  if (slack_ == 0) return instruction;
  const auto next = std::ranges::upper_bound(stage_begins_, instruction);
  const bool ends = stage_begins_.end() - next > slack_;
  return ends ? *(next + slack_) : program.instructions.size();
}

Program Builder::finish() {
  const std::size_t persistent = static_cast<std::size_t>(
      std::ranges::find_if(program.buffers, [](const Buffer &b) { return !b.persistent; }) - program.buffers.begin());
  std::vector<std::size_t> first(program.buffers.size(), kNever), last(program.buffers.size(), 0);
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const auto use = [&](BufferId id) {
      if (id == BufferId::none || index(id) < persistent) return;
      first[index(id)] = std::min(first[index(id)], i);
      last[index(id)] = i;
    };
    for (const Operand &operand : program.instructions[i].inputs) use(operand.buffer);
    for (const Operand &operand : program.instructions[i].outputs) use(operand.buffer);
    use(program.instructions[i].scratch);
  }
  for (BufferId id : kept_)
    if (index(id) >= persistent) last[index(id)] = kNever;
  for (std::size_t b = persistent; b < program.buffers.size(); ++b)
    if (first[b] != kNever && last[b] != kNever)
      program.instructions[last[b]].releases.push_back(static_cast<BufferId>(b));
  place(first, last);
  add_waits(program);
  return std::move(program);
}

void Builder::place(const std::vector<std::size_t> &first, const std::vector<std::size_t> &last) {
  for (const Tier t : kTiers) {
    std::vector<Interval> intervals;
    std::vector<std::size_t> of_interval;
    for (std::size_t b = 0; b < program.buffers.size(); ++b) {
      const Buffer &buffer = program.buffers[b];
      if (buffer.persistent || buffer.tier != t || first[b] == kNever) continue;
      const bool computes = last[b] != kNever && program.instructions[last[b]].queue == Queue::compute;
      const std::size_t end = computes || last[b] == kNever ? last[b] : end_of_slack(last[b]);
      intervals.push_back({.first = first[b], .last = end, .bytes = buffer.bytes, .alignment = buffer.alignment});
      of_interval.push_back(b);
    }
    program.arena_bytes[t] = assign_offsets(intervals, program.state_bytes[t]);
    for (std::size_t i = 0; i < intervals.size(); ++i) program.buffers[of_interval[i]].offset = intervals[i].offset;
  }
}

}  // namespace protrain::program
