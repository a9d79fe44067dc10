#include <gtest/gtest.h>

#include "errors.h"
#include "profile/profile.h"

namespace protrain::profile::machines_test {
namespace {

constexpr std::uint64_t kGiB = 1ull << 30;

TEST(KnownMachines, AreCompleteButForTheDiskThatOptionsName) {
  ASSERT_FALSE(known_machines().empty());
  for (const std::string &name : known_machines()) {
    SCOPED_TRACE(name);
    const Profile machine = known_machine(name);
    EXPECT_EQ(machine.name, name);
    EXPECT_GT(machine.host_memory, machine.device_memory);
    EXPECT_LT(machine.usable_device(), machine.device_memory);
    EXPECT_LT(machine.usable_host(), machine.host_memory);
    EXPECT_FALSE(machine.shares_memory || machine.shares_cores);
    for (double rate : {machine.fp32_flops, machine.bf16_flops, machine.device_bandwidth, machine.device_optimizer,
                        machine.host_optimizer, machine.upload, machine.download, machine.both_ways,
                        machine.host_bandwidth, machine.disk_read, machine.disk_write, machine.launch_seconds})
      EXPECT_GT(rate, 0);
    EXPECT_EQ(machine.disk_memory, 0u);
    EXPECT_TRUE(machine.kernels.empty());
  }
}

TEST(KnownMachines, AreNoFasterThanTheirParts) {
  for (const std::string &name : known_machines()) {
    const Profile machine = known_machine(name);
    EXPECT_LE(machine.device_optimizer, machine.device_bandwidth) << name;
    EXPECT_LE(machine.host_optimizer, machine.host_bandwidth) << name;
    EXPECT_LE(machine.both_ways, machine.upload + machine.download) << name;
    EXPECT_GE(machine.bf16_flops, machine.fp32_flops) << name;
  }
}

// The testbeds of the ProTrain paper, section 5.1.
TEST(KnownMachines, HaveTheCapacitiesOfThePapersTestbeds) {
  const Profile rtx3090 = known_machine("rtx3090"), a100 = known_machine("a100-80gb");
  EXPECT_EQ(rtx3090.device_memory, 24 * kGiB);
  EXPECT_EQ(rtx3090.host_memory, 384 * kGiB);
  EXPECT_EQ(rtx3090.upload, 15.8e9);
  EXPECT_EQ(rtx3090.download, 15.8e9);
  EXPECT_EQ(a100.device_memory, 80 * kGiB);
  EXPECT_EQ(a100.host_memory, 1024 * kGiB);
  EXPECT_EQ(a100.upload, 31.5e9);
  EXPECT_EQ(a100.download, 31.5e9);
}

TEST(KnownMachines, HoldWhatAnH200Tells) {
  // An H200 is sold with 141 GB. The driver reports a little more than 139 GiB.
  const Profile h200 = known_machine("h200");
  EXPECT_EQ(h200.device_memory, 139 * kGiB);
  EXPECT_GT(h200.upload, known_machine("a100-80gb").upload);
}

TEST(KnownMachines, AreAllNamedWhereOneIsAskedForThatIsNone) {
  const Error error = test::error_of([] { known_machine("rtx4090"); });
  EXPECT_EQ(error.code, Code::arg);
  EXPECT_EQ(error.subject, "hardware");
  EXPECT_NE(error.text.find("'rtx4090'"), std::string::npos) << error.text;
  for (const std::string &name : known_machines()) EXPECT_NE(error.text.find(name), std::string::npos) << error.text;
}

TEST(Profile, KeepsItsReservesForTheSystem) {
  const Profile profile{.device_memory = 10, .host_memory = 7, .device_reserve = 4, .host_reserve = 9};
  EXPECT_EQ(profile.usable_device(), 6u);
  EXPECT_EQ(profile.usable_host(), 0u) << "a reserve larger than the memory leaves nothing";
}

TEST(KnownMachines, DivideTheDisksSpeedAmongTheirRanks) {
  Profile machine = known_machine("rtx3090");  // four devices
  machine.disk_both_ways = 8e9;
  EXPECT_EQ(share_of(machine, 2).disk_both_ways, 4e9);
  EXPECT_EQ(share_of(machine, 2).disk_read, machine.disk_read / 2);
}

}  // namespace
}  // namespace protrain::profile::machines_test
