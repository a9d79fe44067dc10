// Figures of how a step uses its time. The simulator's prediction and the executor's record have the same figures.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"
#include "program/simulate.h"

namespace protrain::program {

// The time in which an instruction ran, counted from the step's start.
struct Span {
  std::int64_t start_ns = 0, end_ns = 0;
  bool operator==(const Span &) const = default;
};

std::vector<Span> spans_of(const Simulation &simulation);

// The reason why the compute queue ran nothing. The first nine reasons are kinds of instructions: compute waited for an
// instruction of this kind on another queue.
enum class Stall : std::uint8_t {
  update,
  fetch,
  offload,
  swap_out,
  swap_in,
  read,
  write,
  all_to_all,
  all_gather,
  inlined,  // compute's worker ran an instruction of a queue that has no worker of its own
  start,    // compute's first instruction had not begun
  end,      // compute's last instruction was over
  issue,    // compute waited for nothing: the time went to issuing and waking up
};
template <typename T>
using PerStall = EnumArray<Stall, 13, T>;
inline constexpr auto kStalls = all_values<Stall, 13>();
inline constexpr PerStall<const char *> kStallNames = {"update", "fetch", "offload",    "swap_out",   "swap_in",
                                                       "read",   "write", "all_to_all", "all_gather", "inline",
                                                       "start",  "end",   "issue"};
Stall stall_of(Kind kind);  // the stall of compute while it waits for an instruction of this kind

// The use of a step's time. The compute queue's busy_ns and all of stall_ns add up to step_ns.
struct Summary {
  std::int64_t step_ns = 0;
  PerQueue<std::int64_t> busy_ns{};  // time in which one of the queue's instructions ran
  PerStall<std::int64_t> stall_ns{};
  // The share of the other queues' busy time in which compute was busy too; 0 if no other queue was ever busy.
  // Instructions of a queue without a worker of its own count as busy time, but never as overlapped: they run on
  // compute's worker, so compute waits meanwhile.
  double overlap = 0;
};

// Returns how a step used its time. `spans`: one per instruction. `beside`: the queues that have a worker of their own
// and so run at the same time as compute. `step_ns`: the whole step, at least to the end of its last instruction.
//   Stalls follow the chain of waits. An instruction can start only after the instructions that it waits for, and after
// the previous instruction of its queue. The one of these instructions that ended last is the culprit. The time in
// which the culprit ran is a stall of the culprit's kind. If the culprit started only after compute fell idle, the time
// before its start is a stall of its own culprit's kind, and so on. So if compute waits for a fetch that waits for a
// read, both kinds have a stall.
Summary summarize(const Program &program, const std::vector<Span> &spans, const Beside &beside, std::int64_t step_ns);

// Returns the spans in which the queue was busy, in order. Spans no further than `join_ns` apart are joined.
std::vector<Span> busy_spans(const Program &program, const std::vector<Span> &spans, Queue queue,
                             std::int64_t join_ns = 0);

// Returns the time in which the disk was read, written, or both.
std::int64_t disk_busy_ns(const Program &program, const std::vector<Span> &spans);

}  // namespace protrain::program
