// Proof that a Program is safe to run: walks it once, keeping for each byte of the arena the buffer that owns it and
// for each buffer who wrote and who reads it. Whoever takes bytes over must come after all of them, through queue order
// and waits, never through list order alone.
#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "program/program.h"

namespace protrain::program {

namespace {

constexpr std::size_t kNever = static_cast<std::size_t>(-1);

// For each instruction and queue, the last instruction of that queue that is certainly over when it starts, plus one.
using Clock = std::array<std::size_t, kQueueCount>;

std::vector<Clock> happens_before(const Program &program) {
  std::vector<Clock> clocks(program.instructions.size());
  Clock queue_of_last{};  // per queue: last instruction issued to it, plus one
  for (std::size_t i = 0; i < clocks.size(); ++i) {
    const Instruction &instruction = program.instructions[i];
    const auto join = [&](std::size_t earlier) {
      for (std::size_t q = 0; q < kQueueCount; ++q) clocks[i][q] = std::max(clocks[i][q], clocks[earlier][q]);
      const auto queue = static_cast<std::size_t>(program.instructions[earlier].queue);
      clocks[i][queue] = std::max(clocks[i][queue], earlier + 1);
    };
    const auto own = static_cast<std::size_t>(instruction.queue);
    if (queue_of_last[own] > 0) join(queue_of_last[own] - 1);
    for (std::size_t earlier : instruction.waits) {
      require(earlier < i, Code::internal, "program", "instruction {} waits for {}, which comes later", i, earlier);
      join(earlier);
    }
    queue_of_last[own] = i + 1;
  }
  return clocks;
}

struct Usage {
  std::size_t writer = kNever;
  std::vector<std::size_t> readers;  // since the last write
};

class Verifier {
 public:
  explicit Verifier(const Program &program)
      : program_(program), clocks_(happens_before(program)), usage_(program.buffers.size()) {
    for (std::size_t i = 0; i < program.buffers.size(); ++i) check_bounds(program.buffers[i]);
    for (std::size_t i = 0; i < program.buffers.size(); ++i)
      if (program.buffers[i].persistent) take(static_cast<BufferId>(i), kNever);
  }

  void run() {
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      const Instruction &instruction = program_.instructions[i];
      for (BufferId id : instruction.inputs)
        if (id != BufferId::none) read(id, i);
      for (BufferId id : instruction.outputs)
        if (id != BufferId::none) write(id, i);
      if (instruction.scratch != BufferId::none) write(instruction.scratch, i);
    }
    for (BufferId id : {program_.loss, program_.norm})
      if (id != BufferId::none) require_owned(id, program_.instructions.size());
  }

 private:
  struct Span {
    std::uint64_t end;
    BufferId owner;
  };

  const Buffer &buffer(BufferId id) const { return program_.buffers[index(id)]; }

  void check_bounds(const Buffer &buffer) const {
    const std::uint64_t end = checked_add(buffer.offset, buffer.bytes);
    const std::uint64_t limit = buffer.persistent ? program_.state_bytes : program_.arena_bytes;
    require(buffer.offset % kAlignment == 0 && buffer.bytes > 0 && end <= limit &&
                (buffer.persistent || buffer.offset >= program_.state_bytes),
            Code::internal, buffer.name, "buffer at {} of {} bytes does not lie in its part of the arena",
            buffer.offset, buffer.bytes);
  }

  bool over(std::size_t earlier, std::size_t now) const {
    if (earlier == kNever || earlier == now) return true;
    return clocks_[now][static_cast<std::size_t>(program_.instructions[earlier].queue)] > earlier;
  }

  void require_over(const Usage &usage, BufferId id, std::size_t now) const {
    const bool safe =
        over(usage.writer, now) && std::ranges::all_of(usage.readers, [&](std::size_t r) { return over(r, now); });
    require(safe, Code::internal, buffer(id).name, "instruction {} may start while the buffer is still in use", now);
  }

  void require_owned(BufferId id, std::size_t now) const {
    const Buffer &b = buffer(id);
    auto at = spans_.upper_bound(b.offset);
    require(at != spans_.begin() && std::prev(at)->second.owner == id &&
                std::prev(at)->second.end >= b.offset + b.bytes && std::prev(at)->first <= b.offset,
            Code::internal, b.name, "instruction {} reads a buffer whose bytes were not written or were given away",
            now);
  }

  void read(BufferId id, std::size_t now) {
    require_owned(id, now);
    require(over(usage_[index(id)].writer, now), Code::internal, buffer(id).name,
            "instruction {} may read the buffer before it is written", now);
    usage_[index(id)].readers.push_back(now);
  }

  void write(BufferId id, std::size_t now) {
    const Buffer &b = buffer(id);
    for (auto at = first_overlap(b); at != spans_.end() && at->first < b.offset + b.bytes; ++at) {
      require(!buffer(at->second.owner).persistent || at->second.owner == id, Code::internal, b.name,
              "instruction {} writes over {}", now, buffer(at->second.owner).name);
      require_over(usage_[index(at->second.owner)], at->second.owner, now);
    }
    take(id, now);
  }

  std::map<std::uint64_t, Span>::iterator first_overlap(const Buffer &b) {
    auto at = spans_.upper_bound(b.offset);
    if (at != spans_.begin() && std::prev(at)->second.end > b.offset) --at;
    return at;
  }

  // The buffer becomes the owner of its bytes; what it takes from others is no longer theirs.
  void take(BufferId id, std::size_t now) {
    const Buffer &b = buffer(id);
    const std::uint64_t end = b.offset + b.bytes;
    auto at = first_overlap(b);
    while (at != spans_.end() && at->first < end) {
      const std::uint64_t start = at->first;
      const Span span = at->second;
      at = spans_.erase(at);
      if (start < b.offset) spans_[start] = {b.offset, span.owner};
      if (span.end > end) at = spans_.insert_or_assign(end, Span{span.end, span.owner}).first;
    }
    spans_[b.offset] = {end, id};
    usage_[index(id)] = {.writer = now, .readers = {}};
  }

  const Program &program_;
  std::vector<Clock> clocks_;
  std::vector<Usage> usage_;             // per buffer
  std::map<std::uint64_t, Span> spans_;  // owned bytes, by start
};

}  // namespace

void verify(const Program &program) { Verifier(program).run(); }

}  // namespace protrain::program
