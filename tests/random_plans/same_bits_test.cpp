// Losses, norms and weights have the same bits under every plan.
#include <gtest/gtest.h>

#include "asked.h"
#include "base/error.h"
#include "draft/loaded_model.h"
#include "grad/training.h"
#include "random_plan.h"
#include "session/session.h"

namespace protrain::test::same_bits_test {
namespace {

constexpr int kSteps = 3;

int plans() { return static_cast<int>(asked_plans()); }

class SameBits : public testing::TestWithParam<std::string> {
 protected:
  std::string model() const { return fixture(GetParam() + ".onnx"); }

  graph::Graph training_graph(const Pairs &settings) const {
    Pairs pairs = base_options(GetParam());
    for (const auto &pair : settings)
      if (pair.first.starts_with("lora") || pair.first == "base_precision") pairs.push_back(pair);
    draft::LoadedModel loaded = draft::load_model(draft::settings_of(options_with(pairs)), model());
    return grad::build(std::move(loaded.prepared.graph), loaded.loss).graph;
  }

  std::unique_ptr<session::Session> session_with(const Pairs &more) const {
    Pairs pairs = base_options(GetParam());
    pairs.insert(pairs.end(), more.begin(), more.end());
    return session::Session::create(options_with(pairs), model(), nullptr);
  }

  static Trace evaluated(session::Session &session) {
    Trace trace;
    for (int i = 0; i < kSteps; ++i) {
      feed(session, i);
      trace.losses.push_back(std::bit_cast<std::uint32_t>(session.evaluate()));
    }
    return trace;
  }

  Trace run(const Pairs &more) const {
    const auto session = session_with(more);
    const bool evaluates = std::ranges::find(more, "mode", &Pairs::value_type::first) != more.end();
    return evaluates ? evaluated(*session) : train(*session, kSteps);
  }

  // Compares runs under `count` random plans with a run without a plan. All runs have the options `settings`. The plans
  // have the optimizer order `order`. If `order` is not given, each plan has a random one.
  void compare(int count, const Pairs &settings, std::optional<plan::OptimizerOrder> order) const {
    const graph::Graph graph = training_graph(settings);
    const Trace expected = run(settings);
    const bool accumulates = std::ranges::find(settings, "accumulation", &Pairs::value_type::first) != settings.end();
    Draw draw(std::hash<std::string>{}(GetParam()) & 0xFFFF);
    for (int i = 0; i < count; ++i) {
      const Scratch scratch;
      plan::Plan plan = draw.plan(graph, order.value_or(draw.order()));
      if (!accumulates && draw.chance(0.4)) plan = draw.deferring(std::move(plan));
      Pairs pairs = following(plan, scratch);
      pairs.insert(pairs.end(), settings.begin(), settings.end());
      const Pairs trial = draw.trial();
      pairs.insert(pairs.end(), trial.begin(), trial.end());
      std::string how;
      for (const auto &pair : trial) how += " " + pair.second;
      try {
        ASSERT_TRUE(run(pairs) == expected) << "plan " << i << how << ": " << plan::to_json(plan);
      } catch (const Error &error) {
        FAIL() << error.text << " (" << error.subject << ") plan " << i << how << ": " << plan::to_json(plan);
      }
    }
  }
};

TEST_P(SameBits, UnderRandomPlans) { compare(plans(), {}, std::nullopt); }

const Pairs kBarrier = {{"accumulation", "2"}, {"clip_norm", "0.5"}, {"clip_value", "0.01"}, {"on_nonfinite", "skip"}};

TEST_P(SameBits, WithAccumulationAndClippingToo) { compare(plans() / 8, kBarrier, plan::OptimizerOrder::barrier); }

TEST_P(SameBits, InBfloat16Too) {
  compare(plans() / 4, {{"precision", "bf16"}}, std::nullopt);
  Pairs all = kBarrier;
  all.emplace_back("precision", "bf16");
  compare(plans() / 8, all, plan::OptimizerOrder::barrier);
}

// The loss scale of float16 needs the barrier order.
TEST_P(SameBits, InFloat16Too) {
  compare(plans() / 8, {{"precision", "fp16"}}, plan::OptimizerOrder::barrier);
  Pairs all = kBarrier;
  all.emplace_back("precision", "fp16");
  compare(plans() / 8, all, plan::OptimizerOrder::barrier);
}

// The number of threads can be far larger than the number of cores. Work is cut so finely that some members have none,
// and all members wait often.
TEST_P(SameBits, WithManyThreadsToo) {
  compare(plans() / 16, {{"threads", "64"}}, std::nullopt);
  compare(plans() / 16, {{"threads", "17"}, {"precision", "bf16"}}, std::nullopt);
}

TEST_P(SameBits, OfOptimizersWithOtherStateToo) {
  const Pairs coded = {{"optimizer", "adamw8bit"}, {"ema", "0.9"}};
  compare(plans() / 8, coded, std::nullopt);
  Pairs all = kBarrier;
  all.insert(all.end(), coded.begin(), coded.end());
  all.emplace_back("precision", "bf16");
  compare(plans() / 16, all, plan::OptimizerOrder::barrier);
  compare(plans() / 16, {{"optimizer", "lion"}, {"precision", "bf16"}}, std::nullopt);
}

TEST_P(SameBits, OfSessionsThatOnlyEvaluateToo) {
  for (const char *precision : {"fp32", "bf16", "fp16"}) {
    const Pairs settings = {{"precision", precision}, {"mode", "eval"}};
    EXPECT_EQ(run(settings).losses, evaluated(*session_with({{"precision", precision}})).losses) << precision;
    compare(plans() / 8, settings, std::nullopt);
  }
}

class SameBitsOfAdapters : public SameBits {};

TEST_P(SameBitsOfAdapters, UnderRandomPlans) {
  Pairs settings = {{"lora", "*.c_*.weight"}, {"lora", "*.lm_head.weight,rank=3"}, {"lora_dropout", "0.1"}};
  if (GetParam().starts_with("llama")) settings = {{"lora", "*_proj.weight"}};
  if (GetParam().starts_with("quantised")) settings = {{"lora", "*_Q4"}, {"lora", "embedding.weight"}};
  compare(plans() / 8, settings, std::nullopt);
  settings.emplace_back("precision", "bf16");
  compare(plans() / 16, settings, std::nullopt);
  settings.insert(settings.end(), kBarrier.begin(), kBarrier.end());
  compare(plans() / 16, settings, plan::OptimizerOrder::barrier);
}

TEST_P(SameBitsOfAdapters, OnARoundedBase) {
  if (GetParam().starts_with("quantised")) GTEST_SKIP() << "the file's weights are quantised already";
  for (const char *form : {"bf16", "int8", "nf4", "int4"}) {
    Pairs settings = {{"lora", "*.mlp.*.weight"}, {"base_precision", form}};
    compare(plans() / 8, settings, std::nullopt);
    if (std::string_view(form) == "bf16") continue;
    settings.emplace_back("precision", "bf16");
    compare(plans() / 16, settings, std::nullopt);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SameBitsOfAdapters,
                         testing::Values("gpt2-dynamic-opset18", "llama-dynamic-opset23", "quantised/tokens-int4"),
                         model_name);
INSTANTIATE_TEST_SUITE_P(Models, SameBits, testing::ValuesIn(kModels), model_name);
INSTANTIATE_TEST_SUITE_P(Recurrent, SameBits, testing::Values("recurrent-dynamic-opset18"), model_name);

}  // namespace
}  // namespace protrain::test::same_bits_test
