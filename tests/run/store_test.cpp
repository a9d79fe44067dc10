#include "run/store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <numeric>

#include "base/error.h"
#include "random_plans/devices.h"
#include "scratch.h"

namespace protrain::run::store_test {
namespace {

using program::Buffer;

std::vector<std::byte> counted(std::uint64_t bytes, int first) {
  std::vector<std::byte> values(bytes);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::byte>(first + static_cast<int>(i % 251));
  return values;
}

class Stores : public testing::Test {
 protected:
  static constexpr std::uint64_t kTierBytes = 64 << 10;

  std::unique_ptr<Store> make(std::uint64_t transient_bytes, std::uint64_t piece_bytes = 8192) {
    const Store::Bytes state = {kTierBytes, kTierBytes, kTierBytes};
    const Store::Bytes all = {kTierBytes + transient_bytes, kTierBytes + transient_bytes, kTierBytes};
    return std::make_unique<Store>(
        *device_,
        Store::Room{.bytes = all, .state_bytes = state, .piece_bytes = piece_bytes, .directory = directory_.path()});
  }
  static Buffer buffer(Tier tier, std::uint64_t bytes, std::uint64_t offset = 0) {
    return {.name = "b", .tier = tier, .bytes = bytes, .offset = offset, .persistent = true};
  }
  static std::vector<std::byte> read(Store &store, const Buffer &buffer, std::uint64_t offset, std::uint64_t bytes) {
    std::vector<std::byte> out(bytes);
    // write() copies bytes through staging memory to the disk. The test overwrites the staging memory, so read() must
    // take the bytes from the disk.
    if (buffer.tier == Tier::disk) std::fill_n(store.staging(buffer.bytes), buffer.bytes, std::byte{0xEE});
    store.read(buffer, offset, out.data(), bytes);
    return out;
  }

  test::Scratch directory_;
  std::unique_ptr<backend::Device> device_ = backend::open("cpu", 1);
};

TEST_F(Stores, GiveBackWhatWasWrittenOnEveryTier) {
  const auto store = make(kTierBytes);
  int first = 1;
  for (const Tier tier : {Tier::device, Tier::host, Tier::disk}) {
    const Buffer b = buffer(tier, 10'000, 8192);
    const std::vector<std::byte> values = counted(b.bytes, first++);
    store->write(b, 0, values.data(), values.size());
    EXPECT_EQ(read(*store, b, 0, b.bytes), values) << kTierNames[tier];
  }
}

TEST_F(Stores, KeepTheTiersApart) {
  const auto store = make(kTierBytes);
  for (const Tier tier : {Tier::device, Tier::host, Tier::disk})
    store->write(buffer(tier, 4096), 0, counted(4096, static_cast<int>(tier)).data(), 4096);
  for (const Tier tier : {Tier::device, Tier::host, Tier::disk})
    EXPECT_EQ(read(*store, buffer(tier, 4096), 0, 4096), counted(4096, static_cast<int>(tier)));
}

TEST_F(Stores, KeepOddSizesOnDiskToTheByte) {
  const auto store = make(kTierBytes);
  for (const std::uint64_t bytes : {1u, 63u, 4095u, 4096u, 4097u, 12'289u}) {
    const Buffer b = buffer(Tier::disk, bytes, 16 << 10);
    const std::vector<std::byte> values = counted(bytes, 3);
    store->write(b, 0, values.data(), bytes);
    EXPECT_EQ(read(*store, b, 0, bytes), values) << bytes;
  }
}

TEST_F(Stores, WriteAPartOfWhatLiesOnDiskAndLeaveTheRest) {
  const auto store = make(kTierBytes);
  const Buffer b = buffer(Tier::disk, 9000);
  std::vector<std::byte> values = counted(b.bytes, 5);
  store->write(b, 0, values.data(), b.bytes);
  const std::vector<std::byte> part = counted(700, 90);
  store->write(b, 4000, part.data(), part.size());
  std::ranges::copy(part, values.begin() + 4000);
  EXPECT_EQ(read(*store, b, 0, b.bytes), values);
  EXPECT_EQ(read(*store, b, 3990, 20), (std::vector<std::byte>(values.begin() + 3990, values.begin() + 4010)));
}

// Reads and writes two arrays part by part, in turn. A session does so with master weights, because each of their two
// planes is an array of its own.
TEST_F(Stores, SweepOverTwoArraysOnDiskInTurn) {
  // The last two piece sizes are larger than any array. Twice the last size overflows 64 bits.
  for (const std::uint64_t piece_bytes : {std::uint64_t{8192}, std::uint64_t{1} << 40, std::uint64_t{1} << 63}) {
    SCOPED_TRACE(piece_bytes);
    device_ = backend::open("cpu", 1);  // a device has one arena
    const auto store = make(kTierBytes, piece_bytes);
    const Buffer first = buffer(Tier::disk, 20'000), second = buffer(Tier::disk, 20'000, 24 << 10);
    const std::vector<std::byte> a = counted(20'000, 1), b = counted(20'000, 100);
    store->write(first, 0, a.data(), a.size());
    store->write(second, 0, a.data(), a.size());
    Store::Sweep sweep(*store);
    for (std::uint64_t at = 0; at < a.size(); at += 500) {
      const Store::Sweep part(*store);
      store->write(first, at, &b[at], 500);
      store->write(second, at, &a[at], 500);
      std::vector<std::byte> out(500);
      store->read(first, at, out.data(), out.size());
      ASSERT_TRUE(std::ranges::equal(out, std::span(b).subspan(at, 500))) << at;
    }
    sweep.finish();
    EXPECT_EQ(read(*store, first, 0, first.bytes), b);
    EXPECT_EQ(read(*store, second, 0, second.bytes), a);
  }
}

// Results of a Program lie in the memory that staging uses. Reads and writes of the disk must leave them there.
TEST_F(Stores, KeepTheResultsOfAProgram) {
  const Store::Bytes state = {4096, 0, kTierBytes};
  for (const std::uint64_t results : {std::uint64_t{100}, std::uint64_t{4096}, kTierBytes - 4096}) {
    device_ = backend::open("cpu", 1);  // a device has one arena
    Store store(*device_, {.bytes = {kTierBytes, 0, kTierBytes},
                           .state_bytes = state,
                           .piece_bytes = 8192,
                           .directory = directory_.path()});
    const std::vector<std::byte> values = counted(results, 7), array = counted(20'000, 3);
    std::ranges::copy(values, store.at(Tier::device, 4096));
    store.keep_results(4096 + results);
    const Buffer b = buffer(Tier::disk, array.size());
    store.write(b, 0, array.data(), array.size());
    EXPECT_EQ(read(store, b, 0, b.bytes), array);
    EXPECT_TRUE(std::ranges::equal(values, std::span(store.at(Tier::device, 4096), results))) << results;
    store.keep_results(0);
    EXPECT_EQ(store.staging(8192), store.at(Tier::device, 4096));
  }
}

TEST_F(Stores, LeaveTheMemoryBehindAnOddReadAlone) {
  const auto store = make(kTierBytes);
  const std::vector<std::byte> values = counted(5000, 7);
  std::byte *piece = store->staging(kDiskAlignment * 2);
  std::ranges::copy(values, piece);
  store->write_disk(8192, piece, values.size());
  std::fill_n(piece, kDiskAlignment * 2, std::byte{0xEE});
  store->read_disk(8192, piece, values.size());
  EXPECT_TRUE(std::equal(values.begin(), values.end(), piece));
  EXPECT_EQ(piece[values.size()], std::byte{0xEE});
}

TEST_F(Stores, PassThroughTheDiskWithoutRoomInTheArenasAndSpareTheState) {
  const auto store = make(0);
  const std::vector<std::byte> state = counted(kTierBytes, 1), values = counted(6000, 50);
  for (const Tier tier : {Tier::device, Tier::host})
    store->write(buffer(tier, kTierBytes), 0, state.data(), kTierBytes);
  store->write(buffer(Tier::disk, 6000), 0, values.data(), values.size());
  EXPECT_EQ(read(*store, buffer(Tier::disk, 6000), 0, 6000), values);
  for (const Tier tier : {Tier::device, Tier::host})
    EXPECT_EQ(read(*store, buffer(tier, kTierBytes), 0, kTierBytes), state);
}

TEST_F(Stores, SayHowMuchOfTheHostsMemoryCouldNotBePinned) {
  EXPECT_EQ(make(kTierBytes)->unpinned_bytes(), 0u);
  device_ = std::make_unique<test::UnpinnedDevice>();
  EXPECT_EQ(make(kTierBytes)->unpinned_bytes(), 2 * kTierBytes);
  device_ = std::make_unique<test::UnpinnedDevice>(4096);
  auto in_part = make(kTierBytes);
  EXPECT_EQ(in_part->pinned_bytes(), 4096u);
  EXPECT_EQ(in_part->unpinned_bytes(), 2 * kTierBytes - 4096);
  in_part.reset();
  device_ = std::make_unique<test::UnpinnedDevice>();
  const Store without(*device_, {.bytes = {64, 0, 0}, .state_bytes = {64, 0, 0}});
  EXPECT_EQ(without.unpinned_bytes(), 0u);
}

TEST_F(Stores, LeaveNoFileBehindInTheDirectory) {
  const auto store = make(0);
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

TEST_F(Stores, HaveNoAddressForWhatLiesOnDisk) {
  const auto store = make(0);
  try {
    store->address(buffer(Tier::disk, 64));
    FAIL() << "an address on disk";
  } catch (const Error &error) {
    EXPECT_EQ(error.code, Code::internal);
  }
}

TEST_F(Stores, AskForADirectoryBeforeTheyUseTheDisk) {
  try {
    const Store store(*device_, {.bytes = {64, 0, 4096}, .state_bytes = {64, 0, 4096}});
    FAIL() << "a disk without a directory";
  } catch (const Error &error) {
    EXPECT_EQ(error.code, Code::arg);
    EXPECT_EQ(error.subject, "offload_dir");
  }
}

TEST_F(Stores, PinNothingIfTheyCannotHaveTheirFile) {
  class PinningDevice final : public test::Forwarding {
   public:
    std::uint64_t pin(void *, std::uint64_t bytes) override { return pinned = bytes; }
    void unpin(void *) override { pinned = 0; }
    std::uint64_t pinned = 0;
  } device;
  const Store::Room room = {.bytes = {64, 4096, 4096}, .state_bytes = {64, 4096, 4096}, .directory = "/nowhere"};
  EXPECT_THROW(Store(device, room), Error);
  EXPECT_EQ(device.pinned, 0u);
}

}  // namespace
}  // namespace protrain::run::store_test
