// Compares Philox with the known answers of its authors (Random123, kat_vectors), and tests the functions that use it.
#include "arith/random.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace {

namespace arith = protrain::arith;
using Four = std::vector<std::uint32_t>;

Four drawn(const arith::Words &counter, const arith::Stream &stream) {
  const arith::Words words = arith::philox(counter, stream);
  return {words.word, words.word + 4};
}

TEST(Random, PhiloxGivesTheKnownAnswers) {
  EXPECT_EQ(drawn({{0, 0, 0, 0}}, {0, 0}), (Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(drawn({{kOnes, kOnes, kOnes, kOnes}}, {kOnes, kOnes}),
            (Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(drawn({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, {0xa4093822, 0x299f31d0}),
            (Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, AStreamIsFixedForEver) {
  const arith::Stream stream = arith::stream_of(1, 2, 3);
  const arith::Words words = arith::numbers(stream, 4, 5);
  EXPECT_EQ(drawn({{5, 0, 4, 0}}, stream), (Four{words.word, words.word + 4}));
  EXPECT_EQ((Four{stream.low, stream.high}), (Four{0xcaa5f697, 0x9e71840a}));
  EXPECT_EQ((Four{words.word, words.word + 4}), (Four{0x8692e842, 0xe0dbc521, 0xff54ded7, 0xf0c90ced}));
}

TEST(Random, EveryPartOfAKeyMatters) {
  std::set<std::pair<std::uint32_t, std::uint32_t>> streams;
  for (std::uint64_t part : {std::uint64_t{1}, std::uint64_t{1} << 33}) {
    for (const arith::Stream &stream :
         {arith::stream_of(part, 0, 0), arith::stream_of(0, part, 0), arith::stream_of(0, 0, part)})
      streams.insert({stream.low, stream.high});
  }
  EXPECT_EQ(streams.size(), 6u);
  std::set<Four> found;
  for (std::uint64_t part : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 33}) {
    for (const arith::Words &words : {arith::numbers({1, 2}, part, 0), arith::numbers({1, 2}, 0, part)})
      found.insert({words.word, words.word + 4});
  }
  EXPECT_EQ(found.size(), 5u);  // (0, 0) came up twice
}

TEST(Random, DropBelowIsTheLeastNumberThatIsKept) {
  EXPECT_EQ(arith::drop_below(0), 0u);
  EXPECT_EQ(arith::drop_below(0.5f), 0x80000000u);
  EXPECT_EQ(arith::drop_below(0x1p-33f), 1u);
  EXPECT_EQ(arith::drop_below(1 - 0x1p-24f), 0xffffff00u);
  EXPECT_EQ(arith::keep_scale(0.5f), 2.0f);
  EXPECT_EQ(arith::keep_scale(0), 1.0f);
}

}  // namespace
