// On every model of the fixtures, the command must follow PyTorch: in the losses of ten AdamW steps, and in the
// gradient norms of the first step.
#include <gtest/gtest.h>

#include <cmath>

#include "session/session.h"
#include "train/command.h"

namespace protrain::golden_losses_test {
namespace {

using test::expect_losses;
using test::Json;
using test::train;

class Golden : public testing::TestWithParam<std::string> {
 protected:
  std::string model() const { return test::fixture(GetParam() + ".onnx"); }
  Json expected() const { return test::golden(test::family_of(GetParam())); }

  draft::Options options_in(const std::string &precision) const {
    draft::Options options;
    options.set("precision", precision);
    if (GetParam().find("static") == std::string::npos)
      for (const char *dim : {"batch=2", "sequence=32"}) options.set("dim", dim);
    return options;
  }
  static void set_batch(session::Session &session, int step) {
    for (const char *name : {"input_ids", "labels"})
      session.set_input(name, DType::i64, {test::kBatch, test::kSequence},
                        test::batch(test::load_tokens(std::string(name) + ".npy"), step));
  }
};

TEST_P(Golden, CommandFollowsTheLossesOfTenSteps) { expect_losses(train(model()), expected()); }

TEST_P(Golden, Bfloat16FollowsThemWithinOnePercent) {
  const std::vector<double> losses = expected()["losses"];
  const std::vector<Json> lines = train(model(), "bf16");
  ASSERT_EQ(lines.size(), losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(lines[i]["loss"].get<double>(), losses[i], 0.01 * losses[i]) << "step " << i + 1;
}

// If a batch's gradients overflow, the test repeats the batch, with the smaller loss scale.
TEST_P(Golden, Float16FollowsThemWithinOnePercent) {
  draft::Options options = options_in("fp16");
  for (const auto &[key, value] : {std::pair{"beta2", "0.95"}, {"weight_decay", "0.1"}}) options.set(key, value);
  const auto session = session::Session::create(options, model(), nullptr);
  const std::vector<double> losses = expected()["losses"];
  std::uint64_t skipped = 0;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    set_batch(*session, static_cast<int>(i));
    session::StepResult result = session->step();
    for (; !std::isfinite(result.grad_norm) && skipped < 16; ++skipped) result = session->step();
    EXPECT_NEAR(result.loss, losses[i], 0.01 * losses[i]) << "step " << i + 1;
  }
  EXPECT_EQ(session->step_count(), losses.size() + skipped);
}

// Returns PyTorch's name of a parameter. If the embedding table is tied to the head, both are one parameter. The
// exporter gives it the head's name, but PyTorch gives it the table's name.
std::string pytorch_name(const std::string &name, const Json &norms) {
  if (norms.contains(name)) return name;
  for (const char *table : {"m.transformer.wte.weight", "m.model.decoder.embed_tokens.weight"})
    if (norms.contains(table)) return table;
  return name;
}

TEST_P(Golden, FirstGradientsHaveTheNormsOfPyTorch) {
  draft::Options options = options_in("fp32");
  options.set("keep_gradients", "*");
  const auto session = session::Session::create(options, model(), nullptr);
  set_batch(*session, 0);
  const session::StepResult result = session->step();
  const double global = expected()["grad_norms"][0];
  EXPECT_NEAR(result.grad_norm, global, 1e-4 * global);

  const Json norms = expected()["step1_param_grad_norms"];
  ASSERT_EQ(session->parameter_count(), norms.size());
  for (std::size_t p = 0; p < session->parameter_count(); ++p) {
    const std::string name = pytorch_name(session->parameter_name(p), norms);
    ASSERT_TRUE(norms.contains(name)) << name;
    std::vector<float> gradient(static_cast<std::size_t>(element_count(session->parameter_shape(p))));
    session->read_grad(session->parameter_name(p), gradient.data(), gradient.size());
    double sum = 0;
    for (float g : gradient) sum += static_cast<double>(g) * g;
    const double norm = norms[name];
    EXPECT_NEAR(std::sqrt(sum), norm, std::max(1e-4 * norm, 1e-6 * global)) << name;
  }
}

std::string test_name(const testing::TestParamInfo<std::string> &info) {
  std::string name = info.param;
  for (char &c : name)
    if (c == '-') c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Golden, testing::ValuesIn(test::model_files()), test_name);
INSTANTIATE_TEST_SUITE_P(Own, Golden, testing::Values("retention-dynamic-opset18", "recurrent-dynamic-opset18"),
                         test_name);

}  // namespace
}  // namespace protrain::golden_losses_test
