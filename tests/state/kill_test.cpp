// A save that is killed at any instant leaves a checkpoint that loads: the last acknowledged one, or a later one.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <random>

#include "small.h"

namespace protrain::state::kill_test {
namespace {

constexpr int kKills = 50;

// A checkpoint so large that kills at different times hit all parts of a save.
Description medium(std::uint64_t step) {
  Description description = small(step);
  reshape(description.parameters[0], {300'000});
  return description;
}

// Saves one step after the other. Saves each step twice, so that saves also replace a checkpoint of the same step.
// Writes each saved step to `out`.
[[noreturn]] void save_until_killed(const std::string &directory, std::uint64_t step, std::size_t parts, int out) {
  for (;; ++step)
    for (int again = 0; again < 2; ++again) {
      save_in_parts(directory, medium(step), parts);
      if (write(out, &step, sizeof step) != sizeof step) _exit(1);
    }
}

// Starts a process that saves from step `first` on, and kills it after `microseconds`. Returns the last step that the
// process reported, or `first` - 1.
std::uint64_t save_and_kill(const std::string &directory, std::uint64_t first, std::size_t parts,
                            std::uint32_t microseconds) {
  int ends[2];
  if (pipe(ends) != 0) return 0;
  const pid_t child = fork();
  if (child == 0) save_until_killed(directory, first, parts, ends[1]);
  close(ends[1]);
  usleep(microseconds);
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "it ended before, by itself";
  std::uint64_t last = first - 1;
  for (std::uint64_t step = 0; read(ends[0], &step, sizeof step) == sizeof step;) last = step;
  close(ends[0]);
  return last;
}

class Killed : public SavedCheckpoint, public testing::WithParamInterface<std::size_t> {};

TEST_P(Killed, AKillAtAnyInstantLosesNothingThatWasAcknowledged) {
  std::mt19937 random(7);
  const auto start = std::chrono::steady_clock::now();
  save_in_parts(directory_, medium(1), GetParam());
  const auto lasts = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start);
  std::uniform_int_distribution<std::uint32_t> instant(0, 4 * static_cast<std::uint32_t>(lasts.count()));
  std::uint64_t present = 1;
  for (int i = 0; i < kKills; ++i) {
    const std::uint64_t reported = save_and_kill(directory_, present + 1, GetParam(), instant(random));
    const std::uint64_t found = load_all(directory_, medium(0));
    ASSERT_GE(found, reported) << "kill " << i;
    ASSERT_LE(found, reported + 1) << "kill " << i;
    for (; present < found; ++present) fs::remove_all(directory_ + fmt::format("/step-{:010}", present));
  }
  EXPECT_GT(present, 1u) << "no save was ever complete";
  save(directory_, medium(present + 1), reader(present + 1));
  for (const auto &entry : fs::directory_iterator(directory_))
    EXPECT_EQ(entry.path().filename().string().rfind("step-", 0), 0u) << "was left behind: " << entry.path();
}

INSTANTIATE_TEST_SUITE_P(Parts, Killed, testing::Values(1, 3));

}  // namespace
}  // namespace protrain::state::kill_test
