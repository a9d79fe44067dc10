// Puts faults into correct Programs. verify() must find every fault. Some of the faulty Programs are also run, to show
// that such faults change results.
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "bench.h"
#include "devices.h"
#include "lives.h"

namespace protrain::test::faults_test {
namespace {

using program::BufferId;
using program::Program;

constexpr int kPlansPerModel = 10, kFaultsPerPlan = 12, kFaultSteps = 2;
#if defined(__SANITIZE_THREAD__)
constexpr int kRunPerPlan = 0;  // because the sanitizer would report the races that the faults make
#else
constexpr int kRunPerPlan = 3;
#endif
constexpr int kMostDraws = 1000;

// A function that puts one fault into a copy of a correct Program. It returns an empty optional if it found no place
// for the fault.
using Fault = std::function<std::optional<Program>(const Program &, const std::vector<Life> &, Draw &)>;

std::optional<Program> remove_wait(const Program &sound, const std::vector<Life> &, Draw &draw) {
  const auto i = static_cast<std::size_t>(draw.below(static_cast<int>(sound.instructions.size())));
  if (sound.instructions[i].waits.empty()) return std::nullopt;
  Program program = sound;
  std::vector<std::size_t> &waits = program.instructions[i].waits;
  const auto at = waits.begin() + draw.below(static_cast<int>(waits.size()));
  const std::size_t earlier = *at;
  waits.erase(at);
  EXPECT_FALSE(implied(program, earlier, i)) << "instruction " << i << " need not wait for " << earlier;
  return program;
}

std::optional<Program> release_early(const Program &sound, const std::vector<Life> &lives, Draw &draw) {
  const auto last = static_cast<std::size_t>(draw.below(static_cast<int>(sound.instructions.size())));
  const std::vector<BufferId> &releases = sound.instructions[last].releases;
  if (releases.empty()) return std::nullopt;
  const BufferId id = releases[static_cast<std::size_t>(draw.below(static_cast<int>(releases.size())))];
  const Life &life = lives[index(id)];
  if (life.last_read == kNever || life.last_read <= life.first) return std::nullopt;
  Program program = sound;
  std::erase(program.instructions[last].releases, id);
  const std::size_t early =
      life.first + static_cast<std::size_t>(draw.below(static_cast<int>(life.last_read - life.first)));
  program.instructions[early].releases.push_back(id);
  return program;
}

std::optional<Program> move_onto_another(const Program &sound, const std::vector<Life> &lives, Draw &draw) {
  const auto any = [&] { return static_cast<std::size_t>(draw.below(static_cast<int>(sound.buffers.size()))); };
  const std::size_t a = any(), b = any();
  const program::Buffer &moved = sound.buffers[a], &other = sound.buffers[b];
  const bool usable = a != b && !moved.persistent && !other.persistent && moved.tier == other.tier &&
                      lives[a].first != kNever && lives[b].first != kNever && lives[a].meets(lives[b]);
  if (!usable) return std::nullopt;
  const Tier tier = moved.tier;
  const std::uint64_t below = other.offset < moved.bytes ? 0 : other.offset - moved.bytes + 1;
  const std::uint64_t low = round_up(std::max(below, sound.state_bytes[tier]), moved.alignment) / moved.alignment;
  const std::uint64_t high =
      std::min(sound.arena_bytes[tier] - moved.bytes, other.offset + other.bytes - 1) / moved.alignment;
  if (low > high) return std::nullopt;
  Program program = sound;
  program.buffers[a].offset =
      (low + static_cast<std::uint64_t>(draw.below(static_cast<int>(high - low + 1)))) * moved.alignment;
  return program;
}

bool proof_fails(const Program &program) {
  try {
    program::verify(program);
  } catch (const Error &error) {
    return error.code == Code::internal;
  }
  return false;
}

// Runs the Program. Returns true if it gives other bits than `expected`, numbers that are not finite, or an error.
bool run_differs(Bench &bench, const Program &program, const Trace &expected) {
  bench.load(program, true, {.delays = true, .poison = true});
  try {
    return !(bench.train(kFaultSteps) == expected);
  } catch (const Error &) {
    return true;
  }
}

struct Figures {
  int seeded = 0, proven = 0, run = 0, seen = 0;
};

std::vector<Program> seed(const Fault &fault, const Program &sound, Draw &draw) {
  std::vector<Program> faulty;
  const std::vector<Life> lives = lives_of(sound);
  for (int i = 0; i < kMostDraws && faulty.size() < kFaultsPerPlan; ++i)
    if (std::optional<Program> program = fault(sound, lives, draw)) faulty.push_back(std::move(*program));
  return faulty;
}

Figures figures(const Fault &fault, const std::string &model, std::uint32_t number) {
  Figures sum;
  const graph::Graph graph = training_graph(model);
  const Trace expected = unlimited(model, kFaultSteps);
  Draw draw(number);
  for (int plans = 0; plans < kPlansPerModel;) {
    const Scratch scratch;
    Bench bench(model, following(draw.plan(graph), scratch), std::make_unique<ShelteredDevice>());
    const std::vector<Program> faulty = seed(fault, bench.program(), draw);
    if (faulty.size() < kFaultsPerPlan) continue;  // the plan has too few places for the fault
    ++plans;
    EXPECT_FALSE(run_differs(bench, bench.program(), expected)) << "without a fault";
    for (std::size_t i = 0; i < faulty.size(); ++i) {
      ++sum.seeded;
      sum.proven += proof_fails(faulty[i]);
      if (i >= kRunPerPlan) continue;
      ++sum.run;
      sum.seen += run_differs(bench, faulty[i], expected);
    }
  }
  return sum;
}

void expect_found(const char *what, const Fault &fault) {
  Figures sum;
  std::uint32_t number = 1;
  for (const char *model : {"gpt2-dynamic-opset18", "llama-dynamic-opset23"}) {
    const Figures one = figures(fault, model, number++);
    sum = {sum.seeded + one.seeded, sum.proven + one.proven, sum.run + one.run, sum.seen + one.seen};
  }
  std::printf("[ figures  ] %s: verify %d of %d, bits %d of %d\n", what, sum.proven, sum.seeded, sum.seen, sum.run);
  EXPECT_GE(sum.seeded, 200);
  EXPECT_EQ(sum.proven, sum.seeded);
  if (sum.run > 0) {
    EXPECT_GT(sum.seen, 0);
  }
}

TEST(SeededFaults, AWaitThatIsMissingIsFoundByTheProof) { expect_found("removed waits", remove_wait); }

TEST(SeededFaults, AReleaseBeforeTheLastReaderIsFoundByTheProof) { expect_found("early releases", release_early); }

TEST(SeededFaults, TwoLiveBuffersOnTheSameBytesAreFoundByTheProof) { expect_found("moved buffers", move_onto_another); }

}  // namespace
}  // namespace protrain::test::faults_test
