// The ranks of a machine keep frozen weights once. All bits must be the same, and all calls must work, as if each rank
// had its own copy.
#include <gtest/gtest.h>

#include <fstream>

#include "base/files.h"
#include "base/memory.h"
#include "base/shared_memory.h"
#include "errors.h"
#include "ranked_training.h"

namespace protrain::test::shared_weights_test {
namespace {

constexpr int kRanks = 3;
const std::string kModel = "dropout-gpt";

// Returns how many bytes of shared memory this process has mapped.
std::uint64_t shared_bytes() {
  std::ifstream maps("/proc/self/maps");
  std::uint64_t bytes = 0;
  for (std::string line; std::getline(maps, line);)
    if (line.find("/memfd:protrain") != std::string::npos) {
      std::size_t dash = 0;
      const std::uint64_t begin = std::stoull(line, &dash, 16);
      bytes += std::stoull(line.substr(dash + 1), nullptr, 16) - begin;
    }
  return bytes;
}

Pairs options(const Pairs &more) {
  Pairs pairs = base_options(kModel);
  pairs.insert(pairs.end(), more.begin(), more.end());
  return pairs;
}

// Trains `ranks` ranks, writes other values to a frozen parameter, and trains again. Returns the results of rank 0.
// Sets `shared` to the bytes of shared memory that one rank has mapped.
Trace train(int ranks, const Pairs &more, std::uint64_t &shared) {
  Pairs pairs = options(more);
  pairs.emplace_back("accumulation", std::to_string(kRanks / ranks));
  const Group group = {.ranks = ranks, .accumulation = kRanks / ranks, .steps = 2};
  Trace trace;
  const auto errors = ThreadGroup(ranks).run([&](std::shared_ptr<comm::Channel> channel) {
    const auto session = session_of(pairs, kModel, channel);
    Trace first = train_share(*session, *channel, group);
    if (channel->rank() == 0) shared = shared_bytes() / static_cast<std::uint64_t>(ranks);
    std::vector<float> values(512 * 64);
    session->read_parameter("m.tokens.weight", values.data(), values.size());
    for (float &value : values) value *= 1.5f;
    session->write_parameter("m.tokens.weight", values.data(), values.size());
    Trace second = train_share(*session, *channel, group, 2);
    if (channel->rank() != 0) return;
    trace = std::move(first);
    trace.losses.insert(trace.losses.end(), second.losses.begin(), second.losses.end());
    trace.norms.insert(trace.norms.end(), second.norms.begin(), second.norms.end());
    trace.parameters = std::move(second.parameters);
  });
  for (const std::exception_ptr &error : errors)
    if (error) std::rethrow_exception(error);
  return trace;
}

class SharedWeights : public testing::TestWithParam<std::string> {};

TEST_P(SharedWeights, OfRanksThatFreezeThemAreOneCopyWithTheSameBits) {
  const Pairs frozen = {{"frozen", "m.tokens*"}, {"frozen", "m.blocks.0*"}, {"precision", GetParam()}};
  std::uint64_t shared = 0, alone = 0;
  const Trace ranked = train(kRanks, frozen, shared);
  EXPECT_TRUE(ranked == train(1, frozen, alone));
  const std::uint64_t table = 512 * 64 * (GetParam() == "fp32" ? 4 : 2);
  EXPECT_GE(shared, table);
  EXPECT_EQ(alone, 0u);
}

INSTANTIATE_TEST_SUITE_P(Precisions, SharedWeights, testing::Values("fp32", "bf16"));

TEST(SharedWeightsOfRanks, AreNoneIfAllAreTrained) {
  std::uint64_t shared = 1;
  train(kRanks, {}, shared);
  EXPECT_EQ(shared, 0u);
}

TEST(SharedMemoryOfAProcess, IsTheSameWhereverItIsMapped) {
  constexpr std::uint64_t kBytes = 4 * SharedMemory::kPage;
  const MemoryBlock a(2 * kBytes, "a"), b(kBytes, "b");
  {
    const SharedMemory memory = SharedMemory::create(kBytes);
    const SharedMemory other = SharedMemory::open(memory.place(), kBytes);
    memory.map_over(a.data() + kBytes, kBytes, 0);
    other.map_over(b.data(), kBytes, 0);
    EXPECT_EQ(error_of([&] { SharedMemory::open(memory.place(), kBytes + 1); }).code, Code::io);
  }
  a.data()[kBytes + 5] = std::byte{42};
  EXPECT_EQ(b.data()[5], std::byte{42});
  EXPECT_EQ(a.data()[5], std::byte{0});
}

TEST(SharedMemoryOfAProcess, IsNoOtherFile) {
  const Scratch scratch;
  EXPECT_EQ(error_of([&] { SharedMemory::open(scratch.file("file", std::string(4096, 'x')), 4096); }).code, Code::io);
  EXPECT_EQ(error_of([&] { SharedMemory::open("/dev/zero", 0); }).code, Code::io);
  EXPECT_EQ(error_of([&] { SharedMemory::open("/proc/self/fd/99999", 4096); }).code, Code::io);
}

}  // namespace
}  // namespace protrain::test::shared_weights_test
