// ONNX Runtime must compute the same loss as the library from a model that was trained and exported. The test is
// skipped if Python has no onnxruntime.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "fixtures.h"
#include "session/session.h"

namespace protrain::export_test {
namespace {

namespace fs = std::filesystem;

// The Python to try: $PROTRAIN_PYTHON, or else python3.
std::string python() {
  const char *chosen = std::getenv("PROTRAIN_PYTHON");
  return chosen != nullptr ? chosen : "python3";
}

bool has_onnxruntime() {
  return std::system((python() + " -c 'import onnxruntime, numpy' > /dev/null 2>&1").c_str()) == 0;
}

// The loss that ONNX Runtime computes from the model and the fixtures' first batch.
double runtime_loss(const fs::path &model) {
  const fs::path script = model.string() + ".py", out = model.string() + ".loss";
  std::ofstream(script) << "import numpy, onnxruntime, sys\n"
                           "model, ids, labels, out = sys.argv[1:]\n"
                           "session = onnxruntime.InferenceSession(model, providers=['CPUExecutionProvider'])\n"
                           "feed = {'input_ids': numpy.load(ids)[0], 'labels': numpy.load(labels)[0]}\n"
                           "open(out, 'w').write(repr(float(session.run(['loss'], feed)[0])))\n";
  const std::string command = python() + " " + script.string() + " " + model.string() + " " +
                              test::fixture("input_ids.npy") + " " + test::fixture("labels.npy") + " " + out.string();
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  double loss = 0;
  std::ifstream(out) >> loss;
  return loss;
}

class Export : public testing::TestWithParam<std::string> {};

TEST_P(Export, GivesOnnxRuntimeTheSameLoss) {
  if (!has_onnxruntime()) GTEST_SKIP() << "no onnxruntime in " << python();
  draft::Options options;
  options.set("learning_rate", "1e-3");
  if (GetParam().find("static") == std::string::npos)
    for (const char *dim : {"batch=2", "sequence=32"}) options.set("dim", dim);
  const auto session = session::Session::create(options, test::fixture(GetParam() + ".onnx"), nullptr);
  for (const char *name : {"input_ids", "labels"})
    session->set_input(name, DType::i64, {test::kBatch, test::kSequence},
                       test::load_tokens(std::string(name) + ".npy").data());
  const float before = session->evaluate();
  for (int i = 0; i < 3; ++i) session->step();
  const float after = session->evaluate();
  ASSERT_LT(after, before - 0.01f);

  const fs::path folder = fs::temp_directory_path() / ("protrain-export-" + std::to_string(getpid()));
  fs::create_directories(folder);
  const fs::path model = folder / "trained.onnx";
  session->export_model(model.string());
  EXPECT_NEAR(runtime_loss(model), after, 1e-5 * after);
  fs::remove_all(folder);
}

std::string test_name(const testing::TestParamInfo<std::string> &info) {
  std::string name = info.param;
  for (char &c : name)
    if (c == '-') c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Export, testing::ValuesIn(test::model_files()), test_name);
INSTANTIATE_TEST_SUITE_P(Own, Export, testing::Values("recurrent-dynamic-opset18"), test_name);

}  // namespace
}  // namespace protrain::export_test
