// Many small models composed at random go through passes, gradients and kernels. PROTRAIN_COMPOSED=COUNT sets their
// number, PROTRAIN_COMPOSED_SEED=N the first seed. A seed determines a model.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>

#include "asked.h"
#include "composed/check.h"

namespace protrain::test::composed_test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kModels = 1000;
#else
constexpr std::uint64_t kModels = 3000;
#endif
constexpr int kMostFailures = 5;

// Every tenth model has axes without elements.
Recipe recipe_of(std::uint64_t seed) { return {.seed = seed, .skipped = {}, .empty_axes = seed % 10 == 0}; }

// A signal handler that prints which model crashed.
char crash_note[80];
void say_which(int signal) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, crash_note, std::strlen(crash_note));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}
class CrashNote {
 public:
  CrashNote() {
    for (std::size_t i = 0; i < std::size(kSignals); ++i) before_[i] = std::signal(kSignals[i], say_which);
  }
  ~CrashNote() {
    for (std::size_t i = 0; i < std::size(kSignals); ++i) std::signal(kSignals[i], before_[i]);
  }
  void set(std::uint64_t seed) {
    std::snprintf(crash_note, sizeof crash_note, "crash in the model of seed %llu\n",
                  static_cast<unsigned long long>(seed));
  }

 private:
  static constexpr int kSignals[] = {SIGSEGV, SIGABRT, SIGFPE, SIGBUS};
  void (*before_[std::size(kSignals)])(int);
};

TEST(ComposedModels, HaveTheGradientsOfTheReferenceAndOfFiniteDifferences) {
  const std::uint64_t first = asked("PROTRAIN_COMPOSED_SEED", 1), count = asked("PROTRAIN_COMPOSED", kModels);
  KernelRun kernels;
  CrashNote note;
  std::map<Verdict::Kind, std::uint64_t> verdicts;
  std::map<std::string, std::uint64_t> refusals;
  std::uint64_t directions = 0;
  int failures = 0;
  for (std::uint64_t seed = first; seed < first + count && failures < kMostFailures; ++seed) {
    note.set(seed);
    const Verdict verdict = check(recipe_of(seed), kernels);
    ++verdicts[verdict.kind];
    directions += static_cast<std::uint64_t>(verdict.directions);
    if (verdict.kind == Verdict::Kind::refused) ++refusals[verdict.text];
    if (verdict.kind != Verdict::Kind::wrong) continue;
    ++failures;
    const Recipe small = shrunk(recipe_of(seed), kernels);
    ADD_FAILURE() << "PROTRAIN_COMPOSED=1 PROTRAIN_COMPOSED_SEED=" << seed << ": " << check(small, kernels).text << "\n"
                  << print(small);
  }
  const std::uint64_t done = verdicts[Verdict::Kind::right] + verdicts[Verdict::Kind::refused] +
                             verdicts[Verdict::Kind::unsettled] + verdicts[Verdict::Kind::wrong];
  std::printf("%llu models from seed %llu: %llu right, %llu unsettled, %llu refused, %llu wrong; %llu directions\n",
              static_cast<unsigned long long>(done), static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(verdicts[Verdict::Kind::right]),
              static_cast<unsigned long long>(verdicts[Verdict::Kind::unsettled]),
              static_cast<unsigned long long>(verdicts[Verdict::Kind::refused]),
              static_cast<unsigned long long>(verdicts[Verdict::Kind::wrong]),
              static_cast<unsigned long long>(directions));
  if (std::getenv("PROTRAIN_COMPOSED_REFUSALS") != nullptr)
    for (const auto &[text, times] : refusals)
      std::printf("%6llu %s\n", static_cast<unsigned long long>(times), text.c_str());
  // Most models must be right, and gradients must have been compared in more directions than there are models.
  // Otherwise the test would check too little.
  if (count >= 1000 && failures == 0) {
    EXPECT_GT(verdicts[Verdict::Kind::right], done / 2);
    EXPECT_GT(directions, done);
  }
}

}  // namespace
}  // namespace protrain::test::composed_test
