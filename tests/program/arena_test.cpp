#include "program/arena.h"

#include <gtest/gtest.h>

#include <random>

#include "base/shape.h"

namespace protrain::program {
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

}  // namespace
}  // namespace protrain::program
