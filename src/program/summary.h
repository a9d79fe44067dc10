// What a step did with its time: the same figures for what the simulator predicts and for what the executor records.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <vector>

#include "program/program.h"
#include "program/simulate.h"

namespace protrain::program {

// When an instruction ran, counted from the step's start.
struct Span {
  std::int64_t start_ns = 0, end_ns = 0;
  bool operator==(const Span &) const = default;
};

std::vector<Span> spans_of(const Simulation &simulation);

// What the time went to in which nothing of the compute queue ran: to a kind of instruction that compute waited for (by
// its number), or to one of these.
inline constexpr std::size_t kKindCount = std::size(kKindNames);
enum class Stall : std::uint8_t {
  inlined = kKindCount,  // an instruction of another queue ran in compute's place
  start,                 // what else lies before compute's first instruction
  end,                   // and after its last
  issue,                 // nothing that was waited for: issuing, waking up
};
inline constexpr std::size_t kStallCount = kKindCount + 4;
inline constexpr std::size_t kFirstStall = static_cast<std::size_t>(Kind::update);  // compute waits for no run or check
const char *name_of_stall(std::size_t stall);

// The compute queue's busy time and all stalls together are the step.
struct Summary {
  std::int64_t step_ns = 0;
  std::array<std::int64_t, kQueueCount> busy_ns{};   // per queue: one of its instructions ran
  std::array<std::int64_t, kStallCount> stall_ns{};  // by Kind, then by Stall
  // Of the time in which a queue other than compute was busy, the share in which compute was busy too; 0 where no other
  // queue ever was. What runs in compute's place is never overlapped.
  double overlap = 0;
};

// `spans`: one per instruction; `beside`: the queues that did not run in compute's place; `step_ns`: the whole step, at
// least to the end of its last instruction.
//   Stalls follow the chain of waits: an instruction that starts late was held up by what ended last of all it waits
//   for
// and of what its queue ran before it; while that ran, the stall is its; before that, of what held that up; and so on
// back to where compute fell idle. So compute that waits for a fetch that waits for a read has a stall of either kind.
Summary summarize(const Program &program, const std::vector<Span> &spans, const Beside &beside, std::int64_t step_ns);

// When the queue was busy, in order; spans that lie no further than `join_ns` apart are one.
std::vector<Span> busy_spans(const Program &program, const std::vector<Span> &spans, Queue queue,
                             std::int64_t join_ns = 0);

}  // namespace protrain::program
