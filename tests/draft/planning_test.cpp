// Sessions that choose their plan for a budget. Their results must have the bits of the resident plan.
#include "draft/planning.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <ranges>

#include "draft/estimate.h"
#include "errors.h"
#include "random_plans/random_plan.h"
#include "session/session.h"

namespace protrain::draft::planning_test {
namespace {

using test::Pairs;
using test::Scratch;
using Json = nlohmann::json;

std::unique_ptr<session::Session> create(const std::string &model, const Pairs &more) {
  Pairs pairs = test::base_options(model);
  pairs.insert(pairs.end(), more.begin(), more.end());
  return session::Session::create(test::options_with(pairs), test::fixture(model + ".onnx"), nullptr);
}

std::uint64_t device_peak(session::Session &session) {
  return Json::parse(session.report_json())["device_peak_bytes"].get<std::uint64_t>();
}

// A budget between the smallest that works (share 0) and the resident plan's memory (share 1).
std::uint64_t between(const std::string &model, const Pairs &more, std::uint64_t resident, double share) {
  Pairs pairs = more;
  pairs.emplace_back("memory", "4096");
  const std::string text = test::error_of([&] { create(model, pairs); }).text, mark = "smallest needs ";
  const auto least = std::stoull(text.substr(text.find(mark) + mark.size()));
  return least + static_cast<std::uint64_t>(share * static_cast<double>(resident - least));
}

TEST(Planning, KeepsAllWhereItFits) {
  const auto session = create("gpt2-dynamic-opset18", {});
  const Json plan = Json::parse(session->plan_json());
  EXPECT_EQ(plan["n_persist"], plan["n_chunk"]);
  EXPECT_EQ(plan["n_checkpoint"], 0);
  EXPECT_EQ(plan["n_swap"], 0);
  EXPECT_TRUE(plan["shared_memory"].get<bool>());
}

Draft planned_for(const Pairs &budgets, const char *hardware, Goal goal) {
  Pairs pairs = {{"dim", "batch=2"}, {"dim", "sequence=32"}, {"hardware", hardware}};
  pairs.insert(pairs.end(), budgets.begin(), budgets.end());
  const Settings settings = settings_of(test::options_with(pairs));
  NamedMachine machine(settings, nullptr);
  return estimate(settings, test::fixture("gpt2-dynamic-opset18.onnx"), *machine, goal);
}

TEST(Planning, TellsWhetherAnyPlanFitsAsTheSearchDoes) {
  int fit = 0, refused = 0, all = 0;
  for (const Pairs &more : {Pairs{}, Pairs{{"disk_memory", "1GB"}}})
    for (const char *host : {"2MB", "1GB"})
      for (int device : {0, 1, 3, 5}) {
        Pairs budgets = more;
        budgets.emplace_back("host_memory", host);
        budgets.emplace_back("device_memory", std::to_string(33'500'000 + device * 1'000'000));
        SCOPED_TRACE(fmt::format("{} {} {}", fmt::join(budgets | std::views::values, " "), host, device));
        const Draft best = planned_for(budgets, "h200", Goal::best), any = planned_for(budgets, "h200", Goal::any);
        EXPECT_EQ(any.fits(), best.fits());
        EXPECT_EQ(any.decision.found.all_fits, best.decision.found.all_fits);
        EXPECT_EQ(any.decision.found.resident->cost.bytes, best.decision.found.resident->cost.bytes);
        fit += best.fits();
        refused += !best.fits();
        all += best.decision.found.all_fits;
      }
  EXPECT_GT(fit, all) << "some budgets need a plan that moves data";
  EXPECT_GT(refused, 0);
  EXPECT_GT(all, 0);
}

TEST(Planning, ComputesAgainRatherThanKeepAndChangesNoBit) {
  for (const std::string &model : test::kModels) {
    SCOPED_TRACE(model);
    const auto resident = create(model, {});
    const std::uint64_t memory = between(model, {}, device_peak(*resident), 0.5);
    const auto tight = create(model, {{"memory", std::to_string(memory)}});
    const Json plan = Json::parse(tight->plan_json());
    EXPECT_GT(plan["n_checkpoint"].get<int>() + plan["n_selective"].get<int>(), 0);
    EXPECT_EQ(plan["n_persist"], plan["n_chunk"]) << "there is no disk";
    EXPECT_EQ(test::train(*tight, 3), test::train(*resident, 3));
    EXPECT_LE(device_peak(*tight), memory);
  }
}

TEST(Planning, GoesToTheDiskWhereThereIsOneAndChangesNoBit) {
  const Scratch scratch;
  const Pairs disk = {{"offload_dir", scratch.path()}};
  for (const std::string &model : test::kModels) {
    SCOPED_TRACE(model);
    const auto resident = create(model, {});
    const std::uint64_t memory = between(model, disk, device_peak(*resident), 0.1);
    Pairs pairs = disk;
    pairs.emplace_back("memory", std::to_string(memory));
    const auto tight = create(model, pairs);
    EXPECT_LT(Json::parse(tight->plan_json())["n_persist"], Json::parse(tight->plan_json())["n_chunk"]);
    EXPECT_EQ(test::train(*tight, 3), test::train(*resident, 3));
    EXPECT_LE(device_peak(*tight), memory);
    EXPECT_GT(Json::parse(tight->report_json())["disk_bytes"], 0);
  }
}

TEST(Planning, KeepsToTwoBudgetsAndChangesNoBit) {
  const std::string model = "gpt2-dynamic-opset18";
  const auto resident = create(model, {});
  const auto tight =
      create(model, {{"device_memory", std::to_string(device_peak(*resident) / 2)}, {"host_memory", "1GiB"}});
  EXPECT_EQ(test::train(*tight, 3), test::train(*resident, 3));
  EXPECT_LE(device_peak(*tight), device_peak(*resident) / 2);
}

TEST(Planning, IsForThisMachineAlone) {
  const Error error = test::error_of([] { create("gpt2-dynamic-opset18", {{"hardware", "h200"}}); });
  EXPECT_EQ(error.code, Code::arg);
  EXPECT_EQ(error.subject, "hardware");
}

TEST(Planning, TakesBudgetsWithoutEnd) {
  for (const char *much : {"9223372036854775808", "18446744073709551615"}) {
    const auto session = create("gpt2-dynamic-opset18", {{"memory", much}});
    EXPECT_EQ(Json::parse(session->plan_json())["n_checkpoint"], 0) << much;
  }
}

}  // namespace
}  // namespace protrain::draft::planning_test
