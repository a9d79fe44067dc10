#include <gtest/gtest.h>

#include "profile/small.h"

namespace protrain::profile::shares_test {
namespace {

// Returns the fraction of its own speed that the queue `of` keeps while the queue `other` is busy.
double share(const Profile &profile, Queue of, Queue other) { return shares(profile)[of][other]; }

Profile with_rates(double upload, double download, double both_ways, double host_bandwidth, double host_optimizer) {
  Profile profile = small();
  profile.upload = upload;
  profile.download = download;
  profile.both_ways = both_ways;
  profile.host_bandwidth = host_bandwidth;
  profile.host_optimizer = host_optimizer;
  profile.disk_read = 0;
  return profile;
}

TEST(Shares, LeaveCopiesAloneThatTheBusHasRoomFor) {
  for (const double both_ways : {25.0, 20.0, 0.0}) {  // 0: the two directions have no common limit
    const Profile profile = with_rates(10, 10, both_ways, 1000, 1);
    EXPECT_EQ(share(profile, Queue::upload, Queue::download), 1) << both_ways;
    EXPECT_EQ(share(profile, Queue::download, Queue::upload), 1) << both_ways;
  }
}

TEST(Shares, SlowTwoCopiesThatTogetherWantMoreThanTheBusHas) {
  const Profile profile = with_rates(10, 6, 12, 1000, 1);
  EXPECT_EQ(share(profile, Queue::upload, Queue::download), 0.75);
  EXPECT_EQ(share(profile, Queue::download, Queue::upload), 0.75);
}

TEST(Shares, SlowTwoCopiesByTheScarcerOfBusAndMemory) {
  const Profile memory = with_rates(10, 6, 12, 8, 1), bus = with_rates(10, 6, 8, 12, 1);
  EXPECT_EQ(share(memory, Queue::upload, Queue::download), 0.5);
  EXPECT_EQ(share(bus, Queue::upload, Queue::download), 0.5);
}

TEST(Shares, MakeTheHostsOptimizerAndCopiesShareItsMemory) {
  const Profile profile = with_rates(20, 60, 1000, 90, 100);
  EXPECT_EQ(share(profile, Queue::host, Queue::upload), 0.75);
  EXPECT_EQ(share(profile, Queue::upload, Queue::host), 0.75);
  EXPECT_EQ(share(profile, Queue::host, Queue::download), 0.5625);
  EXPECT_EQ(share(profile, Queue::download, Queue::host), 0.5625);
  const Profile roomy = with_rates(20, 60, 1000, 160, 100);
  EXPECT_EQ(share(roomy, Queue::host, Queue::upload), 1);
  EXPECT_EQ(share(roomy, Queue::host, Queue::download), 1);
}

TEST(Shares, MakeTheHostsOptimizerAndTheDiskShareItsMemory) {
  Profile profile = with_rates(1, 1, 0, 120, 100);
  profile.disk_read = 60;
  profile.disk_write = 140;
  EXPECT_EQ(share(profile, Queue::host, Queue::disk_read), 0.75);
  EXPECT_EQ(share(profile, Queue::disk_read, Queue::host), 0.75);
  EXPECT_EQ(share(profile, Queue::host, Queue::disk_write), 0.5);
  EXPECT_EQ(share(profile, Queue::disk_write, Queue::host), 0.5);
}

TEST(Shares, MakeReadsAndWritesShareTheDisk) {
  Profile profile = small();
  profile.disk_read = 6, profile.disk_write = 2, profile.disk_both_ways = 4;
  EXPECT_EQ(share(profile, Queue::disk_read, Queue::disk_write), 0.5);
  EXPECT_EQ(share(profile, Queue::disk_write, Queue::disk_read), 0.5);
  profile.disk_both_ways = 0;
  EXPECT_EQ(share(profile, Queue::disk_read, Queue::disk_write), 0.75) << "together as fast as reads alone";
  profile.disk_both_ways = 9;
  EXPECT_EQ(share(profile, Queue::disk_read, Queue::disk_write), 1) << "the disk has room for both";
}

TEST(Shares, MakeDiskAndComputeShareTheCoresThatAreShared) {
  Profile profile = small();
  for (const Queue disk : {Queue::disk_read, Queue::disk_write}) {
    profile.shares_cores = false;
    EXPECT_EQ(share(profile, Queue::compute, disk), 1) << "a device of its own computes on";
    EXPECT_EQ(share(profile, disk, Queue::compute), 1);
    profile.shares_cores = true;
    EXPECT_EQ(share(profile, disk, Queue::compute), 0.5);
  }
}

TEST(Shares, TakeFromComputeWhatTheBytesOfTheDiskCost) {
  Profile profile = small();
  profile.shares_cores = true;
  profile.disk_read = 6, profile.disk_write = 2, profile.disk_both_ways = 4;
  profile.compute_beside_disk = 0.75;
  profile.disk_beside_compute = 1;
  EXPECT_EQ(share(profile, Queue::compute, Queue::disk_read), 0.625) << "half as many bytes again as both ways move";
  EXPECT_EQ(share(profile, Queue::compute, Queue::disk_write), 0.875) << "half as many";
  profile.disk_beside_compute = 0.5;
  EXPECT_EQ(share(profile, Queue::compute, Queue::disk_write), 0.75) << "0.75 was measured beside 2 bytes per second";
  profile.compute_beside_disk = 0.05;
  EXPECT_EQ(share(profile, Queue::compute, Queue::disk_read), 0.05);
  profile.disk_read = profile.disk_write = profile.disk_both_ways = 0;
  EXPECT_EQ(share(profile, Queue::compute, Queue::disk_read), 1) << "there is no disk";
}

TEST(Shares, AreAboveNothingAndAtMostAll) {
  for (const std::string &name : known_machines())
    for (const auto &row : shares(known_machine(name)))
      for (double share : row) EXPECT_TRUE(share > 0 && share <= 1) << name << ' ' << share;
}

}  // namespace
}  // namespace protrain::profile::shares_test
