// MemoryBlock, and the amount of memory that counts as available.
#include "base/memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/cgroup.h"
#include "base/error.h"

namespace protrain::memory_test {
namespace {

std::uint64_t mapped_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t pages = 0;
  statm >> pages;
  return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

TEST(MemoryBlock, IsAlignedZeroedAndExact) {
  const std::uint64_t bytes = (100 << 20) + 1;
  const std::uint64_t before = mapped_bytes();
  MemoryBlock block(bytes, "test");
  EXPECT_LE(mapped_bytes() - before, bytes + 8192);
  EXPECT_EQ(block.size(), bytes);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data()) % 4096, 0U);
  EXPECT_EQ(block.data()[bytes - 1], std::byte{0});
  std::memset(block.data(), 1, 4096);
}

TEST(MemoryBlock, GivesItsMemoryBack) {
  const std::uint64_t before = mapped_bytes();
  {
    MemoryBlock block(64 << 20, "test");
    MemoryBlock moved(std::move(block));
    EXPECT_EQ(block.data(), nullptr);
    EXPECT_NE(moved.data(), nullptr);
    block = std::move(moved);
    EXPECT_EQ(block.size(), 64U << 20);
  }
  EXPECT_LT(mapped_bytes(), before + (32 << 20));
}

TEST(MemoryBlock, OfNothingHasNoAddress) {
  EXPECT_EQ(MemoryBlock(0, "test").data(), nullptr);
  EXPECT_EQ(MemoryBlock().size(), 0U);
}

TEST(MemoryBlock, RefusalSaysWhatWasAskedFor) {
  for (std::uint64_t bytes : {UINT64_MAX, std::uint64_t{1} << 62}) try {
      MemoryBlock block(bytes, "device arena");
      FAIL() << "the system gave " << bytes << " bytes";
    } catch (const Error &error) {
      EXPECT_EQ(error.code, Code::nomem);
      EXPECT_EQ(error.subject, "device arena");
      EXPECT_NE(error.text.find(std::to_string(bytes)), std::string::npos);
    }
}

class AvailableMemory : public testing::Test {
 protected:
  AvailableMemory() : root(testing::TempDir() + "memory_" + std::to_string(getpid())) {
    write("/proc/meminfo", "MemTotal: 900000 kB\nMemAvailable:    500000 kB\n");
  }
  ~AvailableMemory() override { std::filesystem::remove_all(root); }
  void write(const std::string &path, const std::string &text) const {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  }
  const std::string root;
};

TEST_F(AvailableMemory, IsTheMachinesWithoutLimits) { EXPECT_EQ(available_memory(root), 500000U * 1024); }

TEST_F(AvailableMemory, IsWhatTheTightestGroupLeavesWithItsCacheCounted) {
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/sys/fs/cgroup/a/memory.max", "300000000\n");
  write("/sys/fs/cgroup/a/memory.current", "100000000\n");
  EXPECT_EQ(available_memory(root), 200'000'000U);
  write("/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 40000000\n");
  EXPECT_EQ(available_memory(root), 240'000'000U);
  write("/sys/fs/cgroup/a/b/memory.max", "50000000\n");
  write("/sys/fs/cgroup/a/b/memory.current", "60000000\n");
  EXPECT_EQ(available_memory(root), 0U);
}

TEST_F(AvailableMemory, IsReadFromVersionOne) {
  write("/proc/self/cgroup", "3:memory:/docker/x\n0::/docker/x\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "100000000");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "30000000");
  write("/sys/fs/cgroup/memory/memory.stat", "total_inactive_file 5000000\n");
  EXPECT_EQ(available_memory(root), 75'000'000U);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // both reserve terabytes of addresses
TEST_F(AvailableMemory, RespectsTheLimitOnAddresses) {
  const pid_t child = fork();
  if (child == 0) {
    const rlim_t bytes = mapped_bytes() + (100 << 20);
    const rlimit limit{bytes, bytes};
    setrlimit(RLIMIT_AS, &limit);
    const std::uint64_t left = available_memory();
    _exit(left <= 100 << 20 && left > 90 << 20 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
#endif

}  // namespace
}  // namespace protrain::memory_test
