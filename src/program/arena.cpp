#include "program/arena.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "base/shape.h"

namespace protrain::program {

namespace {

constexpr std::uint64_t kNoOffset = std::numeric_limits<std::uint64_t>::max();

struct ByteRange {
  std::uint64_t begin = 0, end = 0;  // bytes
};

// Bytes that are taken, as the fewest possible ranges: sorted, and no two touch.
class TakenRanges {
 public:
  void add(ByteRange range) {
    auto at = std::ranges::lower_bound(ranges_, range.begin, {}, &ByteRange::end);
    if (at == ranges_.end() || at->begin > range.end) {
      ranges_.insert(at, range);
      return;
    }
    if (at->begin <= range.begin && at->end >= range.end) return;
    at->begin = std::min(at->begin, range.begin);
    auto after = at + 1;
    while (after != ranges_.end() && after->begin <= range.end) ++after;
    at->end = std::max(range.end, (after - 1)->end);
    ranges_.erase(at + 1, after);
  }
  void add(const TakenRanges &other) {
    for (const ByteRange &range : other.ranges_) add(range);
  }
  void clear() { ranges_.clear(); }
  auto begin() const { return ranges_.begin(); }
  auto end() const { return ranges_.end(); }

 private:
  std::vector<ByteRange> ranges_;
};

// Timetable tells which bytes are taken within a stretch of time. It is a segment tree over the instructions: a leaf
// covers kRun instructions, any other node covers what its two children cover. An interval is noted in three places:
// - `ends_`, at the two leaves that hold its first and its last instruction;
// - `throughout_`, at the fewest nodes that cover the leaves in between, because its bytes are taken all that time;
// - `somewhere_`, at all of these and at the nodes above them, because its bytes are taken for a part of that time.
class Timetable {
 public:
  explicit Timetable(std::size_t instructions)
      : leaves_(std::bit_ceil(instructions / kRun + 1)),
        ends_(leaves_),
        throughout_(2 * leaves_),
        somewhere_(2 * leaves_) {}

  void add(std::size_t first, std::size_t last, ByteRange range) {
    each_end(first, last, [&](std::size_t leaf) { ends_[leaf].push_back({first, last, range}); });
    each_between(first, last, [&](std::size_t node) {
      throughout_[node].add(range);
      somewhere_[node].add(range);
    });
    each_around(first, last, [&](std::size_t node) { somewhere_[node].add(range); });
  }

  // Collects what is taken at any time from `first` to `last`.
  void collect(std::size_t first, std::size_t last, TakenRanges &taken) const {
    taken.clear();
    each_between(first, last, [&](std::size_t node) { taken.add(somewhere_[node]); });
    each_around(first, last, [&](std::size_t node) { taken.add(throughout_[node]); });
    each_end(first, last, [&](std::size_t leaf) {
      for (const Stay &stay : ends_[leaf])
        if (stay.first <= last && first <= stay.last) taken.add(stay.range);
    });
  }

 private:
  static constexpr std::size_t kRun = 32;  // instructions in a leaf

  struct Stay {
    std::size_t first, last;
    ByteRange range;
  };

  template <typename Do>
  void each_end(std::size_t first, std::size_t last, Do &&act) const {
    act(first / kRun);
    if (last / kRun != first / kRun) act(last / kRun);
  }

  template <typename Do>
  void each_between(std::size_t first, std::size_t last, Do &&act) const {
    for (std::size_t a = first / kRun + leaves_, b = last / kRun + leaves_; a / 2 != b / 2; a /= 2, b /= 2) {
      if (a % 2 == 0) act(a + 1);
      if (b % 2 == 1) act(b - 1);
    }
  }

  template <typename Do>
  void each_around(std::size_t first, std::size_t last, Do &&act) const {
    for (std::size_t a = first / kRun + leaves_, b = last / kRun + leaves_; a > 0; a /= 2, b /= 2) {
      act(a);
      if (a != b) act(b);
    }
  }

  std::size_t leaves_;
  std::vector<std::vector<Stay>> ends_;  // per leaf
  std::vector<TakenRanges> throughout_, somewhere_;
};

// Returns the start of the smallest gap between taken ranges, from `base` on, that holds `bytes`; if none does, the end
// of the last range.
std::uint64_t tightest_gap(const TakenRanges &taken, std::uint64_t bytes, std::uint64_t alignment, std::uint64_t base) {
  std::uint64_t best = kNoOffset, best_slack = kNoOffset, end = base;
  for (const ByteRange &range : taken) {
    const std::uint64_t start = round_up(end, alignment);
    if (range.begin >= start + bytes && range.begin - start - bytes < best_slack) {
      best = start;
      best_slack = range.begin - start - bytes;
    }
    end = std::max(end, range.end);
  }
  return best == kNoOffset ? round_up(end, alignment) : best;
}

}  // namespace

std::uint64_t assign_offsets(std::vector<Interval> &intervals, std::uint64_t base) {
  if (intervals.empty()) return base;
  std::vector<std::size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return intervals[a].bytes > intervals[b].bytes; });

  // Two intervals that overlap in time do so at the instruction where the later one begins. So instructions after the
  // one where the last interval begins do not matter.
  const std::size_t last_begin = std::ranges::max(intervals, {}, &Interval::first).first;
  Timetable timetable(last_begin + 1);
  std::uint64_t used = base;
  TakenRanges taken;
  for (std::size_t i : order) {
    Interval &interval = intervals[i];
    const std::size_t last = std::min(interval.last, last_begin);
    const std::uint64_t bytes = round_up(std::max<std::uint64_t>(interval.bytes, 1), kAlignment);
    timetable.collect(interval.first, last, taken);
    interval.offset = tightest_gap(taken, bytes, interval.alignment, base);
    used = std::max(used, checked_add(interval.offset, interval.bytes));
    timetable.add(interval.first, last, {interval.offset, checked_add(interval.offset, bytes)});
  }
  return used;
}

}  // namespace protrain::program
