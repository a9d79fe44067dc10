#include "program/arena.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/queue.h"
#include "base/shape.h"

namespace protrain::program {

namespace {

bool overlap_in_time(const Interval &a, const Interval &b) { return a.first <= b.last && b.first <= a.last; }

// The start of the tightest gap of at least `bytes` between `busy` intervals, which are sorted by offset.
std::uint64_t tightest_gap(const std::vector<const Interval *> &busy, std::uint64_t bytes) {
  std::uint64_t best = 0, best_slack = std::numeric_limits<std::uint64_t>::max(), end = 0;
  for (const Interval *interval : busy) {
    if (interval->offset >= end + bytes && interval->offset - end - bytes < best_slack) {
      best = end;
      best_slack = interval->offset - end - bytes;
    }
    end = std::max(end, interval->offset + interval->bytes);
  }
  return best_slack == std::numeric_limits<std::uint64_t>::max() ? end : best;
}

}  // namespace

std::uint64_t assign_offsets(std::vector<Interval> &intervals) {
  std::vector<std::size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (Interval &interval : intervals)
    interval.bytes = round_up(std::max<std::uint64_t>(interval.bytes, 1), kAlignment);
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return intervals[a].bytes > intervals[b].bytes; });

  std::uint64_t used = 0;
  std::vector<std::size_t> placed;  // sorted by offset
  std::vector<const Interval *> busy;
  for (std::size_t i : order) {
    busy.clear();
    for (std::size_t other : placed)
      if (overlap_in_time(intervals[i], intervals[other])) busy.push_back(&intervals[other]);
    intervals[i].offset = tightest_gap(busy, intervals[i].bytes);
    used = std::max(used, checked_add(intervals[i].offset, intervals[i].bytes));
    const auto by_offset = [&](std::size_t a, std::size_t b) { return intervals[a].offset < intervals[b].offset; };
    placed.insert(std::ranges::upper_bound(placed, i, by_offset), i);
  }
  return used;
}

}  // namespace protrain::program
