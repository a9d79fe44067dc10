#include "program/arena.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/shape.h"

namespace protrain::program {

namespace {

constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

bool overlap_in_time(const Interval &a, const Interval &b) { return a.first <= b.last && b.first <= a.last; }

std::uint64_t occupied_bytes(const Interval &interval) {
  return round_up(std::max<std::uint64_t>(interval.bytes, 1), kAlignment);
}

// The start of the tightest gap for `wanted` from `base` on, between `busy` intervals, which are sorted by offset.
std::uint64_t tightest_gap(const std::vector<const Interval *> &busy, const Interval &wanted, std::uint64_t base) {
  const std::uint64_t bytes = occupied_bytes(wanted);
  std::uint64_t best = kNone, best_slack = kNone, end = base;
  for (const Interval *interval : busy) {
    const std::uint64_t start = round_up(end, wanted.alignment);
    if (interval->offset >= start + bytes && interval->offset - start - bytes < best_slack) {
      best = start;
      best_slack = interval->offset - start - bytes;
    }
    end = std::max(end, interval->offset + occupied_bytes(*interval));
  }
  return best == kNone ? round_up(end, wanted.alignment) : best;
}

}  // namespace

std::uint64_t assign_offsets(std::vector<Interval> &intervals, std::uint64_t base) {
  std::vector<std::size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return intervals[a].bytes > intervals[b].bytes; });

  std::uint64_t used = base;
  std::vector<std::size_t> placed;  // sorted by offset
  std::vector<const Interval *> busy;
  for (std::size_t i : order) {
    busy.clear();
    for (std::size_t other : placed)
      if (overlap_in_time(intervals[i], intervals[other])) busy.push_back(&intervals[other]);
    intervals[i].offset = tightest_gap(busy, intervals[i], base);
    used = std::max(used, checked_add(intervals[i].offset, intervals[i].bytes));
    const auto by_offset = [&](std::size_t a, std::size_t b) { return intervals[a].offset < intervals[b].offset; };
    placed.insert(std::ranges::upper_bound(placed, i, by_offset), i);
  }
  return used;
}

}  // namespace protrain::program
