// The cache that keeps a machine's profile between runs.
#include <gtest/gtest.h>

#include "errors.h"
#include "measure/measure.h"
#include "scratch.h"

namespace protrain::measure::cache_test {
namespace {

using profile::Profile;
using test::Scratch;

const backend::DeviceInfo kDevice = {.name = "cpu",
                                     .description = "a processor",
                                     .memory_bytes = 1000,
                                     .shares_memory = true,
                                     .shares_cores = true,
                                     .threads = 2};

Profile measured() {
  Profile profile = describe(kDevice);
  profile.fp32_flops = 1e9;
  profile.device_bandwidth = profile.host_bandwidth = 2e9;
  profile.device_optimizer = profile.host_optimizer = 3e9;
  profile.kernels = {{"Tanh{} float32[7] -> float32[7]", 1.5e-6}};
  return profile;
}

// The profile that a new process loads from the cache.
Profile found(const Cache &cache, const backend::DeviceInfo &device = kDevice) {
  Profile profile = describe(device);
  cache.load(profile);
  return profile;
}

Profile store(const Cache &cache, Profile profile = measured()) {
  cache.store(profile);
  return profile;
}

std::string only_file(const std::string &directory) {
  std::string path;
  for (const auto &entry : std::filesystem::directory_iterator(directory)) {
    EXPECT_EQ(path, "") << "one file";
    path = entry.path().string();
  }
  return path;
}

TEST(Description, HasTheFreeSpaceOfTheDiskIfThereIsOne) {
  const Scratch scratch;
  EXPECT_EQ(describe(kDevice).disk_memory, 0u);
  EXPECT_GT(describe(kDevice, scratch.path()).disk_memory, 0u);
  EXPECT_EQ(test::code_of([] { describe(kDevice, "/no/such/folder"); }), Code::path);
}

TEST(Cache, TellsTheNextProcessAllThatWasMeasured) {
  const Scratch scratch;
  store(Cache(scratch.path(), kDevice, ""));
  EXPECT_EQ(found(Cache(scratch.path(), kDevice, "")), measured());
}

TEST(Cache, MakesItsDirectoryAndTheOneAbove) {
  const Scratch scratch;
  const std::string directory = scratch.file("cache") + "/protrain";
  store(Cache(directory, kDevice, ""));
  EXPECT_EQ(found(Cache(directory, kDevice, "")), measured());
}

TEST(Cache, LeavesCapacitiesToTheMachineAsItIsNow) {
  const Scratch scratch;
  store(Cache(scratch.path(), kDevice, ""));
  backend::DeviceInfo now = kDevice;
  now.memory_bytes = 500;
  Profile profile = describe(now);
  profile.disk_memory = 700;
  Cache(scratch.path(), now, "").load(profile);
  EXPECT_EQ(profile.device_memory, 500u);
  EXPECT_EQ(profile.host_memory, 500u);
  EXPECT_EQ(profile.disk_memory, 700u);
  EXPECT_EQ(profile.kernels, measured().kernels);
}

// Only the speeds come from the cache. The kind of the device, and what device and host share, must come from the
// machine itself, because a file in the cache can be damaged or written by somebody else.
TEST(Cache, LeavesWhatIsSharedToTheMachineToo) {
  const Scratch scratch;
  const Cache cache(scratch.path(), kDevice, "");
  Profile other = measured();
  other.kind = DeviceKind::gpu;
  other.shares_memory = other.shares_cores = false;
  other.upload = other.download = 1e9;  // without them it would be no profile of such a machine
  store(cache, other);
  const Profile profile = found(cache);
  EXPECT_EQ(profile.kernels, measured().kernels);
  EXPECT_EQ(profile.kind, measured().kind);
  EXPECT_TRUE(profile.shares_memory);
  EXPECT_TRUE(profile.shares_cores);
}

TEST(Cache, LeavesTheReserveOfTheHostToTheMachineToo) {
  const Scratch scratch;
  backend::DeviceInfo card = kDevice;
  card.shares_memory = card.shares_cores = false;
  const Cache cache(scratch.path(), card, "");
  Profile earlier = measured();
  earlier.host_reserve = 7;
  store(cache, earlier);
  const Profile profile = found(cache, card);
  EXPECT_EQ(profile.kernels, measured().kernels);
  EXPECT_GE(profile.host_reserve, 96u << 20);
}

TEST(Cache, KeepsDevicesThreadsAndDisksApart) {
  const Scratch scratch;
  store(Cache(scratch.path(), kDevice, ""));
  backend::DeviceInfo other = kDevice, fewer = kDevice;
  other.description = "another processor";
  fewer.threads = 1;
  EXPECT_TRUE(found(Cache(scratch.path(), other, "")).kernels.empty());
  EXPECT_TRUE(found(Cache(scratch.path(), fewer, "")).kernels.empty());
  EXPECT_TRUE(found(Cache(scratch.path(), kDevice, scratch.path())).kernels.empty());
}

TEST(Cache, KnowsNothingWhereNothingWasKept) {
  const Scratch scratch;
  EXPECT_EQ(found(Cache(scratch.path(), kDevice, "")), describe(kDevice));
  EXPECT_EQ(found(Cache(scratch.file("none"), kDevice, "")), describe(kDevice));
}

// Two processes measure at the same time, one of them with a disk. Neither sees the other's profile before it stores
// its own. The second one must then take over the algorithms that the first one stored.
TEST(Cache, GivesAllSessionsOfADeviceTheAlgorithmsThatTheFirstOneStored) {
  const Scratch scratch;
  const Cache cache(scratch.path(), kDevice, ""), with_disk(scratch.path(), kDevice, scratch.path());
  Profile first = measured(), second = measured();
  first.variants = {{"MatMul a", 2}};
  second.variants = {{"MatMul a", 1}, {"MatMul b", 3}};
  EXPECT_EQ(store(cache, first), first);
  const std::map<std::string, std::uint64_t> both = {{"MatMul a", 2}, {"MatMul b", 3}};
  EXPECT_EQ(store(with_disk, second).variants, both);
  EXPECT_EQ(found(cache).variants, both);
  EXPECT_EQ(store(cache).variants, both) << "what another one chose is not lost";
  backend::DeviceInfo other = kDevice;
  other.description = "another card";
  EXPECT_TRUE(found(Cache(scratch.path(), other, "")).variants.empty());
}

TEST(Cache, LeavesKernelsTheirFirstAlgorithmWhereTheChoiceCannotBeKept) {
  const Scratch scratch;
  Profile profile = measured();
  profile.variants = {{"MatMul a", 2}};
  EXPECT_TRUE(store(Cache(scratch.file("file", "x"), kDevice, ""), profile).variants.empty());
  EXPECT_TRUE(store(Cache("", kDevice, ""), profile).variants.empty());
}

TEST(Cache, ForgetsTimesThatOtherProcessesDisturbedOnceTheCoresAreIdle) {
  const auto found_when = [](const Cache &cache, bool idle) {
    Profile profile = describe(kDevice);
    cache.load(profile, idle);
    return profile;
  };
  for (const double waited : {0.1, 0.5}) {
    const Scratch scratch;
    const Cache cache(scratch.path(), kDevice, "");
    Profile profile = measured();
    profile.waited = waited;
    store(cache, profile);
    EXPECT_EQ(found_when(cache, true), profile) << "written a moment ago";
    const std::string path = only_file(scratch.path());
    std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) - std::chrono::hours(1));
    EXPECT_EQ(found_when(cache, false), profile) << "the cores are still busy";
    EXPECT_EQ(found_when(cache, true), waited < 0.2 ? profile : describe(kDevice)) << waited;
  }
}

TEST(Cache, IgnoresAFileThatIsDamagedOrCannotBeRead) {
  const Scratch scratch;
  const Cache cache(scratch.path(), kDevice, "");
  store(cache);
  const std::string path = only_file(scratch.path()), whole = profile::to_json(measured());
  for (const std::string &text : {std::string(), std::string("{"), whole.substr(0, whole.size() / 2),
                                  std::string("\xFF\xFE"), std::string("{\"unknown\": 1}"), std::string("[]")}) {
    std::ofstream(path, std::ios::trunc) << text;
    EXPECT_EQ(found(cache), describe(kDevice)) << text;
  }
  store(cache);
  EXPECT_EQ(found(cache), measured()) << "what is measured anew takes its place";
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_EQ(found(cache), describe(kDevice)) << "a directory stands there";
  store(cache);
}

TEST(Cache, IsNoErrorWhereItCannotBeWritten) {
  const Scratch scratch;
  const std::string file = scratch.file("file", "x");
  for (const std::string &directory : {file, file + "/below", std::string("/proc/none"), scratch.file("a/b/c")}) {
    const Cache cache(directory, kDevice, "");
    store(cache);
    EXPECT_EQ(found(cache), describe(kDevice)) << directory;
  }
}

TEST(Cache, KeepsNothingWithoutADirectory) {
  const Cache cache("", kDevice, "");
  store(cache);
  EXPECT_EQ(found(cache), describe(kDevice));
}

}  // namespace
}  // namespace protrain::measure::cache_test
