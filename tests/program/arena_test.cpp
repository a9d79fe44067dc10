#include "program/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <random>

#include "base/shape.h"

namespace protrain::program::arena_test {
namespace {

bool in_time(const Interval &a, const Interval &b) { return a.first <= b.last && b.first <= a.last; }
bool in_bytes(const Interval &a, const Interval &b) {
  return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

TEST(Arena, GivesTheBytesOfADeadIntervalToALaterOne) {
  std::vector<Interval> intervals = {{.first = 0, .last = 1, .bytes = 100}, {.first = 2, .last = 3, .bytes = 100}};
  EXPECT_EQ(assign_offsets(intervals, 0), 100u);
  EXPECT_EQ(intervals[0].offset, intervals[1].offset);
}

TEST(Arena, KeepsIntervalsApartThatMeetAtOneInstruction) {
  std::vector<Interval> intervals = {{.first = 0, .last = 1, .bytes = 64}, {.first = 1, .last = 2, .bytes = 64}};
  EXPECT_EQ(assign_offsets(intervals, 0), 128u);
}

TEST(Arena, AlignsEveryOffsetAndGivesEmptyIntervalsAnAddress) {
  std::vector<Interval> intervals = {{.first = 0, .last = 9, .bytes = 1}, {.first = 0, .last = 9, .bytes = 0}};
  EXPECT_EQ(assign_offsets(intervals, 0), 64u);
  for (const Interval &interval : intervals) EXPECT_EQ(interval.offset % kAlignment, 0u);
  EXPECT_NE(intervals[0].offset, intervals[1].offset);
}

TEST(Arena, StartsAtTheBaseAndKeepsWiderAlignments) {
  std::vector<Interval> intervals = {{.first = 0, .last = 9, .bytes = 70},
                                     {.first = 0, .last = 9, .bytes = 10, .alignment = 4096}};
  EXPECT_EQ(assign_offsets(intervals, 640), 4106u);
  EXPECT_EQ(intervals[0].offset, 640u);
  EXPECT_EQ(intervals[1].offset, 4096u);
}

TEST(Arena, NeverLetsRandomLiveIntervalsOverlapAndUsesNoMoreThanTheirSum) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<Interval> intervals(100);
    std::uint64_t sum = 0;
    for (Interval &interval : intervals) {
      interval.first = random() % 200;
      interval.last = interval.first + random() % 30;
      interval.bytes = random() % 5000;
    }
    const std::uint64_t used = assign_offsets(intervals, 0);
    for (const Interval &interval : intervals) sum += round_up(interval.bytes + 1, kAlignment);
    EXPECT_LE(used, sum);
    for (std::size_t i = 0; i < intervals.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (in_time(intervals[i], intervals[j])) {
          EXPECT_FALSE(in_bytes(intervals[i], intervals[j]));
        }
  }
}

// Assigns offsets by the same rule as assign_offsets(), but without its data structures. Compares each interval with
// all that are placed already, and sorts those that overlap with it in time.
std::uint64_t assign_plainly(std::vector<Interval> &intervals, std::uint64_t base) {
  const auto occupied = [](const Interval &i) { return round_up(std::max<std::uint64_t>(i.bytes, 1), kAlignment); };
  std::vector<std::size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t i) { return intervals[i].bytes; });
  std::uint64_t used = base;
  for (std::size_t n = 0; n < order.size(); ++n) {
    Interval &wanted = intervals[order[n]];
    std::vector<Interval> busy;
    for (std::size_t other = 0; other < n; ++other)
      if (in_time(intervals[order[other]], wanted)) busy.push_back(intervals[order[other]]);
    std::ranges::sort(busy, {}, &Interval::offset);
    std::optional<std::uint64_t> slack;
    std::uint64_t end = base;
    for (const Interval &interval : busy) {
      const std::uint64_t start = round_up(end, wanted.alignment), needed = start + occupied(wanted);
      if (interval.offset >= needed && (!slack || interval.offset - needed < *slack)) {
        slack = interval.offset - needed;
        wanted.offset = start;
      }
      end = std::max(end, interval.offset + occupied(interval));
    }
    if (!slack) wanted.offset = round_up(end, wanted.alignment);
    used = std::max(used, wanted.offset + wanted.bytes);
  }
  return used;
}

TEST(Arena, PlacesRandomIntervalsWhereThePlainRuleDoes) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    const std::size_t instructions = 1 + random() % 600, longest = 1 + random() % instructions;
    std::vector<Interval> intervals(1 + random() % 400);
    for (Interval &interval : intervals) {
      interval.first = random() % instructions;
      // If `last` is the largest number, the interval is in use until the step ends.
      interval.last = random() % 20 == 0 ? std::numeric_limits<std::size_t>::max()  //
                                         : interval.first + random() % longest;
      interval.bytes = random() % 3 == 0 ? random() % 20000 : 512 * (random() % 8);
      interval.alignment = random() % 4 == 0 ? 4096 : kAlignment;
    }
    std::vector<Interval> plain = intervals;
    EXPECT_EQ(assign_offsets(intervals, 640), assign_plainly(plain, 640));
    for (std::size_t i = 0; i < intervals.size(); ++i) EXPECT_EQ(intervals[i].offset, plain[i].offset);
  }
}

}  // namespace
}  // namespace protrain::program::arena_test
