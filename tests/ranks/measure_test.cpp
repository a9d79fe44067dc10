// The measurements of ranks: their machine, and the link between them.
#include <gtest/gtest.h>

#include <filesystem>

#include "draft/ranked_machine.h"
#include "ranked_training.h"

namespace protrain::test::ranked_measure_test {
namespace {

const std::string kModel = "gpt2-dynamic-opset18";

// The profile that each rank plans with.
std::vector<profile::Profile> profiles_of(int ranks, const std::string &directory) {
  std::vector<profile::Profile> profiles(static_cast<std::size_t>(ranks));
  const auto errors = ThreadGroup(ranks).run([&](std::shared_ptr<comm::Channel> channel) {
    Pairs pairs = base_options(kModel);
    pairs.emplace_back("profile_dir", directory);
    draft::Settings settings = draft::settings_of(options_with(pairs));
    settings.ranks.rank = channel->rank();
    settings.ranks.count = channel->ranks();
    const session::Machine machine(settings, fixture(kModel + ".onnx"), draft::open_device(settings),
                                   session::Channels::over(channel), nullptr);
    profiles[static_cast<std::size_t>(channel->rank())] = machine.draft().profile;
  });
  for (const std::exception_ptr &error : errors)
    if (error) std::rethrow_exception(error);
  return profiles;
}

std::ptrdiff_t profiles_in(const std::string &directory) {
  return std::ranges::count_if(std::filesystem::directory_iterator(directory), [](const auto &file) {
    return file.path().filename().string().starts_with("profile-");
  });
}

// A machine of which only the bytes of each tier are known, and whether device and host share their memory.
class BareMachine final : public draft::TargetMachine {
 public:
  BareMachine(const plan::Bytes &bytes, bool shares) : bytes_(bytes), shares_(shares) {}
  profile::Profile profile(const std::vector<const graph::Graph *> &, const backend::Optimizer &) override {
    profile::Profile profile = profile::known_machine("rtx3090");
    profile.shares_memory = shares_;
    profile.device_memory = bytes_[Tier::device];
    profile.host_memory = bytes_[Tier::host];
    profile.disk_memory = bytes_[Tier::disk];
    return profile;
  }
  program::Workspace workspace(const graph::Graph &) override { return {}; }
  plan::Bytes measure_link(const measure::Link &, std::uint64_t, profile::Profile &) override { return bytes_; }

 private:
  const plan::Bytes bytes_;
  const bool shares_;
};

// The ranks are threads, so all of them are on one machine and share the host's memory.
TEST(RankedMeasure, GivesAllRanksTheMemoryOfTheRankThatHasTheLeast) {
  const graph::Graph graph;
  const std::vector<plan::Bytes> bytes = {{800, 8000, 80000}, {600, 9000, 60000}, {700, 6000, 90000}};
  for (const bool shares : {true, false}) {
    const auto errors = ThreadGroup(3).run([&](std::shared_ptr<comm::Channel> channel) {
      BareMachine machine(bytes[static_cast<std::size_t>(channel->rank())], shares);
      draft::RankedMachine ranked(machine, {.hosts = *channel, .steps = *channel, .on_device = false});
      const profile::Profile profile = ranked.profile({&graph}, {});
      EXPECT_EQ(profile.device_memory, shares ? 200u : 600u);
      EXPECT_EQ(profile.host_memory, 2000u);
      EXPECT_EQ(profile.disk_memory, 20000u);
      if (!shares) {
        EXPECT_EQ(profile.host_reserve, profile::left_to_the_system(2000));
      }
    });
    for (const std::exception_ptr &error : errors)
      if (error) std::rethrow_exception(error);
  }
}

TEST(RankedMeasure, TakesTheMemoryOfARankFromItsOwnMachine) {
  const Scratch scratch;
  const auto errors = ThreadGroup(2).run([&](std::shared_ptr<comm::Channel> channel) {
    draft::Settings settings;
    settings.threads = 1;
    if (channel->rank() == 1) settings.offload_dir = scratch.path();
    const auto device = draft::open_device(settings);
    run::Kernels kernels(*device);
    const draft::Log log;
    draft::LocalMachine machine(*device, kernels, settings, log);
    profile::Profile of_rank_0 = {.device_memory = 1, .host_memory = 2};
    const plan::Bytes own =
        machine.measure_link({.hosts = *channel, .steps = *channel, .on_device = false}, 0, of_rank_0);
    EXPECT_EQ(own[Tier::device], device->info().memory_bytes);
    EXPECT_EQ(own[Tier::host], device->info().memory_bytes);
    EXPECT_EQ(own[Tier::disk] > 0, channel->rank() == 1) << "only this rank has a disk";
  });
  for (const std::exception_ptr &error : errors)
    if (error) std::rethrow_exception(error);
}

TEST(RankedMeasure, GivesAllRanksTheSameKernelsAndLink) {
  const Scratch scratch;
  const std::vector<profile::Profile> profiles = profiles_of(3, scratch.path());
  for (const profile::Profile &profile : profiles) EXPECT_EQ(profile, profiles[0]);
  EXPECT_FALSE(profiles[0].kernels.empty());
  EXPECT_GT(profiles[0].link, 0);
  EXPECT_GT(profiles[0].link_seconds, 0);
  for (const double share : {profiles[0].compute_beside_link, profiles[0].link_beside_compute}) {
    EXPECT_GE(share, 0.05);
    EXPECT_LE(share, 1);
  }
}

// Ranks of one machine compute at the same time, so they must measure at the same time. Kernels that one rank measured
// alone would seem too fast.
TEST(RankedMeasure, IsDoneByAllRanksOfAMachineAndKeptForEach) {
  const Scratch scratch;
  const profile::Profile alone = profiles_of(1, scratch.path())[0];
  EXPECT_EQ(profiles_in(scratch.path()), 1);
  const profile::Profile first = profiles_of(2, scratch.path())[0];
  EXPECT_EQ(profiles_in(scratch.path()), 3) << "one for each of two ranks";
  const profile::Profile second = profiles_of(2, scratch.path())[0];
  EXPECT_EQ(first.kernels, second.kernels) << "kept, not measured again";
  EXPECT_NE(first.kernels, alone.kernels);
}

}  // namespace
}  // namespace protrain::test::ranked_measure_test
