// The cache that keeps a machine's profile between runs.
#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/threads.h"
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

const backend::Optimizer kAdamW;

Profile measured() {
  Profile profile = describe(kDevice);
  profile.fp32_flops = 1e9;
  profile.device_bandwidth = profile.host_bandwidth = 2e9;
  profile.device_optimizer = profile.host_optimizer = 3e9;
  profile.kernels = {{"Tanh{} float32[7] -> float32[7]", 1.5e-6}};
  return profile;
}

// A measured profile of a machine with a disk. Its capacities are those of a machine without one, because found()
// describes no disk.
Profile measured_with_disk() {
  Profile profile = measured();
  profile.disk_read = 4e9;
  profile.disk_write = 5e9;
  profile.disk_both_ways = 6e9;
  profile.compute_beside_disk = 0.75;
  profile.disk_beside_compute = 0.5;
  return profile;
}

// A measured profile, except that the optimizer has these rates.
Profile with_optimizer(double rate) {
  Profile profile = measured();
  profile.device_optimizer = profile.host_optimizer = rate;
  return profile;
}

// A profile of which only the optimizer's rates are known.
Profile measured_optimizer() {
  Profile profile = describe(kDevice);
  profile.device_optimizer = profile.host_optimizer = 3e9;
  return profile;
}

Profile with_kernel(Profile profile, const std::string &signature) {
  profile.kernels[signature] = 2e-6;
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

// The only file of this kind: "profile", "disk", "optimizer".
std::string file_of(const Scratch &scratch, const std::string &kind) {
  std::string path;
  for (const auto &entry : std::filesystem::directory_iterator(scratch.path())) {
    if (!entry.path().filename().string().starts_with(kind + "-")) continue;
    EXPECT_EQ(path, "") << "one file";
    path = entry.path().string();
  }
  EXPECT_NE(path, "") << kind;
  return path;
}

std::string text_of(const std::string &path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Makes the file an hour older than it is.
std::filesystem::file_time_type age(const std::string &path) {
  const auto earlier = std::filesystem::last_write_time(path) - std::chrono::hours(1);
  std::filesystem::last_write_time(path, earlier);
  return std::filesystem::last_write_time(path);
}

Profile found_when(const Cache &cache, bool idle) {
  Profile profile = describe(kDevice);
  cache.load(profile, idle);
  return profile;
}

TEST(Description, HasTheFreeSpaceOfTheDiskIfThereIsOne) {
  const Scratch scratch;
  EXPECT_EQ(describe(kDevice).disk_memory, 0u);
  EXPECT_GT(describe(kDevice, scratch.path()).disk_memory, 0u);
  EXPECT_EQ(test::code_of([] { describe(kDevice, "/no/such/folder"); }), Code::path);
}

TEST(Cache, TellsTheNextProcessAllThatWasMeasured) {
  const Scratch scratch;
  store(Cache(scratch.path(), kDevice, kAdamW, ""));
  EXPECT_EQ(found(Cache(scratch.path(), kDevice, kAdamW, "")), measured());
}

TEST(Cache, MakesItsDirectoryAndTheOneAbove) {
  const Scratch scratch;
  const std::string directory = scratch.file("cache") + "/protrain";
  store(Cache(directory, kDevice, kAdamW, ""));
  EXPECT_EQ(found(Cache(directory, kDevice, kAdamW, "")), measured());
}

TEST(Cache, LeavesCapacitiesToTheMachineAsItIsNow) {
  const Scratch scratch;
  store(Cache(scratch.path(), kDevice, kAdamW, ""));
  backend::DeviceInfo now = kDevice;
  now.memory_bytes = 500;
  Profile profile = describe(now);
  profile.disk_memory = 700;
  Cache(scratch.path(), now, kAdamW, "").load(profile);
  EXPECT_EQ(profile.device_memory, 500u);
  EXPECT_EQ(profile.host_memory, 500u);
  EXPECT_EQ(profile.disk_memory, 700u);
  EXPECT_EQ(profile.kernels, measured().kernels);
}

// Only the speeds come from the cache. The kind of the device, and what device and host share, must come from the
// machine itself, because a file in the cache can be damaged or written by somebody else.
TEST(Cache, LeavesWhatIsSharedToTheMachineToo) {
  const Scratch scratch;
  const Cache cache(scratch.path(), kDevice, kAdamW, "");
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
  const Cache cache(scratch.path(), card, kAdamW, "");
  Profile earlier = measured();
  earlier.host_reserve = 7;
  store(cache, earlier);
  const Profile profile = found(cache, card);
  EXPECT_EQ(profile.kernels, measured().kernels);
  EXPECT_GE(profile.host_reserve, 96u << 20);
}

TEST(Cache, KeepsDevicesLibrariesAndThreadsApart) {
  const Scratch scratch;
  store(Cache(scratch.path(), kDevice, kAdamW, ""));
  backend::DeviceInfo other = kDevice, fewer = kDevice, newer = kDevice;
  other.description = "another processor";
  newer.libraries = "another oneDNN";
  fewer.threads = 1;
  EXPECT_TRUE(found(Cache(scratch.path(), other, kAdamW, "")).kernels.empty());
  EXPECT_TRUE(found(Cache(scratch.path(), fewer, kAdamW, "")).kernels.empty());
  EXPECT_TRUE(found(Cache(scratch.path(), newer, kAdamW, "")).kernels.empty());
}

// A session under taskset, or with a quota of processors, has threads that wait for each other.
TEST(Cache, KeepsTimesOfThreadsThatShareAProcessorApart) {
  if (available_threads() < 2) GTEST_SKIP() << "the process may use one processor only";
  const Scratch scratch;
  store(Cache(scratch.path(), kDevice, kAdamW, ""));
  std::thread([&] {
    cpu_set_t all, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i)
      if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_TRUE(found(Cache(scratch.path(), kDevice, kAdamW, "")).kernels.empty());
    backend::DeviceInfo fewer = kDevice;
    fewer.threads = 1;
    store(Cache(scratch.path(), fewer, kAdamW, ""));
  }).join();
  backend::DeviceInfo fewer = kDevice;
  fewer.threads = 1;
  EXPECT_EQ(found(Cache(scratch.path(), fewer, kAdamW, "")), measured()) << "one thread had a processor of its own";
}

TEST(Cache, KeepsTheDisksNumbersForTheDiskAndTheKernelsForAllSessions) {
  const Scratch scratch;
  const Cache without(scratch.path(), kDevice, kAdamW, ""), with(scratch.path(), kDevice, kAdamW, scratch.path());
  store(without);
  EXPECT_EQ(found(with), measured()) << "the kernels are known, and the disk is not";
  store(with, measured_with_disk());
  EXPECT_EQ(found(with), measured_with_disk());
  EXPECT_EQ(found(without), measured()) << "a session without a disk has none";
  EXPECT_EQ(found(Cache(scratch.path(), kDevice, kAdamW, "/proc")), measured()) << "another file system";
  EXPECT_EQ(found(Cache(scratch.path(), kDevice, kAdamW, scratch.file("none"))), measured()) << "no such directory";
}

TEST(Cache, KeepsTheDisksNumbersWhereASessionWithoutADiskStoresMoreAndTheReverse) {
  const Scratch scratch;
  const Cache without(scratch.path(), kDevice, kAdamW, ""), with(scratch.path(), kDevice, kAdamW, scratch.path());
  store(with, measured_with_disk());
  store(without, with_kernel(measured(), "Relu"));
  EXPECT_EQ(found(with), with_kernel(measured_with_disk(), "Relu"));
  Profile faster = found(with);
  faster.disk_read = 8e9;
  store(with, faster);
  EXPECT_EQ(found(with), faster);
  EXPECT_EQ(found(without), with_kernel(measured(), "Relu"));
}

TEST(Cache, StoresNoDiskThatWasNotMeasured) {
  const Scratch scratch;
  const Cache with(scratch.path(), kDevice, kAdamW, scratch.path());
  store(with, measured_with_disk());
  Profile one_way = measured_with_disk();
  one_way.disk_both_ways = 0;
  store(with, one_way);
  store(with);
  EXPECT_EQ(found(with), measured_with_disk());
}

TEST(Cache, LosesOnlyTheDiskWhereTheDisksFileIsOfNoUse) {
  const Scratch scratch;
  const Cache with(scratch.path(), kDevice, kAdamW, scratch.path());
  store(with, measured_with_disk());
  const std::string path = file_of(scratch, "disk"), whole = text_of(path);
  const auto changed = [&](const std::string &from, const std::string &to) {
    EXPECT_NE(whole.find(from), std::string::npos) << from;
    return std::string(whole).replace(whole.find(from), from.size(), to);
  };
  for (const std::string &text : {std::string(), std::string("{"), whole.substr(0, whole.size() / 2), std::string("[]"),
                                  std::string("\xFF"), changed("disk_read", "disk"), changed("waited", "idle"),
                                  changed("\"disk_write\":", "\"disk_write\": -1, \"x\":"),
                                  changed("\"disk_both_ways\":", "\"disk_both_ways\": 0, \"x\":"),
                                  changed("\"disk_read\":", "\"disk_read\": \"1\", \"x\":"), changed("0.75", "1.5"),
                                  changed("0.5", "0"), changed("\"waited\":", "\"waited\": 2, \"x\":")}) {
    std::ofstream(path, std::ios::trunc) << text;
    EXPECT_EQ(found(with), measured()) << text;
  }
  store(with, measured_with_disk());
  EXPECT_EQ(found(with), measured_with_disk()) << "what is measured anew takes its place";
}

// The file's age says when the machine was busy, so a session that adds nothing to the file must not renew it.
TEST(Cache, LeavesTheDevicesFileAsItIsWhereOnlyTheDiskIsNew) {
  const Scratch scratch;
  store(Cache(scratch.path(), kDevice, kAdamW, ""));
  const std::string path = file_of(scratch, "profile"), text = text_of(path);
  const auto written = age(path);
  backend::DeviceInfo now = kDevice;
  now.memory_bytes = 500;  // other processes have taken the rest
  const Cache with(scratch.path(), now, kAdamW, scratch.path());
  Profile profile = describe(now, scratch.path());
  with.load(profile);
  profile.disk_read = profile.disk_write = profile.disk_both_ways = 4e9;
  store(with, profile);
  EXPECT_EQ(text_of(path), text);
  EXPECT_EQ(std::filesystem::last_write_time(path), written);
  EXPECT_EQ(found(with).disk_read, 4e9);
  const auto disk_written = age(file_of(scratch, "disk"));
  store(with, with_kernel(profile, "Relu"));
  EXPECT_NE(std::filesystem::last_write_time(path), written);
  EXPECT_EQ(std::filesystem::last_write_time(file_of(scratch, "disk")), disk_written);
}

TEST(Cache, KeepsTheRatesOfEachOptimizer) {
  const Scratch scratch;
  const backend::Optimizer coded = {.coded = true}, plain = {.kind = backend::Optimizer::Kind::sgd},
                           heavy = {.kind = backend::Optimizer::Kind::sgd, .momentum = 0.9};
  const Cache adamw(scratch.path(), kDevice, kAdamW, ""), adamw8bit(scratch.path(), kDevice, coded, ""),
      sgd(scratch.path(), kDevice, plain, ""), momentum(scratch.path(), kDevice, heavy, "");
  store(adamw);
  const std::string path = file_of(scratch, "profile"), text = text_of(path);
  const auto written = age(path);
  EXPECT_EQ(found(adamw8bit), with_optimizer(0)) << "all but the optimizer is known";
  store(adamw8bit, with_optimizer(1e9));
  store(sgd, with_optimizer(5e9));
  EXPECT_EQ(found(adamw), measured());
  EXPECT_EQ(found(adamw8bit), with_optimizer(1e9));
  EXPECT_EQ(found(sgd), with_optimizer(5e9));
  EXPECT_EQ(found(momentum), with_optimizer(0)) << "it has another state";
  EXPECT_EQ(text_of(path), text);
  EXPECT_EQ(std::filesystem::last_write_time(path), written);
}

TEST(Cache, DoubtsOnlyTheOptimizerWhereNothingElseWasMeasuredBesideOtherProcesses) {
  const Scratch scratch;
  const backend::Optimizer coded = {.coded = true};
  const Cache adamw(scratch.path(), kDevice, kAdamW, ""), adamw8bit(scratch.path(), kDevice, coded, "");
  store(adamw);
  const std::string path = file_of(scratch, "profile"), text = text_of(path);
  const auto written = age(path);
  Profile disturbed = with_optimizer(1e9);
  disturbed.waited = 0.5;
  store(adamw8bit, disturbed);
  EXPECT_EQ(text_of(path), text);
  EXPECT_EQ(std::filesystem::last_write_time(path), written);
  for (const auto &entry : std::filesystem::directory_iterator(scratch.path()))
    if (entry.path().filename().string().starts_with("optimizer-")) age(entry.path().string());
  EXPECT_EQ(found_when(adamw8bit, false), with_optimizer(1e9)) << "the cores are still busy";
  EXPECT_EQ(found_when(adamw8bit, true), with_optimizer(0));
  EXPECT_EQ(found_when(adamw, true), measured());
}

// A session loads the rates of disk and optimizer, and measures kernels. Meanwhile another one measures the rates anew.
TEST(Cache, LeavesRatesThatWereOnlyLoadedAsAnotherSessionHasStoredThemSince) {
  const Scratch scratch;
  const Cache with(scratch.path(), kDevice, kAdamW, scratch.path());
  store(with, measured_with_disk());
  const Profile loaded = found(with);
  Profile anew = measured_with_disk();
  anew.disk_read = 8e9;
  anew.device_optimizer = anew.host_optimizer = 7e9;
  store(with, anew);
  Profile slow = with_kernel(loaded, "Relu");
  with.store(slow, loaded);
  EXPECT_EQ(found(with), with_kernel(anew, "Relu"));
}

TEST(Cache, UnitesTheKernelsOfSessionsThatBeganWithTheSameRates) {
  const Scratch scratch;
  const Cache cache(scratch.path(), kDevice, kAdamW, "");
  store(cache);
  store(cache, with_kernel(measured(), "Relu"));
  Profile second = with_kernel(measured(), "Gelu");
  second.waited = 0.125;
  second.fp32_flops *= 2;  // Gelu reached it
  store(cache, second);
  EXPECT_EQ(found(cache), with_kernel(second, "Relu"));
  store(cache, with_kernel(measured(), "Tanh"));
  EXPECT_EQ(found(cache), with_kernel(with_kernel(second, "Relu"), "Tanh"))
      << "some of the times waited, and the rates that one session raised stay";
  Profile anew = measured();
  anew.device_bandwidth = 3e9;
  store(cache, anew);
  EXPECT_EQ(found(cache), anew) << "times that go with other rates are replaced";
}

TEST(Cache, KnowsNothingWhereNothingWasKept) {
  const Scratch scratch;
  EXPECT_EQ(found(Cache(scratch.path(), kDevice, kAdamW, "")), describe(kDevice));
  EXPECT_EQ(found(Cache(scratch.file("none"), kDevice, kAdamW, "")), describe(kDevice));
}

// Two processes measure at the same time, one of them with a disk. Neither sees the other's profile before it stores
// its own. The second one must then take over the algorithms that the first one stored.
TEST(Cache, GivesAllSessionsOfADeviceTheAlgorithmsThatTheFirstOneStored) {
  const Scratch scratch;
  const Cache cache(scratch.path(), kDevice, kAdamW, ""), with_disk(scratch.path(), kDevice, kAdamW, scratch.path());
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
  EXPECT_TRUE(found(Cache(scratch.path(), other, kAdamW, "")).variants.empty());
}

TEST(Cache, LeavesKernelsTheirFirstAlgorithmWhereTheChoiceCannotBeKept) {
  const Scratch scratch;
  Profile profile = measured();
  profile.variants = {{"MatMul a", 2}};
  EXPECT_TRUE(store(Cache(scratch.file("file", "x"), kDevice, kAdamW, ""), profile).variants.empty());
  EXPECT_TRUE(store(Cache("", kDevice, kAdamW, ""), profile).variants.empty());
}

TEST(Cache, ForgetsTimesThatOtherProcessesDisturbedOnceTheCoresAreIdle) {
  for (const double waited : {0.1, 0.5}) {
    const Scratch scratch;
    const Cache cache(scratch.path(), kDevice, kAdamW, "");
    Profile profile = measured();
    profile.waited = waited;
    store(cache, profile);
    EXPECT_EQ(found_when(cache, true), profile) << "written a moment ago";
    age(file_of(scratch, "profile"));
    EXPECT_EQ(found_when(cache, false), profile) << "the cores are still busy";
    EXPECT_EQ(found_when(cache, true), waited < 0.2 ? profile : measured_optimizer()) << waited;
  }
}

TEST(Cache, DoubtsEachFileByItself) {
  for (const double waited : {0.1, 0.5}) {
    const Scratch scratch;
    const Cache with(scratch.path(), kDevice, kAdamW, scratch.path());
    Profile disturbed = measured_with_disk();
    disturbed.waited = waited;
    store(with, disturbed);
    Profile without_disk = measured();
    without_disk.waited = waited;
    age(file_of(scratch, "disk"));
    EXPECT_EQ(found_when(with, false), disturbed) << "the cores are still busy";
    EXPECT_EQ(found_when(with, true), waited < 0.2 ? disturbed : without_disk);
    age(file_of(scratch, "profile"));
    store(with, disturbed);
    EXPECT_EQ(found_when(with, true), waited < 0.2 ? disturbed : measured_optimizer())
        << "storing the same renews nothing";
    age(file_of(scratch, "optimizer"));
    EXPECT_EQ(found_when(with, true), waited < 0.2 ? disturbed : describe(kDevice));
  }
}

TEST(Cache, KeepsADiskThatWasMeasuredInPeaceWhereTheKernelsWereNot) {
  const Scratch scratch;
  const Cache with(scratch.path(), kDevice, kAdamW, scratch.path());
  store(with, measured_with_disk());
  Profile disturbed = with_kernel(measured_with_disk(), "Relu");
  disturbed.waited = 0.5;
  store(with, disturbed);
  age(file_of(scratch, "profile"));
  age(file_of(scratch, "disk"));
  const Profile profile = found_when(with, true);
  EXPECT_TRUE(profile.kernels.empty());
  EXPECT_EQ(profile.disk_both_ways, 6e9);
  EXPECT_EQ(profile.waited, 0);
}

TEST(Cache, IgnoresAFileThatIsDamagedOrCannotBeRead) {
  const Scratch scratch;
  const Cache cache(scratch.path(), kDevice, kAdamW, "");
  store(cache);
  const std::string path = file_of(scratch, "profile"), whole = profile::to_json(measured());
  for (const std::string &text : {std::string(), std::string("{"), whole.substr(0, whole.size() / 2),
                                  std::string("\xFF\xFE"), std::string("{\"unknown\": 1}"), std::string("[]")}) {
    std::ofstream(path, std::ios::trunc) << text;
    EXPECT_EQ(found(cache), measured_optimizer()) << text;
  }
  store(cache);
  EXPECT_EQ(found(cache), measured()) << "what is measured anew takes its place";
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_EQ(found(cache), measured_optimizer()) << "a directory stands there";
  store(cache);
}

TEST(Cache, IsNoErrorWhereItCannotBeWritten) {
  const Scratch scratch;
  const std::string file = scratch.file("file", "x");
  for (const std::string &directory : {file, file + "/below", std::string("/proc/none"), scratch.file("a/b/c")}) {
    const Cache cache(directory, kDevice, kAdamW, "");
    store(cache);
    EXPECT_EQ(found(cache), describe(kDevice)) << directory;
  }
}

TEST(Cache, KeepsNothingWithoutADirectory) {
  const Cache cache("", kDevice, kAdamW, "");
  store(cache);
  EXPECT_EQ(found(cache), describe(kDevice));
}

}  // namespace
}  // namespace protrain::measure::cache_test
