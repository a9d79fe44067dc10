#include "program/arena.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <span>

#include "base/shape.h"

namespace protrain::program {

namespace {

constexpr std::uint64_t kNoOffset = std::numeric_limits<std::uint64_t>::max();

struct ByteRange {
  std::uint64_t begin = 0, end = 0;  // bytes
};

// A set of bytes that are taken, stored as the fewest possible ranges. The ranges are sorted, and no two of them touch.
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
  // Sets these ranges to the union of `a` and `others`. `others` are sorted by their begin and may overlap.
  void unite(const TakenRanges &a, std::span<const ByteRange> others) {
    ranges_.clear();
    auto own = a.ranges_.begin();
    auto other = others.begin();
    while (own != a.ranges_.end() || other != others.end()) {
      const bool own_first = other == others.end() || (own != a.ranges_.end() && own->begin <= other->begin);
      const ByteRange range = own_first ? *own++ : *other++;
      if (ranges_.empty() || range.begin > ranges_.back().end)
        ranges_.push_back(range);
      else
        ranges_.back().end = std::max(ranges_.back().end, range.end);
    }
  }
  void clear() { ranges_.clear(); }
  std::span<const ByteRange> all() const { return ranges_; }

 private:
  std::vector<ByteRange> ranges_;
};

// Timetable tells which bytes are taken within a stretch of time. It is a segment tree over the instructions: a leaf
// covers kRun instructions, any other node covers what its two children cover. add() notes an interval's bytes in three
// lists:
// - `ends_`, at the two leaves with the interval's first and last instruction;
// - `throughout_`, at the fewest nodes that cover all leaves between these two: there the bytes are taken all the time;
// - `somewhere_`, at the nodes of both lists above and at all their ancestors: there the bytes are taken for some time.
class Timetable {
 public:
  explicit Timetable(std::size_t instructions)
      : leaves_(std::bit_ceil(instructions / kRun + 1)),
        ends_(leaves_),
        throughout_(2 * leaves_),
        somewhere_(2 * leaves_) {}

  void add(std::size_t first, std::size_t last, ByteRange range) {
    each_end(first, last, [&](std::size_t leaf) {
      std::vector<Stay> &stays = ends_[leaf];
      const auto begin_of = [](const Stay &stay) { return stay.range.begin; };
      stays.insert(std::ranges::upper_bound(stays, range.begin, {}, begin_of), {first, last, range});
    });
    each_between(first, last, [&](std::size_t node) {
      throughout_[node].add(range);
      somewhere_[node].add(range);
    });
    each_around(first, last, [&](std::size_t node) { somewhere_[node].add(range); });
  }

  // Returns the bytes that are taken at any time from instruction `first` to instruction `last`.
  const TakenRanges &collect(std::size_t first, std::size_t last) {
    taken_.clear();
    each_between(first, last, [&](std::size_t node) { take(somewhere_[node].all()); });
    each_around(first, last, [&](std::size_t node) { take(throughout_[node].all()); });
    each_end(first, last, [&](std::size_t leaf) {
      met_.clear();
      for (const Stay &stay : ends_[leaf])
        if (stay.first <= last && first <= stay.last) met_.push_back(stay.range);
      take(met_);
    });
    return taken_;
  }

 private:
  static constexpr std::size_t kRun = 32;  // instructions in a leaf

  struct Stay {
    std::size_t first, last;
    ByteRange range;
  };

  void take(std::span<const ByteRange> ranges) {
    if (ranges.empty()) return;
    united_.unite(taken_, ranges);
    std::swap(taken_, united_);
  }

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
  std::vector<std::vector<Stay>> ends_;  // per leaf, sorted by the begin of their bytes
  std::vector<TakenRanges> throughout_, somewhere_;
  // Scratch of collect(). These are members so that they keep their memory from one call to the next.
  TakenRanges taken_, united_;
  std::vector<ByteRange> met_;
};

// Returns the start of the smallest gap between taken ranges, from `base` on, that holds `bytes`. If no gap is large
// enough, returns the end of the last range. The start is rounded up to `alignment`.
std::uint64_t tightest_gap(const TakenRanges &taken, std::uint64_t bytes, std::uint64_t alignment, std::uint64_t base) {
  std::uint64_t best = kNoOffset, best_slack = kNoOffset, end = base;
  for (const ByteRange &range : taken.all()) {
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

  // The timetable ends with the instruction where the last interval begins. Later instructions do not matter, because
  // two intervals that overlap in time do so at the instruction where the later one begins.
  const std::size_t last_begin = std::ranges::max(intervals, {}, &Interval::first).first;
  Timetable timetable(last_begin + 1);
  std::uint64_t used = base;
  for (std::size_t i : order) {
    Interval &interval = intervals[i];
    const std::size_t last = std::min(interval.last, last_begin);
    const std::uint64_t bytes = round_up(std::max<std::uint64_t>(interval.bytes, 1), kAlignment);
    const TakenRanges &taken = timetable.collect(interval.first, last);
    interval.offset = tightest_gap(taken, bytes, interval.alignment, base);
    used = std::max(used, checked_add(interval.offset, interval.bytes));
    timetable.add(interval.first, last, {interval.offset, checked_add(interval.offset, bytes)});
  }
  return used;
}

}  // namespace protrain::program
