// The memory of several ranks. Each holds only a part of the state, so a model that is too large for one rank can train
// on several.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "ranked_training.h"

namespace protrain::test::ranked_memory_test {
namespace {

const std::string kModel = "gpt2-dynamic-opset18";

Pairs with(const Pairs &more) {
  Pairs pairs = base_options(kModel);
  pairs.insert(pairs.end(), more.begin(), more.end());
  return pairs;
}

// The bytes that the buffers of `owner` hold from one step to the next.
std::uint64_t resting(const program::State &state, program::Owner owner) {
  std::uint64_t bytes = 0;
  for (const program::Buffer &buffer : state.buffers)
    if (buffer.owner == owner) bytes += buffer.bytes;
  return bytes;
}

struct Held {
  std::uint64_t weights = 0, optimizer = 0, gradients = 0;
};

// Returns the budget that the error of a refused session names: one that would be large enough.
std::uint64_t quoted_in(const Error &error) {
  const std::size_t at = error.text.find("memory=");
  return at == std::string::npos
             ? 0
             : parse_bytes(error.text.substr(at + 7, error.text.find_first_of(" ,;.", at) - at - 7)).value_or(0);
}

// The bytes that each rank of a session needs under the plan that rank 0 chooses for this much memory. Throws the error
// of the first rank that has one.
std::vector<std::uint64_t> needed_by(int ranks, std::uint64_t memory, const Pairs &more) {
  std::vector<std::uint64_t> needed(static_cast<std::size_t>(ranks));
  const auto errors = ThreadGroup(ranks).run([&](std::shared_ptr<comm::Channel> channel) {
    Pairs pairs = with(more);
    pairs.emplace_back("memory", std::to_string(memory));
    draft::Settings settings = draft::settings_of(options_with(pairs));
    settings.ranks.rank = channel->rank();
    settings.ranks.count = channel->ranks();
    const session::Machine machine(settings, fixture(kModel + ".onnx"), draft::open_device(settings),
                                   session::Channels::over(channel), nullptr);
    needed[static_cast<std::size_t>(channel->rank())] = machine.draft().programs.bytes[Tier::device];
  });
  for (const std::exception_ptr &error : errors)
    if (error) std::rethrow_exception(error);
  return needed;
}

// The bytes that each rank holds under a plan in which every chunk is sharded.
std::vector<Held> held_by(int ranks) {
  const Scratch scratch;
  const std::string plan = scratch.file("plan.json", R"({"n_persist": 0, "n_buffer": 2, "shared_memory": true})");
  std::vector<Held> held(static_cast<std::size_t>(ranks));
  const auto errors = ThreadGroup(ranks).run([&](std::shared_ptr<comm::Channel> channel) {
    draft::Settings settings = draft::settings_of(options_with(with({{"plan", plan}, {"accumulation", "2"}})));
    settings.ranks.rank = channel->rank();
    settings.ranks.count = channel->ranks();
    const session::Machine machine(settings, fixture(kModel + ".onnx"), draft::open_device(settings),
                                   session::Channels::over(channel), nullptr);
    const program::State &state = machine.draft().programs.state;
    held[static_cast<std::size_t>(channel->rank())] = {.weights = resting(state, program::Owner::weights),
                                                       .optimizer = resting(state, program::Owner::optimizer),
                                                       .gradients = resting(state, program::Owner::gradients)};
  });
  for (const std::exception_ptr &error : errors)
    if (error) std::rethrow_exception(error);
  return held;
}

TEST(RankedMemory, IsTheStateOverTheNumberOfRanks) {
  const Held alone = held_by(1).front();
  for (const int ranks : {2, 4}) {
    const auto share = [&](std::uint64_t bytes) { return static_cast<double>(bytes) / ranks; };
    for (const Held &held : held_by(ranks)) {
      // The factor 1.3 allows for rounding: shards are whole grains, and every parameter begins at a multiple of 64
      // bytes.
      EXPECT_LT(static_cast<double>(held.weights), 1.3 * share(alone.weights)) << ranks;
      EXPECT_LT(static_cast<double>(held.optimizer), 1.3 * share(alone.optimizer)) << ranks;
      EXPECT_LT(static_cast<double>(held.gradients), 1.3 * share(alone.gradients)) << ranks;
    }
  }
}

// Shards are whole grains, so one rank can own more elements than another. Rank 0 chooses the plan. The plan must fit
// into the budget of every rank, although many of the budgets here are just enough for rank 0.
TEST(RankedMemory, IsEnoughOnEveryRankForThePlanThatRankZeroChooses) {
  constexpr int kRanks = 3;
  int chosen = 0;
  for (const Pairs &more : {Pairs{}, Pairs{{"accumulation", "2"}}, Pairs{{"precision", "bf16"}, {"clip_norm", "1"}}})
    for (std::uint64_t memory = 6 << 20; memory > 0;) {
      try {
        const std::vector<std::uint64_t> needed = needed_by(kRanks, memory, more);
        for (const std::uint64_t bytes : needed) EXPECT_LE(bytes, memory);
        memory = needed[0] < memory ? needed[0] : memory - memory / 8;
        ++chosen;
      } catch (const Error &error) {
        EXPECT_EQ(error.code, Code::budget) << error.text;
        ASSERT_NE(error.text.find("no plan fits"), std::string::npos) << error.text;
        EXPECT_NO_THROW(needed_by(kRanks, quoted_in(error), more)) << error.text;
        memory = 0;
      }
    }
  EXPECT_GT(chosen, 8);
}

// Returns the smallest budget with which one rank can train. The error for too small a budget names this number.
std::uint64_t smallest_for_one() {
  try {
    train_ranks({.ranks = 1, .accumulation = 4}, with({{"memory", "64KiB"}}), kModel);
  } catch (const Error &error) {
    EXPECT_EQ(error.code, Code::budget) << error.text;
    return quoted_in(error);
  }
  return 0;
}

TEST(RankedMemory, LetsAModelTrainOnTwoAndFourRanksThatDoesNotFitOne) {
  const std::uint64_t smallest = smallest_for_one();
  ASSERT_GT(smallest, 0u);
  const Trace expected = train_ranks({.ranks = 1, .accumulation = 4}, with({}), kModel).front();
  const Pairs tight = with({{"memory", std::to_string(smallest - (64 << 10))}});
  EXPECT_THROW(train_ranks({.ranks = 1, .accumulation = 4}, tight, kModel), Error);
  for (const int ranks : {2, 4})
    for (const Trace &trace : train_ranks({.ranks = ranks, .accumulation = 4 / ranks}, tight, kModel))
      EXPECT_TRUE(trace == expected) << ranks;
}

// The hosts have no memory for chunks. If the devices cannot hold a chunk whole, each device must hold its shards of
// the chunk.
TEST(RankedMemory, OfDevicesAloneIsEnoughForShardsOfWhatPersists) {
  constexpr int kRanks = 4;
  const Trace expected = train_ranks({.ranks = 1, .accumulation = 4}, with({}), kModel).front();
  int sharded = 0;
  for (std::uint64_t memory = 3 << 20; sharded == 0 && memory > (1 << 20); memory -= memory / 16) {
    const Pairs apart = with({{"device_memory", std::to_string(memory)}, {"host_memory", "4KiB"}});
    std::vector<Trace> traces(kRanks);
    const auto errors = ThreadGroup(kRanks).run([&](std::shared_ptr<comm::Channel> channel) {
      const auto session = session_of(apart, kModel, channel);
      const Json plan = parse_json(session->plan_json(), "plan");
      for (const Json &chunk : *plan.find("chunks")->items())
        if (channel->rank() == 0 && *chunk.find("sharded")->truth()) ++sharded;
      traces[static_cast<std::size_t>(channel->rank())] = train_share(*session, *channel, {.ranks = kRanks});
    });
    for (const std::exception_ptr &error : errors)
      if (error) std::rethrow_exception(error);
    for (const Trace &trace : traces) EXPECT_TRUE(trace == expected) << memory;
  }
  EXPECT_GT(sharded, 0);
}

}  // namespace
}  // namespace protrain::test::ranked_memory_test
