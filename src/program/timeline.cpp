#include "program/timeline.h"

#include <algorithm>
#include <numeric>

namespace protrain::program {

namespace {

class BytesByOwner {
 public:
  explicit BytesByOwner(const Program &program) : program_(program), begun_(program.buffers.size(), false) {
    for (const Buffer &buffer : program.buffers)
      if (buffer.persistent) held(buffer) += buffer.bytes;
    for (const Tier t : kTiers) now_[t][Owner::workspace] += program.state_bytes[t] - total(now_[t]);
  }

  void begin(const Instruction &instruction) {
    for (const Operand &out : instruction.outputs) take(out.buffer);
    take(instruction.scratch);
  }
  void end(const Instruction &instruction) {
    for (BufferId id : instruction.releases) {
      const Buffer &buffer = program_.buffers[index(id)];
      held(buffer) -= buffer.bytes;
    }
  }
  const Holdings &now(Tier tier) const { return now_[tier]; }

 private:
  std::uint64_t &held(const Buffer &buffer) { return now_[buffer.tier][buffer.owner]; }
  void take(BufferId id) {
    if (id == BufferId::none || program_.buffers[index(id)].persistent || begun_[index(id)]) return;
    begun_[index(id)] = true;
    held(program_.buffers[index(id)]) += program_.buffers[index(id)].bytes;
  }

  const Program &program_;
  std::vector<bool> begun_;
  PerTier<Holdings> now_{};
};

// Returns the time at which the chart shows each instruction. No instruction is shown at an earlier time than the one
// before it in the list.
std::vector<std::int64_t> places(const Program &program, const std::vector<Span> &spans) {
  std::size_t tail = spans.size();
  while (tail > 0 && program.instructions[tail - 1].queue != Queue::compute) --tail;
  std::vector<std::int64_t> at_ns(spans.size());
  std::int64_t now = 0;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    if (i >= tail || program.instructions[i].queue == Queue::compute) now = std::max(now, spans[i].start_ns);
    at_ns[i] = now;
  }
  return at_ns;
}

// Adds the point if its bytes differ from the last point's.
void add(std::vector<TimelinePoint> &points, const TimelinePoint &point) {
  if (!points.empty() && points.back().bytes == point.bytes) return;
  points.push_back(point);
}

// Leaves out points if there are more than `most`. Cuts the time into equal stretches, and of each stretch keeps the
// point with the most bytes and the last point.
std::vector<TimelinePoint> thinned(const std::vector<TimelinePoint> &points, std::size_t most) {
  if (points.size() <= most) return points;
  const auto stretches = static_cast<std::int64_t>(std::max<std::size_t>(most, 4) / 2 - 1);
  const std::int64_t ns = points.back().at_ns / stretches + 1;
  std::vector<TimelinePoint> kept;
  for (std::size_t begin = 0; begin < points.size();) {
    std::size_t end = begin, highest = begin;
    for (; end < points.size() && points[end].at_ns / ns == points[begin].at_ns / ns; ++end)
      if (total(points[end].bytes) > total(points[highest].bytes)) highest = end;
    kept.push_back(points[highest]);
    if (highest + 1 != end) kept.push_back(points[end - 1]);
    begin = end;
  }
  return kept;
}

}  // namespace

std::uint64_t total(const Holdings &holdings) {
  return std::accumulate(holdings.begin(), holdings.end(), std::uint64_t{0});
}

Timeline timeline(const Program &program, const std::vector<Span> &spans, std::size_t most) {
  Timeline all;
  BytesByOwner books(program);
  const std::vector<std::int64_t> at_ns = places(program, spans);
  std::int64_t end_ns = 0;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    books.begin(program.instructions[i]);
    for (const Tier t : kTiers) add(all[t], {at_ns[i], books.now(t)});
    books.end(program.instructions[i]);
    end_ns = std::max(end_ns, spans[i].end_ns);
  }
  for (const Tier t : kTiers) {
    all[t].push_back({end_ns, books.now(t)});
    const bool used = std::ranges::any_of(all[t], [](const TimelinePoint &point) { return total(point.bytes) > 0; });
    all[t] = used ? thinned(all[t], most) : std::vector<TimelinePoint>{};
  }
  return all;
}

}  // namespace protrain::program
