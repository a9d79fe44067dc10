// The answers of `protrain plan` and `protrain profile`.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "draft/explain.h"
#include "draft/plan_model.h"
#include "errors.h"
#include "random_plans/random_plan.h"
#include "session/session.h"

namespace protrain::draft::plan_model_test {
namespace {

using test::Pairs;
using test::Scratch;
using Json = nlohmann::json;

const std::string kModel = "gpt2-dynamic-opset18";

Json planned(const Pairs &more, const std::string &model = kModel, const Log &log = nullptr) {
  Pairs pairs = test::base_options(model);
  pairs.insert(pairs.end(), more.begin(), more.end());
  return Json::parse(plan_model(test::options_with(pairs), test::fixture(model + ".onnx"), log));
}

std::string profiled(const Pairs &more, const Log &log = nullptr) {
  Pairs pairs = test::base_options(kModel);
  pairs.insert(pairs.end(), more.begin(), more.end());
  return profile_model(test::options_with(pairs), test::fixture(kModel + ".onnx"), log);
}

// Adds a budget half way between the memory of the smallest plan and that of the resident plan, so that the search has
// a choice.
Pairs tightened(Pairs options, const char *key) {
  const auto most = planned(options)["resident"]["device_peak_bytes"].get<std::uint64_t>();
  options.emplace_back(key, "4096");
  const auto least = planned(options)["device_peak_bytes"].get<std::uint64_t>();
  options.back().second = std::to_string((least + most) / 2);
  return options;
}

void expect_documented(const Json &plan) {
  for (const char *key :
       {"n_chunk", "n_persist", "n_buffer", "n_host", "n_block", "n_swap", "n_checkpoint", "n_selective", "chunk_bytes",
        "step_seconds", "samples_per_second", "tokens_per_second", "device_peak_bytes", "host_peak_bytes", "disk_bytes",
        "search_seconds", "points_ranked", "points_laid_out"})
    EXPECT_TRUE(plan.at(key).is_number()) << key << ' ' << plan.at(key);
  for (const char *key : {"predicted", "budget", "timeline", "queues", "plan", "resident"})
    EXPECT_TRUE(plan.at(key).is_object()) << key;
  for (const char *key : {"would_fit", "explanation"}) EXPECT_TRUE(plan.at(key).is_array()) << key;
  for (const char *key : {"optimizer_order"}) EXPECT_TRUE(plan.at(key).is_string()) << key;
  for (const char *key : {"overlap", "busy_seconds", "stall_seconds"})
    EXPECT_TRUE(plan["predicted"].contains(key)) << key;
  for (const char *key :
       {"n_persist", "n_buffer", "n_swap", "n_checkpoint", "n_selective", "step_seconds", "device_peak_bytes"})
    EXPECT_TRUE(plan["resident"].at(key).is_number()) << key;
  EXPECT_GT(plan["step_seconds"], 0);
  EXPECT_NEAR(plan["tokens_per_second"].get<double>() * plan["step_seconds"].get<double>(), 64, 1e-6);
  EXPECT_NEAR(plan["samples_per_second"].get<double>() * plan["step_seconds"].get<double>(), 2, 1e-6);
  EXPECT_EQ(plan["predicted"]["device_peak_bytes"], plan["device_peak_bytes"]);
  EXPECT_FALSE(plan["explanation"].empty());
}

TEST(PlanModel, HasEveryKeyThatIsDocumentedOnThisMachine) {
  const Json plan = planned({});
  expect_documented(plan);
  EXPECT_TRUE(plan["feasible"].get<bool>());
  EXPECT_TRUE(plan["would_fit"].empty());
  EXPECT_EQ(plan["n_chunk"], plan["n_persist"]);
}

TEST(PlanModel, IsATraceOfTheStepWhereThatIsWanted) {
  EXPECT_FALSE(planned({}).contains("traceEvents"));
  const Json plan = planned({{"hardware", "rtx3090"}, {"trace", "step"}});
  double end = 0;
  for (const Json &event : plan["traceEvents"])
    if (event["ph"] == "X") end = std::max(end, event["ts"].get<double>() + event["dur"].get<double>());
  EXPECT_NEAR(end * 1e-6, plan["predicted"]["seconds"].get<double>(), 0.05 * end * 1e-6);
}

TEST(PlanModel, HasEveryKeyThatIsDocumentedOnPaperInBfloat16) {
  const Pairs options = tightened({{"hardware", "rtx3090"}, {"precision", "bf16"}}, "device_memory");
  const Json plan = planned(options);
  expect_documented(plan);
  EXPECT_TRUE(plan["feasible"].get<bool>());
  EXPECT_EQ(plan["hardware"], "rtx3090");
  EXPECT_EQ(plan["precision"], "bf16");
  EXPECT_TRUE(plan["next"].is_object());
  EXPECT_GE(plan["next"]["step_seconds"], plan["step_seconds"]);
  EXPECT_LE(plan["device_peak_bytes"], plan["budget"]["device_memory"]);
}

TEST(PlanModel, HasEveryKeyThatIsDocumentedOnThisMachineInBfloat16) {
  const Scratch scratch;  // a directory without earlier measurements
  const Json plan = planned({{"precision", "bf16"}, {"profile_dir", scratch.path()}});
  expect_documented(plan);
  EXPECT_TRUE(std::isfinite(plan["step_seconds"].get<double>()));
}

TEST(PlanModel, SaysOfThisMachineTheBytesThatASessionTakesInEveryPrecision) {
  const Scratch scratch;  // a directory without earlier measurements
  for (const char *precision : {"fp32", "bf16", "fp16"}) {
    const Pairs options = {{"precision", precision}, {"profile_dir", scratch.path()}};
    const Json plan = planned(options);
    Pairs all = test::base_options(kModel);
    all.insert(all.end(), options.begin(), options.end());
    const auto session = session::Session::create(test::options_with(all), test::fixture(kModel + ".onnx"), nullptr);
    const Json report = Json::parse(session->report_json());
    EXPECT_EQ(plan["device_peak_bytes"], report["device_peak_bytes"]) << precision;
  }
}

TEST(PlanModel, GivesAPlanThatTheOptionPlanTakes) {
  const Scratch scratch;
  const Pairs options = tightened({{"hardware", "rtx3090"}}, "device_memory");
  const Json plan = planned(options);
  Pairs followed = options;
  followed.emplace_back("plan", scratch.file("plan.json", plan["plan"].dump()));
  const Json again = planned(followed);
  EXPECT_EQ(again["plan"], plan["plan"]);
  EXPECT_EQ(again["step_seconds"], plan["step_seconds"]);
  EXPECT_EQ(again["device_peak_bytes"], plan["device_peak_bytes"]);
}

TEST(PlanModel, SaysWhatWouldFitWhereNothingDoes) {
  const Json plan = planned({{"hardware", "rtx3090"}, {"device_memory", "1MiB"}});
  EXPECT_FALSE(plan["feasible"].get<bool>());
  EXPECT_GT(plan["device_peak_bytes"], plan["budget"]["device_memory"]) << "of the smallest plan";
  ASSERT_FALSE(plan["would_fit"].empty());
  for (const Json &change : plan["would_fit"]) {
    EXPECT_FALSE(change.at("options").empty());
    EXPECT_FALSE(change.at("text").get<std::string>().empty());
  }
}

TEST(PlanModel, SaysThatAPlanOfAFileDoesNotFitAndWhatItNeeds) {
  const Scratch scratch;
  const std::string file = scratch.file("plan.json", R"({"n_persist": 999})");
  const Json plan = planned({{"hardware", "rtx3090"}, {"device_memory", "1MiB"}, {"plan", file}});
  EXPECT_FALSE(plan["feasible"].get<bool>());
  ASSERT_EQ(plan["would_fit"].size(), 1U);
  const Json &more = plan["would_fit"][0]["options"];
  ASSERT_EQ(more.size(), 1U);
  EXPECT_EQ(more["device_memory"], plan["device_peak_bytes"].dump());
  EXPECT_TRUE(planned({{"hardware", "rtx3090"}, {"device_memory", more["device_memory"]}, {"plan", file}})["feasible"]
                  .get<bool>());
}

bool mentions(const Json &plan, const std::string &words) {
  for (const Json &sentence : plan["explanation"])
    if (sentence.get<std::string>().find(words) != std::string::npos) return true;
  return false;
}

TEST(Explanation, MentionsWhatBinds) {
  EXPECT_TRUE(mentions(planned({{"hardware", "rtx3090"}}), "busiest part: compute"));
  // Each of these machines has one slow rate, so one part of the step is the busiest. The text must name this part.
  const Scratch scratch;
  Json machine = Json::parse(profile::to_json(profile::known_machine("rtx3090")));
  for (const auto &[rate, words] :
       std::vector<std::pair<const char *, const char *>>{{"download", "copies to the host"},
                                                          {"upload", "copies to the device"},
                                                          {"host_optimizer", "the host's optimizer"}}) {
    Json slow = machine;
    slow[rate] = 1e6;
    const std::string file = scratch.file(rate, slow.dump());
    const Pairs options = {{"hardware", file},
                           {"plan", scratch.file("plan.json", R"({"n_persist": 0, "n_buffer": 2})")}};
    const Json plan = planned(options);
    EXPECT_TRUE(mentions(plan, std::string("busiest part: ") + words)) << plan["explanation"].dump(1);
  }
  Json slow = machine;
  slow["disk_memory"] = "1TB", slow["disk_read"] = slow["disk_write"] = 1e6;
  const Json plan = planned({{"hardware", scratch.file("disk", slow.dump())},
                             {"plan", scratch.file("disk.json", R"({"n_persist": 0, "n_host": 0, "n_buffer": 2})")}});
  EXPECT_TRUE(mentions(plan, "busiest part: the disk")) << plan["explanation"].dump(1);
}

// The text must not say "-0 %" or "0.0 % longer".
TEST(Explanation, SaysInWordsThatNothingChanges) {
  const Scratch scratch;
  Json machine = Json::parse(profile::to_json(profile::known_machine("rtx3090")));
  machine["upload"] = machine["download"] = 1e15;
  machine["host_optimizer"] = 1e6;  // slow, so that updates run on the device, as in a resident plan
  const Json plan = planned(tightened({{"hardware", scratch.file("swift.json", machine.dump())}}, "device_memory"));
  EXPECT_TRUE(mentions(plan, "takes as long as this one.")) << plan["explanation"].dump(1);
  EXPECT_TRUE(mentions(plan, "a step (as now).")) << plan["explanation"].dump(1);
  EXPECT_TRUE(mentions(planned({{"hardware", "rtx3090"}}), "a token would take as long as now."));
}

TEST(Explanation, SaysWhereEverythingIsAndWhatElseThereWould) {
  const Json all = planned({{"hardware", "rtx3090"}});
  EXPECT_TRUE(mentions(all, "stay in memory"));
  EXPECT_TRUE(mentions(all, "never idles") || mentions(all, "idles for"));
  const Json tight = planned(tightened({{"hardware", "rtx3090"}}, "device_memory"));
  for (const char *words : {"the next best (n_", " instead of ", "nothing would move", "With device_memory="})
    EXPECT_TRUE(mentions(tight, words)) << words << tight["explanation"].dump(1);
}

TEST(Explanation, OfAnEvaluationMentionsNeitherBackwardNorOptimizer) {
  const test::Scratch scratch;
  const Json plan = planned(tightened({{"mode", "eval"}, {"offload_dir", scratch.path()}}, "memory"));
  EXPECT_GT(plan["disk_bytes"], 0);
  for (const char *words : {"Weights are cut into", "An evaluation is expected to take", "nothing would move: "})
    EXPECT_TRUE(mentions(plan, words)) << words << plan["explanation"].dump(1);
  for (const char *words : {"optimizer", "backward", "a step", "activations", "n_checkpoint", "n_swap"})
    EXPECT_FALSE(mentions(plan, words)) << words << plan["explanation"].dump(1);
}

TEST(Explanation, SaysWhatKeepingAllWouldTakeWhereNextToNoTimeSparesMemory) {
  const Scratch scratch;
  Json machine = Json::parse(profile::to_json(profile::known_machine("rtx3090")));
  machine["device_bandwidth"] = 1e15;  // so that only products take time
  machine["launch_seconds"] = 0;
  const Json plan = planned({{"hardware", scratch.file("swift.json", machine.dump())}});
  EXPECT_EQ(plan["n_selective"], plan["n_block"]);
  EXPECT_TRUE(mentions(plan, "stay, but for what little work computes again")) << plan["explanation"].dump(1);
  EXPECT_TRUE(mentions(plan, "Keeping all")) << plan["explanation"].dump(1);
  EXPECT_FALSE(mentions(plan, "x 1.5")) << "more memory changes nothing";
}

TEST(Explanation, OffersNoMoreMemoryThanTheMachineHas) {
  const Scratch scratch;
  const Pairs tight = tightened({{"hardware", "rtx3090"}}, "device_memory");
  EXPECT_TRUE(mentions(planned(tight), "x 1.5"));
  Json machine = Json::parse(profile::to_json(profile::known_machine("rtx3090")));
  machine["device_reserve"] = 0;
  machine["device_memory"] = std::stoull(tight.back().second);
  const Json plan = planned({{"hardware", scratch.file("small.json", machine.dump())}});
  EXPECT_TRUE(mentions(plan, "x 0.75")) << plan["explanation"].dump(1);
  EXPECT_FALSE(mentions(plan, "x 1.5")) << plan["explanation"].dump(1);
}

TEST(PlanModel, KeepsToTheMachineWhereABudgetIsLarger) {
  const Scratch scratch;
  const Json all = planned({{"hardware", "rtx3090"}});
  Json machine = Json::parse(profile::to_json(profile::known_machine("rtx3090")));
  machine["device_reserve"] = 0;
  machine["device_memory"] = all["device_peak_bytes"].get<std::uint64_t>() - 1;
  const Json less = planned({{"hardware", scratch.file("less.json", machine.dump())}, {"device_memory", "1TiB"}});
  EXPECT_TRUE(less["feasible"]);
  EXPECT_LT(less["device_peak_bytes"], all["device_peak_bytes"]);
  machine["device_memory"] = 4096;
  const Json none = planned({{"hardware", scratch.file("none.json", machine.dump())}, {"device_memory", "1TiB"}});
  EXPECT_FALSE(none["feasible"]);
  for (const Json &change : none["would_fit"]) EXPECT_FALSE(change["options"].contains("device_memory")) << change;
}

TEST(PlanModel, TakesAMachineThatIsSlowBeyondMeasure) {
  const Scratch scratch;
  Json machine = Json::parse(profile::to_json(profile::known_machine("rtx3090")));
  for (const char *rate : {"upload", "download", "device_bandwidth", "fp32_flops", "host_optimizer"})
    machine[rate] = 1e-300;
  Json answer;
  const Error error = test::error_of([&] {
    answer = planned({{"hardware", scratch.file("slow.json", machine.dump())},
                      {"plan", scratch.file("plan.json", R"({"n_persist": 0})")}});
  });
  if (error.code != Code::ok) {
    EXPECT_EQ(error.code, Code::arg) << error.text;
    return;
  }
  EXPECT_GT(answer["step_seconds"], 0);
}

// Plans for machines with absurd rates must be explained too. fuzz/hardware.cpp does not test this, because it explains
// no plans.
TEST(PlanModel, TakesAMachineThatIsFastBeyondMeasure) {
  const Scratch scratch;
  Json at_once = {{"device_memory", "16GiB"}};
  for (const char *rate : {"fp32_flops", "device_bandwidth", "device_optimizer"}) at_once[rate] = 1e308;
  const Json plan = planned({{"hardware", scratch.file("fast.json", at_once.dump())}});
  EXPECT_GT(plan["step_seconds"], 0);
  EXPECT_TRUE(plan["tokens_per_second"].is_number());
  EXPECT_FALSE(plan["explanation"].empty());
  // The host's optimizer is so fast that it takes nearly all bandwidth of the host's memory. Copies that run in
  // parallel get the rest of the bandwidth.
  Json machine = Json::parse(profile::to_json(profile::known_machine("rtx3090")));
  machine["host_optimizer"] = 1e50;
  const Json beside = planned({{"hardware", scratch.file("beside.json", machine.dump())},
                               {"plan", scratch.file("plan.json", R"({"n_persist": 0, "chunk_bytes": 65536})")}});
  EXPECT_GT(beside["step_seconds"], 0);
  EXPECT_FALSE(beside["explanation"].empty());
}

TEST(PlanModel, TakesSoManyBatchesToAStepThatTheirTimesOverflow) {
  const Json plan = planned({{"hardware", "rtx3090"}, {"accumulation", "9223372036854775807"}});
  EXPECT_GT(plan["step_seconds"], 1e15);
  EXPECT_LT(plan["tokens_per_second"], 1e9);
}

TEST(PlanModel, TakesAccumulationClippingFrozenParametersAndSgd) {
  for (const Pairs &more : {Pairs{{"accumulation", "4"}, {"frozen", "*.h.*"}}, Pairs{{"clip_norm", "1"}},
                            Pairs{{"optimizer", "sgd"}, {"keep_gradients", "*"}, {"shapes", "batch=1,sequence=8"}}}) {
    SCOPED_TRACE(more[0].first);
    Pairs options = more;
    options.emplace_back("hardware", "rtx3090");
    const Json plan = planned(tightened(options, "device_memory"));
    EXPECT_TRUE(plan["feasible"].get<bool>());
    EXPECT_GT(plan["step_seconds"], 0);
    EXPECT_LE(plan["device_peak_bytes"], plan["budget"]["device_memory"]);
  }
}

TEST(ProfileModel, GivesAMachineThatHardwareTakesWithTheSamePlan) {
  const Scratch scratch;
  const Pairs kept = {{"profile_dir", scratch.file("kept")}};
  const std::string file = scratch.file("machine.json", profiled(kept));
  const Json here = planned(kept), there = planned({{"hardware", file}});
  EXPECT_EQ(there["plan"], here["plan"]);
  EXPECT_EQ(there["step_seconds"], here["step_seconds"]);
  EXPECT_EQ(there["hardware"], here["hardware"]);
  for (const char *key : {"device_peak_bytes", "host_peak_bytes", "resident"}) EXPECT_EQ(there[key], here[key]) << key;
}

TEST(ProfileModel, OfADirectoryHasItsFreeSpaceAsDisk) {
  const Scratch scratch;
  EXPECT_EQ(Json::parse(profiled({}))["disk_memory"], 0);
  const Pairs kept = {{"profile_dir", scratch.file("kept")}, {"offload_dir", scratch.path()}};
  EXPECT_GT(Json::parse(profiled(kept))["disk_memory"], 0);
  Pairs limited = kept;
  limited.emplace_back("disk_memory", "3MiB");
  EXPECT_EQ(Json::parse(profiled(limited))["disk_memory"], 3 << 20);
}

TEST(PlanModel, CountsNoTokensWhereSamplesHaveClasses) {
  const Options options = test::options_with({{"hardware", "h200"}, {"dim", "batch=4"}, {"loss", "cross_entropy"}});
  const Json plan = Json::parse(plan_model(options, test::fixture("objectives/embeddings.onnx"), nullptr));
  EXPECT_EQ(plan["tokens_per_second"], 0);
  EXPECT_NEAR(plan["samples_per_second"].get<double>() * plan["step_seconds"].get<double>(), 4, 1e-6);
  EXPECT_TRUE(mentions(plan, "a sample would")) << plan["explanation"].dump(1);
}

// For a model without tokens, the text compares times per sample.
TEST(PlanModel, OffersTwiceTheBatchWhateverItsInputsHold) {
  for (const auto &[model, unit] :
       {std::pair("root", "a sample would"), std::pair("gpt2-dynamic-opset18", "a token would")}) {
    Options options = test::options_with({{"hardware", "h200"}, {"dim", "batch=4"}});
    if (std::string(model) != "root") options.set("dim", "sequence=32");
    const Json plan = Json::parse(plan_model(options, test::fixture(std::string(model) + ".onnx"), nullptr));
    EXPECT_TRUE(mentions(plan, "batch=8 (instead of 4)")) << plan["explanation"].dump(1);
    EXPECT_TRUE(mentions(plan, unit)) << plan["explanation"].dump(1);
    EXPECT_FALSE(mentions(plan, "nan")) << plan["explanation"].dump(1);
  }
}

// The batch has 64 tokens. Twice the batch would have 128 tokens, which tokens_per_step forbids.
TEST(PlanModel, OffersNoBatchThatAnotherOptionForbids) {
  const Json plan = planned({{"hardware", "rtx3090"}, {"tokens_per_step", "64"}});
  EXPECT_TRUE(plan["feasible"].get<bool>());
  EXPECT_TRUE(mentions(plan, "x 0.75")) << plan["explanation"].dump(1);
  EXPECT_FALSE(mentions(plan, "batch=4")) << plan["explanation"].dump(1);
}

TEST(ProfileModel, SaysWhatScratchTheKernelsTake) {
  const Scratch scratch;
  Json machine = Json::parse(profiled({{"profile_dir", scratch.file("kept")}}));
  const auto bytes = machine["scratch"].get<std::map<std::string, std::uint64_t>>();
  EXPECT_TRUE(std::ranges::any_of(bytes, [](const auto &entry) { return entry.second > 0; }));
  const auto peak = [&] {
    const std::string file = scratch.file("machine.json", machine.dump());
    return planned({{"hardware", file}})["device_peak_bytes"].get<std::uint64_t>();
  };
  const std::uint64_t known = peak();
  machine.erase("scratch");
  EXPECT_GT(peak(), known) << "32 MiB for each product, assumed";
}

TEST(ProfileModel, TellsHowFarItIsAndMeasuresAnew) {
  const Scratch scratch;
  const Pairs kept = {{"profile_dir", scratch.path()}};
  std::vector<Json> events;
  const Log log = [&](const std::string &line) { events.push_back(Json::parse(line)); };
  for (int time = 0; time < 2; ++time) {
    events.clear();
    profiled(kept, log);
    ASSERT_FALSE(events.empty()) << time;
    for (std::size_t i = 0; i < events.size(); ++i)
      EXPECT_EQ(events[i], (Json{{"event", "profiling"}, {"done", i}, {"of", events.size()}}));
  }
  events.clear();
  planned(kept, kModel, log);
  EXPECT_TRUE(events.empty()) << "what is known is not measured again";
}

TEST(PlanModel, MeasuresOnlyTheDiskOrTheOptimizerWhereAnotherSessionHasMeasuredTheRest) {
  const Scratch scratch;
  Pairs options = {{"profile_dir", scratch.file("kept")}};
  std::size_t events = 0;
  const Log log = [&](const std::string &line) { events += Json::parse(line)["event"] == "profiling" ? 1 : 0; };
  planned(options, kModel, log);
  EXPECT_GT(events, 1u);
  for (const auto &[key, value] : Pairs{{"offload_dir", scratch.path()}, {"optimizer", "adamw8bit"}}) {
    options.emplace_back(key, value);
    for (const std::size_t expected : {1u, 0u}) {
      events = 0;
      planned(options, kModel, log);
      EXPECT_EQ(events, expected) << key;
    }
  }
}

TEST(ProfileModel, IsOfThisMachineAlone) {
  const Error error = test::error_of([] { profiled({{"hardware", "h200"}}); });
  EXPECT_EQ(error.code, Code::arg);
  EXPECT_EQ(error.subject, "hardware");
}

TEST(Hardware, TakesBudgetsOnlyOfWhatItsDescriptionHas) {
  const Scratch scratch;
  Json machine = {{"device_memory", "16GiB"}};
  for (const char *rate : {"fp32_flops", "device_bandwidth", "device_optimizer"}) machine[rate] = 1e12;
  const std::string alone = scratch.file("alone.json", machine.dump());
  for (const auto &[key, rate] : {std::pair("host_memory", "upload"), {"disk_memory", "disk_read"}}) {
    const Error error = test::error_of([&] { planned({{"hardware", alone}, {key, "1GiB"}}); });
    EXPECT_EQ(error.code, Code::arg) << key;
    EXPECT_EQ(error.subject, key);
    EXPECT_NE(error.text.find(rate), std::string::npos) << error.text;
  }
  machine["shares_memory"] = true;
  EXPECT_EQ(test::code_of([&] {
              planned({{"hardware", scratch.file("shared.json", machine.dump())}, {"host_memory", "1GiB"}});
            }),
            Code::ok);
}

TEST(Hardware, HasNoDirectoryOfThisMachine) {
  const Scratch scratch;
  const Error error = test::error_of([&] { planned({{"hardware", "rtx3090"}, {"offload_dir", scratch.path()}}); });
  EXPECT_EQ(error.code, Code::arg);
  EXPECT_EQ(error.subject, "offload_dir");
  EXPECT_NE(error.text.find("disk_memory"), std::string::npos) << error.text;
}

TEST(Hardware, IsAKnownNameOrAFileThatDescribesOne) {
  const Error unknown = test::error_of([] { planned({{"hardware", "rtx4090"}}); });
  EXPECT_EQ(unknown.code, Code::arg);
  EXPECT_NE(unknown.text.find("rtx3090"), std::string::npos) << unknown.text;
  const Scratch scratch;
  const std::string file = scratch.file("machine.json", "{");
  const Error broken = test::error_of([&] { planned({{"hardware", file}}); });
  EXPECT_EQ(broken.code, Code::format);
  EXPECT_EQ(broken.subject, file);
  EXPECT_NE(test::code_of([&] { planned({{"hardware", scratch.path()}}); }), Code::ok) << "a directory is neither";
}

}  // namespace
}  // namespace protrain::draft::plan_model_test
