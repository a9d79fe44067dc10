#include "program/summary.h"

#include <algorithm>
#include <limits>

namespace protrain::program {

namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

// Sorts the spans and joins those at most `join_ns` apart; the result is disjoint.
std::vector<Span> joined(std::vector<Span> spans, std::int64_t join_ns) {
  std::ranges::sort(spans, {}, &Span::start_ns);
  std::vector<Span> all;
  for (const Span &span : spans) {
    if (span.start_ns == span.end_ns) continue;
    if (all.empty() || span.start_ns - all.back().end_ns > join_ns)
      all.push_back(span);
    else
      all.back().end_ns = std::max(all.back().end_ns, span.end_ns);
  }
  return all;
}

std::int64_t total(const std::vector<Span> &spans) {
  std::int64_t ns = 0;
  for (const Span &span : spans) ns += span.end_ns - span.start_ns;
  return ns;
}

// Returns the time that two sorted lists of disjoint spans have in common.
std::int64_t common(const std::vector<Span> &a, const std::vector<Span> &b) {
  std::int64_t ns = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    ns += std::max<std::int64_t>(0, std::min(a[i].end_ns, b[j].end_ns) - std::max(a[i].start_ns, b[j].start_ns));
    ++(a[i].end_ns < b[j].end_ns ? i : j);
  }
  return ns;
}

// Goes through the instructions that ran on compute, in order, and finds the reason for each gap between them.
class Stalls {
 public:
  Stalls(const Program &program, const std::vector<Span> &spans, const Beside &beside)
      : program_(program), spans_(spans), beside_(beside), before_(spans.size(), kNone) {
    PerQueue<std::size_t> last{};
    last.fill(kNone);
    for (std::size_t i = 0; i < spans.size(); ++i) {
      std::size_t &previous = last[queue(i)];
      if (apart(i)) before_[i] = previous;
      previous = i;
    }
    last_computed_ = last[Queue::compute];
  }

  PerStall<std::int64_t> run(std::int64_t step_ns) {
    std::int64_t at = 0;
    bool computed = false;
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      if (apart(i)) continue;
      const Span span = {std::max(spans_[i].start_ns, at), std::max(spans_[i].end_ns, at)};
      const bool over = last_computed_ == kNone || i > last_computed_;
      if (!computed || over)
        stall_ns_[computed ? Stall::end : Stall::start] += span.start_ns - at;
      else
        explain(i, at, span.start_ns);
      if (queue(i) != Queue::compute) stall_ns_[Stall::inlined] += span.end_ns - span.start_ns;
      computed = computed || queue(i) == Queue::compute;
      at = span.end_ns;
    }
    stall_ns_[Stall::end] += step_ns - at;
    return stall_ns_;
  }

 private:
  Queue queue(std::size_t i) const { return program_.instructions[i].queue; }
  bool apart(std::size_t i) const { return queue(i) != Queue::compute && beside_[queue(i)]; }

  // Among the instructions for which instruction `i` had to wait, returns the one that ended last; kNone: there is
  // none.
  std::size_t held_up_by(std::size_t i) const {
    std::size_t latest = before_[i];
    for (std::size_t wait : program_.instructions[i].waits)
      if (latest == kNone || spans_[wait].end_ns > spans_[latest].end_ns) latest = wait;
    return latest;
  }

  // Divides the time from `from` to `until`, in which compute was idle, among the kinds of stalls. Instruction `i`
  // started on compute at `until`.
  void explain(std::size_t i, std::int64_t from, std::int64_t until) {
    while (until > from) {
      i = held_up_by(i);
      const bool explains = i != kNone && apart(i) && spans_[i].end_ns > from;
      const std::int64_t end = explains ? std::min(spans_[i].end_ns, until) : from;
      stall_ns_[Stall::issue] += until - end;
      if (!explains) return;
      until = std::clamp(spans_[i].start_ns, from, end);
      stall_ns_[stall_of(program_.instructions[i].kind)] += end - until;
    }
  }

  const Program &program_;
  const std::vector<Span> &spans_;
  const Beside &beside_;
  std::vector<std::size_t> before_;  // per instruction that ran apart from compute: the one before it on its queue
  std::size_t last_computed_ = kNone;
  PerStall<std::int64_t> stall_ns_{};
};

}  // namespace

std::vector<Span> spans_of(const Simulation &simulation) {
  std::vector<Span> spans;
  spans.reserve(simulation.entries.size());
  for (const Entry &entry : simulation.entries) spans.push_back({entry.start_ns, entry.end_ns});
  return spans;
}

Stall stall_of(Kind kind) {
  switch (kind) {
    case Kind::run:
    case Kind::check:
      return Stall::issue;  // these are compute's own
    case Kind::update:
      return Stall::update;
    case Kind::fetch:
      return Stall::fetch;
    case Kind::offload:
      return Stall::offload;
    case Kind::swap_out:
      return Stall::swap_out;
    case Kind::swap_in:
      return Stall::swap_in;
    case Kind::read:
      return Stall::read;
    case Kind::write:
      return Stall::write;
    case Kind::all_to_all:
      return Stall::all_to_all;
    case Kind::all_gather:
      return Stall::all_gather;
  }
  return Stall::issue;
}

std::vector<Span> busy_spans(const Program &program, const std::vector<Span> &spans, Queue queue,
                             std::int64_t join_ns) {
  std::vector<Span> own;
  for (std::size_t i = 0; i < spans.size(); ++i)
    if (program.instructions[i].queue == queue) own.push_back(spans[i]);
  return joined(std::move(own), join_ns);
}

std::int64_t disk_busy_ns(const Program &program, const std::vector<Span> &spans) {
  std::vector<Span> moves;
  for (std::size_t i = 0; i < spans.size(); ++i)
    if (is_of_disk(program.instructions[i].queue)) moves.push_back(spans[i]);
  return total(joined(std::move(moves), 0));
}

Summary summarize(const Program &program, const std::vector<Span> &spans, const Beside &beside, std::int64_t step_ns) {
  Summary summary{.step_ns = step_ns};
  std::vector<Span> others;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Queue queue = program.instructions[i].queue;
    summary.busy_ns[queue] += spans[i].end_ns - spans[i].start_ns;
    summary.step_ns = std::max(summary.step_ns, spans[i].end_ns);
    if (queue != Queue::compute) others.push_back(spans[i]);
  }
  summary.stall_ns = Stalls(program, spans, beside).run(summary.step_ns);
  others = joined(std::move(others), 0);
  if (const std::int64_t busy = total(others); busy > 0)
    summary.overlap =
        static_cast<double>(common(others, busy_spans(program, spans, Queue::compute))) / static_cast<double>(busy);
  return summary;
}

}  // namespace protrain::program
