// Team, and the number of threads that the process may use.
#include "base/threads.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/cgroup.h"
#include "base/error.h"
#include "base/processors.h"
#include "usable_processors.h"

namespace protrain::threads_test {
namespace {

TEST(Share, CoversTheRangeInOrderAtMultiplesOfTheGrain) {
  for (std::int64_t count : {0, 1, 15, 16, 17, 100, 1000})
    for (int size : {1, 2, 3, 7}) {
      std::int64_t at = 0;
      for (int i = 0; i < size; ++i) {
        const Range range = share(count, 16, i, size);
        EXPECT_EQ(range.begin, at);
        EXPECT_TRUE(range.end == count || range.end % 16 == 0);
        at = range.end;
      }
      EXPECT_EQ(at, count);
    }
}

TEST(MembersAtWork, AreThoseWhoseShareIsNotEmpty) {
  for (std::int64_t count : {0, 1, 7, 8, 9, 1000})
    for (int size : {1, 2, 8, 64}) {
      const int working = members_at_work(count, size);
      for (int i = 0; i < size; ++i) EXPECT_EQ(share(count, 1, i, size).size() > 0, i < working) << count << ", " << i;
    }
}

TEST(Team, RunsWorkOnceOnEveryMember) {
  for (int size = 1; size <= 4; ++size) {
    Team team(size, "test");
    std::vector<int> calls(static_cast<std::size_t>(size));
    team.enter([&] { team.run([&](Member &member) { ++calls[static_cast<std::size_t>(member.index)]; }); });
    EXPECT_EQ(calls, std::vector<int>(static_cast<std::size_t>(size), 1));
  }
}

TEST(Team, ThousandsOfRunsWithBarriersLoseNothing) {
  for (int size : {1, 2, 3, 4, 64}) {
    Team team(size, "test");
    std::vector<std::int64_t> own(static_cast<std::size_t>(size)), sums(own);
    const std::int64_t steps = size > 4 ? 10 : 100, runs = steps * 100;
    for (std::int64_t step = 0; step < steps; ++step)
      team.enter([&] {
        for (int launch = 0; launch < 100; ++launch)
          team.run([&](Member &member) {
            const auto i = static_cast<std::size_t>(member.index);
            own[i] += member.index + 1;
            member.barrier();
            sums[i] += own[(i + 1) % own.size()];  // written by the neighbour before the barrier
            member.barrier();
          });
      });
    for (std::size_t i = 0; i < own.size(); ++i)
      EXPECT_EQ(sums[i], static_cast<std::int64_t>((i + 1) % own.size() + 1) * runs * (runs + 1) / 2);
  }
}

TEST(Team, SideBySideTeamsDoNotDisturbEachOther) {
  std::atomic<int> total = 0;
  std::vector<std::thread> sessions;
  for (int s = 0; s < 3; ++s)
    sessions.emplace_back([&] {
      Team team(3, "side");
      for (int step = 0; step < 200; ++step)
        team.enter([&] {
          for (int launch = 0; launch < 5; ++launch)
            team.run([&](Member &member) {
              member.barrier();
              ++total;
            });
        });
    });
  for (std::thread &session : sessions) session.join();
  EXPECT_EQ(total, 3 * 200 * 5 * 3);
}

// The threads of this process whose names begin with a given text: how many there are, and how many of them sleep.
struct Threads {
  int all = 0, asleep = 0;
};
Threads threads_called(const std::string &name) {
  Threads found;
  for (const auto &task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream stat(task.path() / "stat");
    const std::string line((std::istreambuf_iterator<char>(stat)), {});
    const std::size_t open = line.find('('), close = line.rfind(')');
    if (close == std::string::npos || line.compare(open + 1, name.size(), name) != 0) continue;
    ++found.all;
    found.asleep += line[close + 2] == 'S';
  }
  return found;
}

TEST(Team, AllOfItSleepsOnceItsWorkIsDone) {
  Team team(4, "idle");
  for (int step = 0; step < 10; ++step)
    team.enter([&] {
      for (int i = 0; i < 100; ++i) team.run([](Member &member) { member.barrier(); });
    });
  Threads found;
  for (int tries = 0; tries < 1000 && found.asleep < 4; ++tries) {  // idle members spin for a moment before they sleep
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    found = threads_called("idle/");
  }
  EXPECT_EQ(found.all, 4);
  EXPECT_EQ(found.asleep, 4);
}

TEST(Team, WorkRunsOnThreadsOfItsOwnWithAllSignalsBlocked) {
  Team team(2, "own");
  const pthread_t caller = pthread_self();
  std::vector<int> blocked(2);
  std::vector<std::string> names(2);
  team.enter([&] {
    team.run([&](Member &member) {
      const auto i = static_cast<std::size_t>(member.index);
      EXPECT_FALSE(pthread_equal(caller, pthread_self()));
      sigset_t mask;
      pthread_sigmask(SIG_SETMASK, nullptr, &mask);
      blocked[i] = sigismember(&mask, SIGINT) && sigismember(&mask, SIGTERM);
      char name[16] = {};
      pthread_getname_np(pthread_self(), name, sizeof(name));
      names[i] = name;
    });
  });
  EXPECT_EQ(blocked, std::vector<int>({1, 1}));
  EXPECT_EQ(names, std::vector<std::string>({"own/0", "own/1"}));
}

TEST(Team, EnterFromInsideIsAPlainCall) {
  Team team(2, "test");
  int depth = 0;
  team.enter([&] { team.enter([&] { depth = 2; }); });
  EXPECT_EQ(depth, 2);
}

TEST(Team, FirstExceptionByMemberComesOutAndTheTeamGoesOn) {
  Team team(3, "test");
  for (int thrower = 0; thrower < 3; ++thrower) {
    int reached = 0;
    try {
      team.enter([&] {
        team.run([&](Member &member) {
          if (member.index >= thrower) fail(Code::arg, "row", "member {} found it", member.index);
          member.barrier();  // never completes, because the others threw
          ++reached;
        });
      });
      FAIL() << "nothing was thrown";
    } catch (const Error &error) {
      EXPECT_EQ(error.text, "member " + std::to_string(thrower) + " found it");
    }
    EXPECT_EQ(reached, 0);
    std::atomic<int> after = 0;
    team.enter([&] {
      team.run([&](Member &member) {
        member.barrier();
        ++after;
      });
    });
    EXPECT_EQ(after, 3);
  }
}

TEST(Team, AMemberThatThrowsBetweenBarriersEndsTheRunEveryTime) {
  Team team(4, "test");
  for (int round = 0; round < 500; ++round)
    EXPECT_THROW(team.enter([&] {
      team.run([&](Member &member) {
        member.barrier();
        if (member.index == round % 4) fail(Code::arg, "", "stop");
        member.barrier();
      });
    }),
                 Error);
}

TEST(Team, NeedsAMember) { EXPECT_THROW(Team(0, "none"), Error); }

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // both reserve terabytes of addresses
TEST(Team, RefusedThreadIsAnErrorValueAndNothingIsLeftBehind) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{64 << 20, 64 << 20};  // room for a few stacks, not for a hundred
    setrlimit(RLIMIT_AS, &limit);
    int code = 1;
    try {
      Team team(100, "many");
    } catch (const Error &error) {
      const auto tasks = std::filesystem::directory_iterator("/proc/self/task");
      const bool alone = std::distance(begin(tasks), end(tasks)) == 1;
      code = (error.code == Code::device || error.code == Code::nomem) && alone ? 0 : 2;
    }
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}
#endif

class FakeRoot : public testing::Test {
 protected:
  FakeRoot() : root(testing::TempDir() + "cgroup_" + std::to_string(getpid())) {}
  ~FakeRoot() override { std::filesystem::remove_all(root); }
  void write(const std::string &path, const std::string &text) const {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  }
  const std::string root;
};
using ProcessorQuota = FakeRoot;

TEST_F(ProcessorQuota, IsTheTightestOfAllGroupsAboveRoundedUp) {
  write("/proc/self/cgroup", "0::/a/b\n");
  EXPECT_EQ(cgroup::processor_quota(root), 0);
  write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup::processor_quota(root), 0);
  write("/sys/fs/cgroup/a/cpu.max", "350000 100000\n");
  EXPECT_EQ(cgroup::processor_quota(root), 4);
  write("/sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
  EXPECT_EQ(cgroup::processor_quota(root), 1);
}

TEST_F(ProcessorQuota, IsReadFromVersionOne) {
  write("/proc/self/cgroup", "5:cpu,cpuacct:/docker/x\n3:memory:/docker/x\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000");  // a container sees its own group as the root
  write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cgroup::processor_quota(root), 2);
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(cgroup::processor_quota(root), 0);
}

std::vector<std::set<int>> processors_of_members(int size) {
  Team team(size, "test");
  std::vector<std::set<int>> all(static_cast<std::size_t>(size));
  team.enter([&] {
    team.run([&](Member &member) { all[static_cast<std::size_t>(member.index)] = test::usable_processors(); });
  });
  return all;
}

TEST(Team, OfAsManyMembersAsProcessorsGivesEachItsOwn) {
  const int count = Processors().count();
  std::set<int> together;
  for (const std::set<int> &own : processors_of_members(count)) {
    EXPECT_EQ(own.size(), 1u);
    together.insert(own.begin(), own.end());
  }
  EXPECT_EQ(together.size(), static_cast<std::size_t>(count));
}

// A caller that shares its processor with another member would keep this member from spinning.
TEST(Team, GivesItsFirstMemberTheProcessorWhereACallerStays) {
  const int count = Processors().count();
  Team team(count, "test");
  for (const int caller : test::usable_processors()) {
    std::thread([&] {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(caller, &one);
      sched_setaffinity(0, sizeof(one), &one);
      int first = -1;
      for (int calls = 0; calls < 10'000 && first != caller; ++calls) team.enter([&] { first = sched_getcpu(); });
      EXPECT_EQ(first, caller);
    }).join();
    std::vector<std::set<int>> own(static_cast<std::size_t>(count));
    team.enter([&] {
      team.run([&](Member &member) { own[static_cast<std::size_t>(member.index)] = test::usable_processors(); });
    });
    const std::set<std::set<int>> different(own.begin(), own.end());
    EXPECT_EQ(different.size(), own.size()) << "each member still has a processor of its own";
    EXPECT_EQ(own[0], std::set{caller});
  }
}

TEST(Team, OfAnotherSizeLetsEachMemberUseAllProcessors) {
  const int count = Processors().count();
  for (const int size : {count - 1, count + 1}) {
    if (size == 0) continue;
    for (const std::set<int> &own : processors_of_members(size)) EXPECT_EQ(own.size(), static_cast<std::size_t>(count));
  }
}

TEST(AvailableThreads, FollowsTheAffinityMask) {
  EXPECT_GE(available_threads(), 1);
  EXPECT_LE(available_threads(), static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))));
  int inside = 0;
  std::thread([&] {
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof(all), &all);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i)
      if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
    sched_setaffinity(0, sizeof(one), &one);
    inside = available_threads();
  }).join();
  EXPECT_EQ(inside, 1);
}

}  // namespace
}  // namespace protrain::threads_test
