// The command follows PyTorch: losses of ten AdamW steps, gradient norms of the first, for every model of the fixtures.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "fixtures.h"
#include "session/session.h"

namespace protrain {
namespace {

using Json = nlohmann::json;

class Golden : public testing::TestWithParam<std::string> {
 protected:
  std::string model() const { return test::fixture(GetParam() + ".onnx"); }
  Json expected() const { return test::golden(test::family_of(GetParam())); }
};

// The metrics lines of `protrain train` on the fixtures' inputs.
std::vector<Json> train(const std::string &model) {
  const std::filesystem::path metrics =
      std::filesystem::temp_directory_path() / ("protrain-golden-" + std::to_string(getpid()) + ".jsonl");
  const std::string command = std::string(PROTRAIN_COMMAND) + " train " + model +
                              " --steps 10 --input input_ids=" + test::fixture("input_ids.npy") +
                              " --input labels=" + test::fixture("labels.npy") +
                              " --learning-rate 1e-3 --beta1 0.9 --beta2 0.95 --epsilon 1e-8 --weight-decay 0.1" +
                              " --metrics " + metrics.string() + " > /dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  std::vector<Json> lines;
  std::ifstream file(metrics);
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  std::filesystem::remove(metrics);
  return lines;
}

TEST_P(Golden, CommandFollowsTheLossesOfTenSteps) {
  const std::vector<Json> lines = train(model());
  const std::vector<double> losses = expected()["losses"];
  ASSERT_EQ(lines.size(), losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const double tolerance = (i == 0 ? 2e-6 : 5e-4) * losses[i];
    EXPECT_NEAR(lines[i]["loss"].get<double>(), losses[i], tolerance) << "step " << i + 1;
  }
}

// The exporter calls a tied table by its last name, PyTorch by its first: the one name that is left over.
std::string pytorch_name(const std::string &name, const Json &norms) {
  if (norms.contains(name)) return name;
  for (const char *table : {"m.transformer.wte.weight", "m.model.decoder.embed_tokens.weight"})
    if (norms.contains(table)) return table;
  return name;
}

TEST_P(Golden, FirstGradientsHaveTheNormsOfPyTorch) {
  session::Options options;
  options.set("keep_gradients", "*");
  if (GetParam().find("static") == std::string::npos)
    for (const char *dim : {"batch=2", "sequence=32"}) options.set("dim", dim);
  const auto session = session::Session::create(options, model(), nullptr);
  for (const char *name : {"input_ids", "labels"})
    session->set_input(name, DType::i64, {test::kBatch, test::kSequence},
                       test::load_tokens(std::string(name) + ".npy").data());
  const session::StepResult result = session->step();
  const double global = expected()["grad_norms"][0];
  EXPECT_NEAR(result.grad_norm, global, 1e-4 * global);

  const Json norms = expected()["step1_param_grad_norms"];
  ASSERT_EQ(session->parameter_count(), norms.size());
  for (std::size_t p = 0; p < session->parameter_count(); ++p) {
    const std::string name = pytorch_name(session->parameter_name(p), norms);
    ASSERT_TRUE(norms.contains(name)) << name;
    std::vector<float> gradient(static_cast<std::size_t>(element_count(session->parameter_shape(p))));
    session->read_gradient(session->parameter_name(p), gradient.data(), gradient.size());
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
INSTANTIATE_TEST_SUITE_P(Own, Golden, testing::Values("retention-dynamic-opset18"), test_name);

}  // namespace
}  // namespace protrain
