// The JSON object that protrain_session_report returns.
#include "session/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "draft/estimate.h"
#include "fixtures.h"
#include "random_plans/bench.h"

namespace protrain::session::report_test {
namespace {

using test::Bench;
using test::following;
using test::Scratch;
using Json = nlohmann::ordered_json;

constexpr const char *kModel = "gpt2-dynamic-opset18";

// Runs a step that has every kind of instruction, with workers or without, and returns the report on it.
class ReportedStep {
 public:
  explicit ReportedStep(bool workers)
      : plan_(plan::expand(
            test::training_graph(kModel),
            {.n_persist = 2, .n_buffer = 1, .n_swap = 1, .n_checkpoint = 1, .n_host = 2, .chunk_bytes = 16 << 10})),
        bench(kModel, following(plan_, scratch_)) {
    bench.load(bench.program(), workers);
    bench.feed();
    bench.step();
  }

  const run::Report &report() const { return bench.report(); }
  const program::Program &program() { return bench.program(); }
  Json json(const program::Simulation *prediction = nullptr, bool traces = false) {
    const graph::Graph &graph = bench.draft().first().training.graph;
    return Json::parse(report_json(report(), {report().seconds, 0, {}, {}, {}, traces}, program(), graph, prediction));
  }

 private:
  const Scratch scratch_;
  const plan::Plan plan_;

 public:
  Bench bench;
};

double stalls(const Json &costs) {
  double seconds = 0;
  for (const auto &[cause, value] : costs["stall_seconds"].items()) seconds += value.get<double>();
  return seconds;
}

TEST(Report, HasSpansInsideTheStepThatKeepEachQueuesOrderAndEveryWait) {
  for (const bool workers : {false, true}) {
    ReportedStep reported(workers);
    const std::vector<program::Span> &spans = reported.report().timed.spans;
    const auto &instructions = reported.program().instructions;
    ASSERT_EQ(spans.size(), instructions.size());
    PerQueue<std::int64_t> end{};
    for (std::size_t i = 0; i < spans.size(); ++i) {
      std::int64_t &before = end[instructions[i].queue];
      EXPECT_GE(spans[i].start_ns, before) << i;
      EXPECT_LE(spans[i].start_ns, spans[i].end_ns) << i;
      EXPECT_LE(static_cast<double>(spans[i].end_ns), reported.report().seconds * 1e9 + 1) << i;
      for (std::size_t wait : instructions[i].waits) EXPECT_GE(spans[i].start_ns, spans[wait].end_ns) << i;
      before = spans[i].end_ns;
    }
  }
}

TEST(Report, SaysWhichQueuesHadAWorker) {
  EXPECT_EQ(ReportedStep(false).report().beside, program::Beside{});
  ReportedStep reported(true);
  for (const program::Instruction &instruction : reported.program().instructions)
    EXPECT_EQ(reported.report().beside[instruction.queue], instruction.queue != Queue::compute);
}

TEST(Report, AccountsForEverySecondOfTheStep) {
  for (const bool workers : {false, true}) {
    const Json measured = ReportedStep(workers).json()["measured"];
    EXPECT_NEAR(measured["busy_seconds"]["compute"].get<double>() + stalls(measured), measured["seconds"].get<double>(),
                1e-8);
    EXPECT_EQ(measured["stall_seconds"]["inline"].get<double>() > 0, !workers);
  }
}

TEST(Report, HasThePlannedPeaksAndNoPredictionWhereThereIsNone) {
  ReportedStep reported(false);
  const Json json = reported.json();
  EXPECT_FALSE(json.contains("predicted"));
  for (const auto &[key, tier] :
       {std::pair{"device_peak_bytes", Tier::device}, {"host_peak_bytes", Tier::host}, {"disk_bytes", Tier::disk}}) {
    EXPECT_EQ(json[key], reported.program().arena_bytes[tier]) << key;
    EXPECT_EQ(json["measured"][key], json[key]) << key;
    EXPECT_GT(json[key].get<std::uint64_t>(), 0u) << key;
  }
}

TEST(Report, PutsAPredictionBesideWhatWasMeasuredKeyForKey) {
  ReportedStep reported(true);
  const std::vector<std::int64_t> ns(reported.program().instructions.size(), 1000);
  const program::Simulation simulation = simulate(reported.program(), ns, reported.report().beside);
  const Json json = reported.json(&simulation);
  const Json &predicted = json["predicted"], &measured = json["measured"];
  EXPECT_DOUBLE_EQ(predicted["seconds"].get<double>(), static_cast<double>(simulation.step_ns) * 1e-9);
  for (const char *key : {"device_peak_bytes", "host_peak_bytes", "disk_bytes"})
    EXPECT_EQ(predicted[key], measured[key]) << key;
  const auto keys = [](const Json &object) {
    std::vector<std::string> names;
    for (const auto &[key, value] : object.items()) names.push_back(key);
    return names;
  };
  EXPECT_EQ(keys(predicted), keys(measured));
  for (const char *group : {"busy_seconds", "stall_seconds"})
    EXPECT_EQ(keys(predicted[group]), keys(measured[group])) << group;
}

TEST(Report, DrawsMemoryOfEveryTierAndTheWorkOfEveryQueue) {
  ReportedStep reported(true);
  const Json json = reported.json();
  const double seconds = json["measured"]["seconds"];
  for (const char *tier : kTierNames) {
    const Json &rows = json["timeline"][tier];
    ASSERT_FALSE(rows.empty()) << tier;
    EXPECT_LE(rows.size(), 400u);
    for (const Json &row : rows) EXPECT_EQ(row.size(), 1 + json["timeline"]["owners"].size());
    EXPECT_LE(rows.back()[0].get<double>(), seconds);
  }
  for (const program::Instruction &instruction : reported.program().instructions)
    EXPECT_FALSE(json["queues"][kQueueNames[instruction.queue]].empty());
  EXPECT_TRUE(json["queues"]["comm"].empty());
}

TEST(Report, IsATraceOfTheStepWhereThatIsWanted) {
  ReportedStep reported(true);
  EXPECT_FALSE(reported.json().contains("traceEvents"));
  const Json events = reported.json(nullptr, true)["traceEvents"];
  std::map<std::string, std::vector<Json>> of_phase;
  for (const Json &event : events) of_phase[event["ph"]].push_back(event);
  EXPECT_EQ(of_phase["M"].size(), kQueues.size()) << "a name for each track";
  const std::vector<program::Span> &spans = reported.report().timed.spans;
  ASSERT_EQ(of_phase["X"].size(), spans.size());
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Json &event = of_phase["X"][i];
    EXPECT_EQ(event["tid"], static_cast<int>(reported.program().instructions[i].queue));
    EXPECT_DOUBLE_EQ(event["ts"].get<double>(), static_cast<double>(spans[i].start_ns) * 1e-3);
    EXPECT_DOUBLE_EQ(event["dur"].get<double>(), static_cast<double>(spans[i].end_ns - spans[i].start_ns) * 1e-3);
    EXPECT_FALSE(event["args"]["instruction"].get<std::string>().empty());
  }
  std::size_t points = 0;
  for (const char *tier : kTierNames) points += reported.json()["timeline"][tier].size();
  EXPECT_EQ(of_phase["C"].size(), points) << "a counter of each tier's memory";
}

// Returns a draft for a machine that is only described, so that no other process has disturbed its measurements.
draft::Draft undisturbed() {
  test::Pairs pairs = test::base_options(kModel);
  pairs.emplace_back("hardware", "rtx3090");
  draft::PaperMachine machine(draft::described_machine("rtx3090"));
  return draft::estimate(draft::settings_of(test::options_with(pairs)), test::fixture(std::string(kModel) + ".onnx"),
                         machine);
}

// The warning must be one sentence that says what was refused, what that costs, and what to do.
TEST(Created, WarnsOfMemoryThatCouldNotBePinned) {
  const draft::Draft draft = undisturbed();
  const backend::DeviceInfo device = {.name = "cuda:0"};
  EXPECT_EQ(Json::parse(created_json(device, draft, {}, ""))["warnings"], Json::array());
  const Json warnings = Json::parse(created_json(device, draft, {.unpinned = 3 << 20}, ""))["warnings"];
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0],
            "the system refused to pin 3.00 MiB of host memory: copies between it and cuda:0 are several times slower "
            "and stop what runs beside them; raise the limit on locked memory (ulimit -l) to 3145728 bytes at least");
}

TEST(Created, WarnsOfGpusWithoutNccl) {
  const Json warnings =
      Json::parse(created_json({.name = "cuda:0"}, undisturbed(), {}, "rank 1 cannot use NCCL: no plugin"))["warnings"];
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0],
            "the ranks' GPUs exchange through the hosts' memory, because NCCL cannot be used: rank 1 cannot use NCCL: "
            "no plugin");
}

TEST(Created, WarnsOfMeasurementsThatOtherProcessesDisturbed) {
  draft::Draft draft = undisturbed();
  const auto warnings = [&] { return Json::parse(created_json({.name = "cpu"}, draft, {}, ""))["warnings"]; };
  draft.profile.waited = 0.2;
  EXPECT_EQ(warnings(), Json::array());
  draft.profile.waited = 0.37;
  ASSERT_EQ(warnings().size(), 1u);
  EXPECT_EQ(warnings()[0],
            "other processes used the cores while the parts of a step were measured, and threads waited for 37 % of "
            "that time: the plan may be slower than it needs to be; to measure again, run protrain profile, or start a "
            "session later while the cores are idle");
}

TEST(Report, BeforeTheFirstStepHasNoTimesButThePeaks) {
  const auto session = Session::create(test::options_with(test::base_options(kModel)),
                                       test::fixture(std::string(kModel) + ".onnx"), nullptr);
  const Json json = Json::parse(session->report_json());
  EXPECT_EQ(json["seconds"], 0);
  EXPECT_EQ(json["measured"]["seconds"], 0);
  EXPECT_GT(json["measured"]["device_peak_bytes"].get<std::uint64_t>(), 0u);
}

}  // namespace
}  // namespace protrain::session::report_test
