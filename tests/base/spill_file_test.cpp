// SpillFile returns data as it was written, and detects data that changed.
#include "base/spill_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "errors.h"

namespace protrain::spill_file_test {
namespace {

namespace fs = std::filesystem;

using test::code_of;

class SpillFileTest : public testing::Test {
 protected:
  SpillFileTest() {
    std::string pattern = (fs::temp_directory_path() / "protrain-spill-XXXXXX").string();
    directory = mkdtemp(pattern.data());
  }
  ~SpillFileTest() override { fs::remove_all(directory); }

  std::string directory;
};

std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>((i * 2654435761u + seed) >> 7);
  return out;
}

constexpr std::size_t kSizes[] = {1, 4095, 4096, 4097, 64 << 10, (1 << 20) + 1, (9 << 20) + 4096 + 17};

// While the object lives, this process gets a signal every 50 microseconds, as from a profiler.
class Alarms {
 public:
  Alarms() {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, &before_);
    repeat(50);
  }
  ~Alarms() {
    repeat(0);
    sigaction(SIGALRM, &before_, nullptr);
  }

 private:
  static void repeat(suseconds_t microseconds) {
    const itimerval timer{{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &timer, nullptr);
  }
  struct sigaction before_ {};
};

// A file system in memory gives up when a signal interrupts it.
TEST(SpillFile, IsMadeWhileSignalsArrive) {
  const std::string in_memory = "/dev/shm";
  std::error_code unknown;
  if (const fs::space_info space = fs::space(in_memory, unknown); unknown || space.available < (48 << 20))
    GTEST_SKIP() << in_memory << " has no room";
  const Alarms alarms;
  EXPECT_NO_THROW(SpillFile(in_memory, 32 << 20));
}

TEST_F(SpillFileTest, GivesBackRegionsOfAnySizeFromAnyAddress) {
  SpillFile file(directory, 64 << 20);
  MemoryBlock memory(16 << 20, "test");
  for (const std::size_t shift : {std::size_t{0}, std::size_t{64}}) {
    std::uint64_t offset = 0;
    for (const std::size_t bytes : kSizes) {
      file.declare(offset, bytes);
      const std::vector<std::byte> right = pattern(bytes, static_cast<unsigned>(offset + shift));
      const std::span<std::byte> at(memory.data() + shift, bytes);
      std::memcpy(at.data(), right.data(), bytes);
      file.write(offset, at);
      std::memset(at.data(), 0, bytes);
      file.read(offset, at);
      EXPECT_EQ(std::memcmp(at.data(), right.data(), bytes), 0) << bytes << " bytes, address + " << shift;
      offset += (bytes + kDiskAlignment - 1) / kDiskAlignment * kDiskAlignment;
    }
  }
}

TEST_F(SpillFileTest, ReadsWhileAnotherThreadWrites) {
  constexpr std::size_t kBytes = (3 << 20) + 4096 + 17, kStep = 4 << 20;
  for (const std::size_t shift : {std::size_t{0}, std::size_t{64}}) {
    SpillFile file(directory, 2 * kStep);
    const std::vector<std::byte> right[] = {pattern(kBytes, 1), pattern(kBytes, 2)};
    MemoryBlock from(kStep, "test"), to(kStep, "test");
    const std::span<std::byte> written(from.data() + shift, kBytes), read(to.data() + shift, kBytes);
    for (const std::size_t region : {0, 1}) {
      std::ranges::copy(right[region], written.data());
      file.write(region * kStep, written);
    }
    std::thread writer([&] {
      for (int i = 0; i < 40; ++i) file.write(kStep, written);
    });
    for (int i = 0; i < 40; ++i) {
      file.read(0, read);
      EXPECT_TRUE(std::ranges::equal(right[0], read)) << i;
    }
    writer.join();
    file.read(kStep, read);
    EXPECT_TRUE(std::ranges::equal(right[1], read));
  }
}

TEST_F(SpillFileTest, LeavesNothingInFlightBehindAnError) {
  constexpr std::size_t kBytes = 8 << 20;
  SpillFile file(directory, kBytes);
  MemoryBlock memory(kBytes, "test");
  const std::span<std::byte> all(memory.data(), kBytes);
  const auto holds = [&](int value) {
    return std::ranges::all_of(all, [&](std::byte b) { return b == static_cast<std::byte>(value); });
  };
  std::memset(all.data(), 0x11, kBytes);
  file.write(0, all);
  std::memset(all.data(), 0, kBytes);
  ASSERT_EQ(::mprotect(all.data(), kDiskAlignment, PROT_READ), 0);  // the first of eight requests fails
  EXPECT_EQ(code_of([&] { file.read(0, all); }), Code::io);
  ASSERT_EQ(::mprotect(all.data(), kDiskAlignment, PROT_READ | PROT_WRITE), 0);
  std::memset(all.data(), 0, kBytes);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TRUE(holds(0)) << "a request still moved data";
  file.read(0, all);
  EXPECT_TRUE(holds(0x11));
}

TEST_F(SpillFileTest, HasNoNameAndLeavesNothing) {
  const SpillFile file(directory, 1 << 20);
  EXPECT_TRUE(fs::is_empty(directory));
}

TEST_F(SpillFileTest, TakesItsSizeAtOnceOrRefuses) {
  EXPECT_EQ(code_of([&] { SpillFile(directory, 1ull << 55); }), Code::nospc);
  EXPECT_EQ(code_of([&] { SpillFile(directory + "/nowhere", 4096); }), Code::io);
  std::FILE *plain = std::fopen((directory + "/plain").c_str(), "w");
  std::fclose(plain);
  EXPECT_EQ(code_of([&] { SpillFile(directory + "/plain", 4096); }), Code::path);
}

// The error must be Code::nospc if the file exceeds the process's limit on the size of files. The system then sends
// SIGXFSZ too, which would end this process if the library did not withhold the signal.
TEST_F(SpillFileTest, RefusesWhatIsBeyondTheProcesssLimitOfAFilesSize) {
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit tight{.rlim_cur = 1000, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &tight);
  const Code code = code_of([&] { SpillFile(directory, 4096); });
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(code, Code::nospc);
}

TEST_F(SpillFileTest, RefusesToReadWhatWasNeverWritten) {
  SpillFile file(directory, 1 << 20);
  std::vector<std::byte> memory(4096);
  file.declare(0, 4096);
  EXPECT_EQ(code_of([&] { file.read(0, memory); }), Code::corrupt);
  EXPECT_EQ(code_of([&] { file.read(4096, memory); }), Code::corrupt) << "not even declared";
  file.write(0, memory);
  EXPECT_EQ(code_of([&] { file.read(0, std::span(memory).first(100)); }), Code::corrupt) << "another size";
  EXPECT_EQ(code_of([&] { file.write(100, memory); }), Code::internal) << "no place on a disk";
}

TEST_F(SpillFileTest, NoticesARegionThatAnotherWroteOver) {
  SpillFile file(directory, 1 << 20);
  std::vector<std::byte> first = pattern(8192, 1), second = pattern(4096, 2);
  file.declare(0, 8192);
  file.declare(4096, 4096);
  file.write(0, first);
  EXPECT_EQ(code_of([&] { file.read(0, first); }), Code::ok);
  file.write(4096, second);
  EXPECT_EQ(code_of([&] { file.read(4096, second); }), Code::ok);
  EXPECT_EQ(code_of([&] { file.read(0, first); }), Code::corrupt);
}

// Opens the spill file a second time. The file has no name, so the function looks for it among the process's open
// files.
int second_descriptor(const std::string &directory) {
  for (const auto &entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const std::string target = fs::read_symlink(entry.path(), ignored).string();
    if (target.starts_with(directory)) return ::open(entry.path().c_str(), O_RDWR);
  }
  return -1;
}

TEST_F(SpillFileTest, NoticesASingleBitThatFlippedOnTheDisk) {
  SpillFile file(directory, 4 << 20);
  MemoryBlock memory(3 << 20, "test");
  const std::span<std::byte> at(memory.data(), memory.size());
  file.declare(0, at.size());
  file.write(0, at);
  const int other = second_descriptor(directory);
  ASSERT_GE(other, 0);
  const char flipped = 1;
  ASSERT_EQ(::pwrite(other, &flipped, 1, 2'345'678), 1);
  ASSERT_EQ(::fsync(other), 0);
  ::close(other);
  EXPECT_EQ(code_of([&] { file.read(0, at); }), Code::corrupt);
  std::memset(at.data(), 0, at.size());
  file.write(0, at);
  EXPECT_EQ(code_of([&] { file.read(0, at); }), Code::ok) << "written anew it is whole again";
}

}  // namespace
}  // namespace protrain::spill_file_test
