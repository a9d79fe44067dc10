// A NaN is traced to the same operator under every plan, and tracing changes nothing.
#include <gtest/gtest.h>

#include <cmath>

#include "asked.h"
#include "errors.h"
#include "grad/training.h"
#include "random_plan.h"

namespace protrain::test::nonfinite_test {
namespace {

constexpr const char *kModel = "gpt2-dynamic-opset18";

std::vector<float> values_of(session::Session &session, const std::string &name, std::size_t elements) {
  std::vector<float> values(elements);
  session.read_parameter(name, values.data(), values.size());
  return values;
}

// Takes a step in which one parameter holds a NaN, then mends the parameter and trains. Returns the error of that step,
// and the results after it.
std::pair<std::string, Trace> fail_and_train(const std::string &parameter, const Pairs &more) {
  Pairs pairs = base_options(kModel);
  pairs.insert(pairs.end(), more.begin(), more.end());
  const auto session = session::Session::create(options_with(pairs), fixture(std::string(kModel) + ".onnx"), nullptr);
  std::size_t p = 0;
  while (session->parameter_name(p) != parameter) ++p;
  const std::vector<float> sound =
      values_of(*session, parameter, static_cast<std::size_t>(element_count(session->parameter_shape(p))));
  std::vector<float> broken = sound;
  broken[1] = NAN;
  session->write_parameter(parameter, broken.data(), broken.size());
  feed(*session, 0);
  const Error error = error_of([&] { session->step(); });
  EXPECT_EQ(error.code, Code::nonfinite);
  session->write_parameter(parameter, sound.data(), sound.size());
  return {error.text, train(*session, 2)};
}

Trace train_alone() {
  const auto session =
      session::Session::create(options_with(base_options(kModel)), fixture(std::string(kModel) + ".onnx"), nullptr);
  return train(*session, 2);
}

TEST(Nonfinite, IsTracedUnderEveryPlanAndLeavesTheSessionAsItWas) {
  const draft::LoadedModel loaded =
      draft::load_model(draft::settings_of(options_with(base_options(kModel))), fixture(std::string(kModel) + ".onnx"));
  const graph::Graph graph = grad::build(loaded.prepared.graph, loaded.loss).graph;
  const Trace expected = train_alone();
  Draw draw(11);
  const auto plans = static_cast<int>(asked("PROTRAIN_PLANS", 6));
  for (int i = 0; i < plans; ++i) {
    const graph::ValueId parameter =
        graph.parameters[static_cast<std::size_t>(draw.below(static_cast<int>(graph.parameters.size())))];
    const std::string &name = graph.value(parameter).name;
    const Scratch scratch;
    plan::Plan plan = draw.plan(graph, draw.order());
    if (draw.chance(0.4)) plan = draw.deferring(std::move(plan));
    Pairs pairs = following(plan, scratch);
    const Pairs trial = draw.trial();
    pairs.insert(pairs.end(), trial.begin(), trial.end());
    const auto [text, found] = fail_and_train(name, pairs);
    EXPECT_NE(text.find("the parameter " + name + " holds a NaN itself"), std::string::npos)
        << text << "\n"
        << name << " under plan " << i << ": " << plan::to_json(plan);
    EXPECT_TRUE(found == expected) << name << " under plan " << i << ": " << plan::to_json(plan);
  }
}

}  // namespace
}  // namespace protrain::test::nonfinite_test
