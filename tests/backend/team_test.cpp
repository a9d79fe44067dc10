// The CPU device: its team of threads, its arena, and how it launches kernels and reports their errors.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "backend/cpu/gemm.h"
#include "backend/cpu/kernel.h"
#include "base/error.h"
#include "usable_processors.h"

namespace protrain::backend::cpu::team_test {
namespace {

template <typename Work>
class Calls : public CpuKernel {
 public:
  explicit Calls(Work work) : work_(std::move(work)) {}
  void run(Member &member, const Launch &launch) override { work_(member, launch); }

 private:
  Work work_;
};

template <typename Issue>
void step(Device &device, Issue issue) {
  device.run_step([](void *self) { (*static_cast<Issue *>(self))(); }, &issue);
}

TEST(CpuDevice, SaysWhatItIs) {
  const auto device = open("cpu", 2);
  EXPECT_EQ(device->info().name, "cpu");
  EXPECT_EQ(device->info().kind, DeviceKind::cpu);
  EXPECT_EQ(device->info().precisions, (std::vector<DType>{DType::f32, DType::bf16, DType::f16}));
  EXPECT_EQ(device->info().threads, 2);
  EXPECT_TRUE(device->info().shares_memory && device->info().shares_cores);
  EXPECT_GT(device->info().memory_bytes, 1U << 20);
  EXPECT_TRUE(device->info().libraries.starts_with("oneDNN ")) << device->info().libraries;
  EXPECT_NE(device->info().libraries.find(", hints "), std::string::npos) << device->info().libraries;
  EXPECT_EQ(open("cpu", 0)->info().threads, available_threads());
}

// OpenMP binds the first thread of a process before main() begins, so this program runs the test once more in a process
// of its own.
TEST(CpuDevice, HasAsManyThreadsAndProcessorsWhereOpenMpBindsThreads) {
  const char *variable = "PROTRAIN_TEST_THREADS";
  const auto processors_of_members = [](int size) {
    Team team(size, "test");
    std::vector<std::set<int>> sets(static_cast<std::size_t>(size));
    team.enter([&] {
      team.run([&](Member &member) { sets[static_cast<std::size_t>(member.index)] = test::usable_processors(); });
    });
    std::set<int> all;
    for (const std::set<int> &set : sets) all.insert(set.begin(), set.end());
    return static_cast<int>(all.size());
  };
  if (const char *expected = std::getenv(variable)) {
    EXPECT_EQ(open("cpu", 0)->info().threads, std::atoi(expected));
    EXPECT_EQ(processors_of_members(std::atoi(expected)), std::atoi(expected));
    EXPECT_EQ(processors_of_members(std::atoi(expected) - 1), std::atoi(expected)) << "it may use all processors";
    return;
  }
  const int threads = available_threads();
  if (threads < 2) GTEST_SKIP() << "there is one processor";
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string filter = "CpuDevice.HasAsManyThreadsAndProcessorsWhereOpenMpBindsThreads";
  EXPECT_EQ(
      std::system(
          fmt::format("OMP_PROC_BIND=true {}={} '{}' --gtest_filter={}", variable, threads, program, filter).c_str()),
      0);
}

TEST(CpuDevice, RefusesWhatIsNotThere) {
  EXPECT_THROW(open("tpu:0", 1), Error);
  EXPECT_THROW(open("cpu:0", 1), Error);
  EXPECT_THROW(open("cpu", 1, true), Error) << "TF32 is a GPU's";
  EXPECT_THROW(open("cpu", -1), Error);
  EXPECT_THROW(open("cpu", 1 << 20), Error);
  graph::Node node;
  node.op = "Teleport";
  try {
    open("cpu", 1)->compile({node, {}, {}});
    FAIL();
  } catch (const Error &error) {
    EXPECT_EQ(error.code, Code::unsupported);
    EXPECT_EQ(error.text, "the cpu has no kernel for Teleport");
  }
}

TEST(CpuDevice, ArenaIsAlignedAndAllocatedOnce) {
  const auto device = open("cpu", 1);
  void *arena = device->allocate_arena(1000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena) % kAlignment, 0U);
  EXPECT_THROW(device->allocate_arena(1000), Error);
  const std::uint32_t there = 7;
  std::uint32_t back = 0;
  device->write(arena, &there, 4);
  device->read(&back, arena, 4);
  EXPECT_EQ(back, 7U);
}

TEST(CpuDevice, ThousandsOfLaunchesRunInOrderOnAllMembers) {
  for (int threads : {1, 2, 3, 4, 64}) {
    const int launches = threads > 4 ? 1000 : 10'000;
    const auto device = open("cpu", threads);
    std::vector<int> next(static_cast<std::size_t>(threads));
    int launched = 0;
    Calls kernel([&](Member &member, const Launch &) {
      int &own = next[static_cast<std::size_t>(member.index)];
      own += own == launched;  // stops counting once a launch comes out of order
    });
    step(*device, [&] {
      for (launched = 0; launched < launches; ++launched) device->launch(Queue::compute, kernel, {});
    });
    for (int count : next) EXPECT_EQ(count, launches);
  }
}

TEST(CpuDevice, SessionsSideBySideDoNotDisturbEachOther) {
  std::vector<std::thread> sessions;
  std::atomic<int> total = 0;
  for (int s = 0; s < 4; ++s)
    sessions.emplace_back([&] {
      const auto device = open("cpu", 2);
      Calls kernel([&](Member &member, const Launch &) { member.barrier(), ++total; });
      for (int i = 0; i < 50; ++i)
        step(*device, [&] {
          for (int l = 0; l < 20; ++l) device->launch(Queue::host, kernel, {});
        });
    });
  for (std::thread &session : sessions) session.join();
  EXPECT_EQ(total, 4 * 50 * 20 * 2);
}

TEST(CpuDevice, AKernelsErrorComesOutOfTheStepAndTheDeviceGoesOn) {
  const auto device = open("cpu", 3);
  Calls bad([](Member &member, const Launch &) {
    if (member.index == 1) fail(Code::arg, "labels", "label 9 is outside 0..7");
    member.barrier();
  });
  try {
    step(*device, [&] { device->launch(Queue::compute, bad, {}); });
    FAIL();
  } catch (const Error &error) {
    EXPECT_EQ(error.text, "label 9 is outside 0..7");
  }
  std::atomic<int> runs = 0;
  Calls good([&](Member &, const Launch &) { ++runs; });
  step(*device, [&] { device->launch(Queue::compute, good, {}); });
  EXPECT_EQ(runs, 3);
}

TEST(CpuDevice, NoThreadBeyondTheTeamIsEverStarted) {
  auto threads = [] {
    const auto tasks = std::filesystem::directory_iterator("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  };
  std::thread([] {}).join();  // with the first thread, a sanitizer may start one of its own
  const auto before = threads();
  {
    const auto device = open("cpu", 2);
    graph::Node node;
    node.op = "MatMul";
    const graph::Type square{DType::f32, {512, 512}};
    const auto kernel = device->compile({node, {square, square}, {square}});
    std::vector<float> operands(3 * 512 * 512), scratch(kernel->scratch_bytes / 4 + 1);
    std::vector<void *> inputs = {operands.data(), operands.data() + 512 * 512};
    std::vector<void *> outputs = {operands.data() + 2 * 512 * 512};
    step(*device, [&] { device->launch(Queue::compute, *kernel, {inputs, outputs, scratch.data()}); });
    EXPECT_EQ(threads(), before + 2);
  }
  EXPECT_EQ(threads(), before);
}

TEST(CpuDevice, NamesNoInstructionSetForWhichItsLoopsAreNotCompiled) {
#if defined(PROTRAIN_NO_CLONES)
  EXPECT_TRUE(open("cpu", 2)->info().description.ends_with(", 2 threads, baseline"));
#else
  GTEST_SKIP() << "loops are compiled for every instruction set";
#endif
}

}  // namespace
}  // namespace protrain::backend::cpu::team_test
