// Verifier: proves that a Program is safe to run. It walks the Program once and keeps for each byte of each arena the
// buffer that owns it, and for each buffer its writers, its readers and whether it was released. An instruction that
// reuses bytes must come after all writers and readers of the bytes' former buffer. Only queue order and waits prove
// this. The order of the Program's list does not.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "program/program.h"
#include "program/vector_clocks.h"

namespace protrain::program {

namespace {

struct Usage {
  bool written = false, released = false;
  VectorClock writers{}, readers{};  // per queue: the last instruction that wrote or read, plus one
};

// Verifier checks one finished Program. It shares only VectorClocks with the code that lays Programs out, so it does
// not repeat that code's mistakes. A failure is a bug of the library, never of its user.
class Verifier {
 public:
  explicit Verifier(const Program &program)
      : program_(program), clocks_(program.instructions.size()), usage_(program.buffers.size()) {
    for (const Buffer &buffer : program.buffers) check_bounds(buffer);
    for (std::size_t i = 0; i < program.buffers.size(); ++i)
      if (program.buffers[i].persistent) take(static_cast<BufferId>(i));
  }

  void run() {
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      const Instruction &instruction = program_.instructions[i];
      start(i);
      check_places(i);
      check_messages(i);
      for (const Operand &in : instruction.inputs)
        if (in.buffer != BufferId::none) read(in.buffer, i);
      for (const Operand &out : instruction.outputs)
        if (out.buffer != BufferId::none) write(out.buffer, i);
      if (instruction.scratch != BufferId::none) write(instruction.scratch, i);
      for (BufferId id : instruction.releases) release(id, i);
    }
    for (BufferId id : program_.results()) require_owned(id, program_.instructions.size());
  }

 private:
  struct Span {
    std::uint64_t end;
    BufferId owner;
  };
  using Spans = std::map<std::uint64_t, Span>;

  const Buffer &buffer(BufferId id) const { return program_.buffers[index(id)]; }
  Spans &spans(const Buffer &b) { return spans_[b.tier]; }
  const Spans &spans(const Buffer &b) const { return spans_[b.tier]; }

  void start(std::size_t i) {
    const Instruction &instruction = program_.instructions[i];
    clocks_.begin(i, instruction.queue);
    for (std::size_t earlier : instruction.waits) {
      require(earlier < i, Code::internal, "program", "instruction {} waits for {}, which comes later", i, earlier);
      clocks_.join(i, earlier, program_.instructions[earlier].queue);
    }
    clocks_.end(i, instruction.queue);
  }

  void check_bounds(const Buffer &buffer) const {
    const Tier tier = buffer.tier;
    const std::uint64_t end = checked_add(buffer.offset, buffer.bytes);
    const std::uint64_t begin = buffer.persistent ? 0 : program_.state_bytes[tier];
    const std::uint64_t limit = buffer.persistent ? program_.state_bytes[tier] : program_.arena_bytes[tier];
    require(buffer.offset % buffer.alignment == 0 && buffer.bytes > 0 && end <= limit && buffer.offset >= begin,
            Code::internal, buffer.name, "buffer at {} of {} bytes does not lie in its part of the {} arena",
            buffer.offset, buffer.bytes, kTierNames[tier]);
  }

  // Returns the only tier that an instruction other than a move may read and write. For an exchange between ranks, the
  // Program says which tier this is. For an instruction on the host's queue it is the host, and for all others the
  // device.
  Tier place_of(const Instruction &instruction) const {
    if (is_between_ranks(instruction.kind)) return program_.exchanges;
    return instruction.queue == Queue::host ? Tier::host : Tier::device;
  }

  // Operands must lie in a tier that the instruction reaches. The bytes of a move must lie inside both of its buffers.
  void check_places(std::size_t now) const {
    const Instruction &instruction = program_.instructions[now];
    const bool moving = moves(instruction.kind);
    const Tier place = place_of(instruction);
    for (const auto *operands : {&instruction.inputs, &instruction.outputs})
      for (const Operand &operand : *operands) {
        if (operand.buffer == BufferId::none) continue;
        const Buffer &b = buffer(operand.buffer);
        require(moving || b.tier == place, Code::internal, b.name, "instruction {} cannot reach a buffer on the {}",
                now, kTierNames[b.tier]);
        require(operand.offset < b.bytes && (!moving || instruction.bytes <= b.bytes - operand.offset), Code::internal,
                b.name, "instruction {} reaches beyond the buffer's {} bytes", now, b.bytes);
      }
  }

  // Messages must lie inside an operand of their instruction.
  void check_messages(std::size_t now) const {
    const Instruction &instruction = program_.instructions[now];
    const auto inside = [&](const Message &message, const std::vector<Operand> &operands) {
      const std::uint64_t bytes = buffer(message.at.buffer).bytes;
      return std::ranges::find(operands, message.at.buffer, &Operand::buffer) != operands.end() && message.bytes > 0 &&
             message.at.offset < bytes && message.bytes <= bytes - message.at.offset;
    };
    for (const Message &message : instruction.sends)
      require(inside(message, instruction.inputs), Code::internal, "program",
              "instruction {} sends rank {} bytes that it does not read", now, message.rank);
    for (const Message &message : instruction.receives)
      require(inside(message, instruction.outputs), Code::internal, "program",
              "instruction {} receives from rank {} bytes that it does not write", now, message.rank);
  }

  bool over(const VectorClock &users, std::size_t now) const {
    for (const Queue q : kQueues)
      if (users[q] > 0 && !clocks_.over(users[q] - 1, q, now)) return false;
    return true;
  }

  void require_over(BufferId id, std::size_t now) const {
    const Usage &usage = usage_[index(id)];
    require(over(usage.writers, now) && over(usage.readers, now), Code::internal, buffer(id).name,
            "instruction {} may start while the buffer is still in use", now);
  }

  void require_owned(BufferId id, std::size_t now) const {
    const Buffer &b = buffer(id);
    auto at = spans(b).upper_bound(b.offset);
    const bool owned = at != spans(b).begin() && std::prev(at)->second.owner == id &&
                       std::prev(at)->second.end >= b.offset + b.bytes && !usage_[index(id)].released;
    require(owned, Code::internal, b.name, "instruction {} reads a buffer that was not written or was given away", now);
  }

  void read(BufferId id, std::size_t now) {
    require_owned(id, now);
    Usage &usage = usage_[index(id)];
    require(over(usage.writers, now), Code::internal, buffer(id).name,
            "instruction {} may read the buffer before it is written", now);
    usage.readers[program_.instructions[now].queue] = now + 1;
  }

  void write(BufferId id, std::size_t now) {
    const Buffer &b = buffer(id);
    Usage &usage = usage_[index(id)];
    require(!usage.released, Code::internal, b.name, "instruction {} writes a buffer that was released", now);
    for (auto at = first_overlap(b); at != spans(b).end() && at->first < b.offset + b.bytes; ++at) {
      const BufferId owner = at->second.owner;
      require(owner == id || usage_[index(owner)].released, Code::internal, b.name,
              "instruction {} writes over {}, which is not released", now, buffer(owner).name);
      require_over(owner, now);
    }
    if (!usage.written) take(id);
    usage.writers[program_.instructions[now].queue] = now + 1;
  }

  void release(BufferId id, std::size_t now) {
    require(!buffer(id).persistent && !usage_[index(id)].released, Code::internal, buffer(id).name,
            "instruction {} releases what cannot be released", now);
    require_over(id, now);
    usage_[index(id)].released = true;
  }

  Spans::iterator first_overlap(const Buffer &b) {
    auto at = spans(b).upper_bound(b.offset);
    if (at != spans(b).begin() && std::prev(at)->second.end > b.offset) --at;
    return at;
  }

  // The buffer becomes the owner of its bytes; former owners lose them.
  void take(BufferId id) {
    const Buffer &b = buffer(id);
    const std::uint64_t end = b.offset + b.bytes;
    auto at = first_overlap(b);
    while (at != spans(b).end() && at->first < end) {
      const auto [start, span] = *at;
      at = spans(b).erase(at);
      if (start < b.offset) spans(b)[start] = {b.offset, span.owner};
      if (span.end > end) at = spans(b).insert_or_assign(end, Span{span.end, span.owner}).first;
    }
    spans(b)[b.offset] = {end, id};
    usage_[index(id)].written = true;
  }

  const Program &program_;
  VectorClocks clocks_;
  std::vector<Usage> usage_;  // per buffer
  PerTier<Spans> spans_;      // owned bytes, by start
};

}  // namespace

void verify(const Program &program) { Verifier(program).run(); }

}  // namespace protrain::program
