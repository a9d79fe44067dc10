// Memory accounting. The planned peak must be the highest byte that a step writes, and at each instruction the
// simulated use must be the use that is found in memory.
#include <gtest/gtest.h>

#include "asked.h"
#include "bench.h"
#include "devices.h"
#include "ledger.h"
#include "program/simulate.h"

namespace protrain::test::books_test {
namespace {

using program::Buffer;
using program::Program;

constexpr int kAuditedPlans = 2;
// Before a step, memory is filled with one of these patterns. A byte that differs from the pattern after the step was
// written by the step. Each test runs with both patterns, because a byte that the step writes may happen to equal one
// of them.
constexpr int kPatterns[] = {0xA5, 0x5A};

class Books : public testing::TestWithParam<std::string> {
 protected:
  const graph::Graph graph_ = training_graph(GetParam());
  Draw draw_{static_cast<std::uint32_t>(std::hash<std::string>{}(GetParam()) & 0xFFFF)};
};

std::span<std::byte> transient_bytes(Bench &bench, Tier t) {
  const std::uint64_t begin = bench.program().state_bytes[t], end = bench.draft().programs.bytes[t];
  return {bench.store().at(t, begin), end - begin};
}

// One more than the offset of the highest byte that a step changes, on the device and on the host.
PerTier<std::uint64_t> highest_touched(Bench &bench, bool workers) {
  PerTier<std::uint64_t> highest{};
  for (const int pattern : kPatterns) {
    bench.load(bench.program(), workers);
    bench.feed();
    for (const Tier t : {Tier::device, Tier::host})
      std::ranges::fill(transient_bytes(bench, t), static_cast<std::byte>(pattern));
    bench.step();
    for (const Tier t : {Tier::device, Tier::host}) {
      const auto bytes = transient_bytes(bench, t);
      std::uint64_t i = bytes.size();
      while (i > 0 && bytes[i - 1] == static_cast<std::byte>(pattern)) --i;
      highest[t] = std::max(highest[t], bench.program().state_bytes[t] + i);
    }
  }
  return highest;
}

// Compares the highest byte that a step has written with the planned peak. They must be equal if a value ends at the
// peak. If only the scratch of a kernel ends at the peak, the kernel need not write its scratch to the end. In this
// case the step must have written some of the scratch, and the last byte of every value.
void expect_peak(const Program &program, Tier t, std::uint64_t highest) {
  const std::vector<Life> lives = lives_of(program);
  std::uint64_t values_end = program.state_bytes[t], scratch_begin = program.arena_bytes[t];
  for (std::size_t b = 0; b < lives.size(); ++b) {
    const Buffer &buffer = program.buffers[b];
    if (buffer.persistent || buffer.tier != t || lives[b].first == kNever) continue;
    const std::uint64_t end = buffer.offset + buffer.bytes;
    if (!lives[b].scratch) values_end = std::max(values_end, end);
    if (lives[b].scratch && end == program.arena_bytes[t]) scratch_begin = std::min(scratch_begin, buffer.offset);
  }
  EXPECT_LE(highest, program.arena_bytes[t]);
  if (values_end == program.arena_bytes[t]) {
    EXPECT_EQ(highest, program.arena_bytes[t]);
  } else {
    EXPECT_GT(highest, std::max(scratch_begin, values_end - 1));
  }
}

TEST_P(Books, ThePlannedPeakIsTheHighestByteThatAStepTouchesUnderRandomPlans) {
  for (std::uint64_t i = 0; i < asked_plans(); ++i) {
    const Scratch scratch;
    const plan::Plan plan = draw_.plan(graph_);
    SCOPED_TRACE(plan::to_json(plan));
    Bench bench(GetParam(), following(plan, scratch));
    const auto highest = highest_touched(bench, draw_.chance(0.5));
    for (const Tier t : {Tier::device, Tier::host}) expect_peak(bench.program(), t, highest[t]);
  }
}

// True if the Program uses the disk, whose bytes the test cannot watch.
bool uses_disk(const Program &program) {
  return std::ranges::any_of(program.instructions, [](const auto &i) { return is_of_disk(i.queue); });
}

// The simulator's result: for each instruction, the bytes in use when the instruction ends. The bytes of the state are
// not counted.
std::vector<Ledger::UsedBytes> simulated(const Program &program) {
  const std::vector<std::int64_t> ns(program.instructions.size(), 1);
  std::vector<Ledger::UsedBytes> held;
  for (const program::Entry &entry : simulate(program, ns, {}).entries) {
    held.push_back(entry.live_bytes);
    for (const Tier t : kTiers) held.back()[t] -= program.state_bytes[t];
  }
  return held;
}

// Runs one step under a plan, with a Ledger that looks at memory after each instruction.
class Audit {
 public:
  explicit Audit(const std::string &model, const Pairs &plan)
      : bench_(model, plan, std::make_unique<WatchedDevice>([this] { ledger_->instruction_is_over(); })) {}

  const Program &program() const { return bench_.program(); }
  Trace run(int pattern) {
    bench_.load(bench_.program(), false);
    bench_.feed();
    ledger_.emplace(bench_.program(), bench_.store(), pattern);
    bench_.step();
    Trace trace;
    bench_.note_step(trace);
    bench_.note_weights(trace);
    return trace;
  }
  const Ledger &ledger() const { return *ledger_; }

 private:
  std::optional<Ledger> ledger_;
  Bench bench_;
};

// Counts the bytes of values that neither of two runs has written. Before each run, memory was filled with a different
// pattern. `a` is the ledger of one run, and `b` marks the bytes that the other run has written.
std::uint64_t unwritten_bytes(const Program &program, const Ledger &a, const std::vector<std::vector<bool>> &b) {
  std::uint64_t count = 0;
  for (std::size_t buffer = 0; buffer < program.buffers.size(); ++buffer)
    for (std::size_t i = 0; i < b[buffer].size() && !a.lives()[buffer].scratch; ++i)
      count += !a.written()[buffer][i] && !b[buffer][i];
  return count;
}

// A ledger fills memory with a pattern before a step, and looks at memory after each instruction:
//   - bytes that no buffer holds must still have the pattern; if they do not, they are counted as strays;
//   - every byte of a buffer except scratch must be written, so it differs from the pattern in one or both of two runs;
//   - the number of bytes that buffers hold must be the one that the simulator gives.
// After the last use of a buffer, the ledger overwrites the buffer's memory with the pattern. So if the results have
// the right bits, no instruction reads a buffer after its last use.
TEST_P(Books, SimulatedMemoryIsExecutedMemoryInstructionByInstruction) {
  const Trace expected = unlimited(GetParam(), 1);
  for (int audited = 0; audited < kAuditedPlans;) {
    const Scratch scratch;
    const plan::Plan plan = draw_.plan(graph_);
    Audit audit(GetParam(), following(plan, scratch));
    if (uses_disk(audit.program())) continue;
    ++audited;
    SCOPED_TRACE(plan::to_json(plan));
    EXPECT_TRUE(audit.run(kPatterns[0]) == expected);
    EXPECT_EQ(audit.ledger().strays(), 0u);
    const std::vector<std::vector<bool>> written = audit.ledger().written();
    EXPECT_TRUE(audit.run(kPatterns[1]) == expected);
    EXPECT_EQ(audit.ledger().strays(), 0u);
    EXPECT_EQ(unwritten_bytes(audit.program(), audit.ledger(), written), 0u);
    EXPECT_EQ(audit.ledger().history(), simulated(audit.program()));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Books, testing::ValuesIn(kModels), model_name);

}  // namespace
}  // namespace protrain::test::books_test
