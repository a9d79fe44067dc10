#include "program/windows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace protrain::program::windows_test {
namespace {

using Uses = std::vector<std::vector<std::size_t>>;

std::vector<Window> of_chunk(const std::vector<Window> &all, std::size_t chunk) {
  std::vector<Window> found;
  std::ranges::copy_if(all, std::back_inserter(found), [&](const Window &window) { return window.chunk == chunk; });
  return found;
}

TEST(Windows, AreNoneForChunksThatNobodyReads) { EXPECT_TRUE(windows({{}, {}}, 2).empty()); }

TEST(Windows, LastFromTheFirstUseToTheLastWhereThereAreBuffersForAll) {
  const std::vector<Window> stays = windows({{0, 5}, {1, 4}, {2, 3}}, 3);
  ASSERT_EQ(stays.size(), 3u);
  for (std::size_t c = 0; c < 3; ++c) {
    EXPECT_EQ(stays[c].chunk, c);
    EXPECT_EQ(stays[c].first_use, c);
    EXPECT_EQ(stays[c].last_use, 5 - c);
  }
}

TEST(Windows, GiveWayToTheChunkThatIsNeededSooner) {
  const std::vector<Window> stays = windows({{0, 5}, {1, 4}, {2, 3}}, 2);
  EXPECT_EQ(of_chunk(stays, 0).size(), 2u);  // backward needs it last, so it is evicted and fetched again
  EXPECT_EQ(of_chunk(stays, 1).size(), 1u);  // backward reads chunks in the reverse order of forward
  EXPECT_EQ(of_chunk(stays, 2).size(), 1u);
}

TEST(Windows, FetchAheadAsSoonAsThereIsRoom) {
  const std::vector<Window> stays = windows({{0, 3}, {6}, {9}}, 1);
  ASSERT_EQ(stays.size(), 3u);
  EXPECT_EQ(stays[1].fetch_at, 4u);
  EXPECT_EQ(stays[2].fetch_at, 7u);
}

TEST(Windows, FetchNoMoreThanTwoAhead) {
  const std::vector<Window> stays = windows({{0}, {10}, {20}, {30}}, 4);
  ASSERT_EQ(stays.size(), 4u);
  EXPECT_EQ(stays[1].fetch_at, 0u);
  EXPECT_EQ(stays[2].fetch_at, 0u);
  EXPECT_EQ(stays[3].fetch_at, 10u);
}

TEST(Windows, HoldAllChunksThatOneItemReadsHoweverFewTheBuffers) {
  const std::vector<Window> stays = windows({{4}, {4}, {4}}, 0);
  ASSERT_EQ(stays.size(), 3u);
  for (const Window &window : stays) EXPECT_LE(window.fetch_at, 4u);
}

class RandomUses {
 public:
  explicit RandomUses(std::uint32_t seed) : random_(seed) {}
  Uses draw() {
    Uses uses(1 + random_() % 8);
    for (auto &items : uses)
      for (std::size_t item = random_() % 6; item < kItems; item += 1 + random_() % 20) items.push_back(item);
    return uses;
  }
  static constexpr std::size_t kItems = 40;

 private:
  std::mt19937 random_;
};

// The largest number of chunks that any single item reads.
std::size_t most_read_at_once(const Uses &uses) {
  std::size_t most = 0;
  for (std::size_t item = 0; item < RandomUses::kItems; ++item)
    most = std::max(most, static_cast<std::size_t>(std::ranges::count_if(
                              uses, [&](const auto &items) { return std::ranges::count(items, item) > 0; })));
  return most;
}

std::size_t there_at(const std::vector<Window> &stays, std::size_t item) {
  return static_cast<std::size_t>(
      std::ranges::count_if(stays, [&](const Window &w) { return w.fetch_at <= item && item <= w.last_use; }));
}

TEST(Windows, CoverEveryUseOnceAndNeverHoldMoreThanTheirBuffers) {
  RandomUses random(11);
  for (int round = 0; round < 500; ++round) {
    const Uses uses = random.draw();
    const auto buffers = static_cast<std::size_t>(round % 5);
    const std::vector<Window> stays = windows(uses, buffers);
    for (std::size_t c = 0; c < uses.size(); ++c)
      for (std::size_t item : uses[c])
        EXPECT_EQ(
            std::ranges::count_if(
                stays, [&](const Window &w) { return w.chunk == c && w.first_use <= item && item <= w.last_use; }),
            1);
    const std::size_t room = std::max({buffers, std::size_t{1}, most_read_at_once(uses)});
    for (std::size_t item = 0; item < RandomUses::kItems; ++item) EXPECT_LE(there_at(stays, item), room);
    EXPECT_TRUE(std::ranges::is_sorted(stays, {}, &Window::fetch_at));
    for (const Window &window : stays) EXPECT_LE(window.fetch_at, window.first_use);
  }
}

}  // namespace
}  // namespace protrain::program::windows_test
