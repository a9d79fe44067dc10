// Files that tools have quantised (fixtures/quantise.py). What is left to train must follow PyTorch's losses on the
// same file. Quantised weights never change, and exports run in ONNX Runtime, which is left out without PyPI's
// onnxruntime.
#include <gtest/gtest.h>

#include <cstdlib>

#include "onnx_import/model.h"
#include "scratch.h"
#include "train/family.h"

namespace protrain::quantised_test {
namespace {

namespace fs = std::filesystem;
using test::Json;

const Json &golden_files() {
  static const Json all = [] {
    std::ifstream file(test::fixture("quantised/quantised.json"));
    return Json::parse(file);
  }();
  return all;
}

std::vector<std::string> files() {
  std::vector<std::string> names;
  for (const auto &[name, golden] : golden_files().items()) names.push_back(name);
  return names;
}

// The loss that ONNX Runtime computes from the first batch; nothing without onnxruntime. It must not put integer
// arithmetic, which rounds otherwise, in the place of floats between quantised values.
std::optional<double> runtime_loss(const fs::path &model, const std::string &name) {
  const char *chosen = std::getenv("PROTRAIN_PYTHON");
  const std::string python = chosen != nullptr ? chosen : "python3";
  if (std::system((python + " -c 'import onnxruntime, numpy' > /dev/null 2>&1").c_str()) != 0) return std::nullopt;
  const fs::path script = model.string() + ".py", out = model.string() + ".loss";
  std::ofstream(script) << "import json, numpy, onnxruntime, sys\n"
                           "model, golden, name, out = sys.argv[1:]\n"
                           "options = onnxruntime.SessionOptions()\n"
                           "options.add_session_config_entry('session.disable_quant_qdq', '1')\n"
                           "session = onnxruntime.InferenceSession(model, options, ['CPUExecutionProvider'])\n"
                           "feed = {}\n"
                           "for key, values in json.load(open(golden))[name]['inputs'].items():\n"
                           "    array = numpy.array(values['values']).reshape(values['shape'])[0]\n"
                           "    if values['dtype'] == 'float32': array = (array / 256).astype('float32')\n"
                           "    feed[key] = array\n"
                           "open(out, 'w').write(repr(float(session.run(None, feed)[0])))\n";
  const std::string command = python + " " + script.string() + " " + model.string() + " " +
                              test::fixture("quantised/quantised.json") + " " + name + " " + out.string();
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  double loss = 0;
  std::ifstream(out) >> loss;
  return loss;
}

class Quantised : public testing::TestWithParam<std::string> {
 protected:
  Quantised() : golden_(golden_files()[GetParam()]) {
    for (const auto &[name, values] : golden_["inputs"].items()) inputs_.emplace_back(name, test::Values(values));
  }

  std::unique_ptr<session::Session> open(const char *option = "precision", const std::string &value = "fp32") const {
    Json golden = golden_;
    golden["options"][option] = value;
    return test::open_family("quantised/" + GetParam(), golden);
  }
  void set_inputs(session::Session &session, std::size_t step) const {
    for (const auto &[name, values] : inputs_) session.set_input(name, values.dtype, values.batch(), values.at(step));
  }
  // Rounding to integers is no smooth function, so activations that are quantised may part ways.
  bool rounds_activations() const { return GetParam().starts_with("q"); }

  void follow(session::Session &session, double tolerance) const {
    const std::vector<double> losses = golden_["losses"];
    for (std::size_t step = 0; step < losses.size(); ++step) {
      set_inputs(session, step);
      EXPECT_NEAR(session.step().loss, losses[step], tolerance * losses[step]) << "step " << step + 1;
    }
  }

  const Json golden_;
  std::vector<std::pair<std::string, test::Values>> inputs_;
  test::Scratch scratch_;
};

TEST_P(Quantised, StartsWhereOnnxRuntimeAndPyTorchDo) {
  const auto session = open();
  set_inputs(*session, 0);
  const double loss = session->step().loss, runtime = golden_["runtime_loss"];
  EXPECT_NEAR(loss, runtime, 1e-4 * runtime);
  if (rounds_activations()) return;
  test::expect_norms(test::sorted_gradient_norms(*session), golden_);
}

TEST_P(Quantised, FollowsPyTorch) { follow(*open(), rounds_activations() ? 2e-3 : 5e-4); }

TEST_P(Quantised, FollowsPyTorchInBfloat16) { follow(*open("precision", "bf16"), 2e-2); }

TEST_P(Quantised, ExportKeepsItsIntegers) {
  const auto session = open();
  set_inputs(*session, 0);
  for (int i = 0; i < 3; ++i) session->step();
  const float after = session->evaluate();
  session->export_model(scratch_ / "trained.onnx");
  const auto original = onnx_import::Model::open(test::fixture("quantised/" + GetParam() + ".onnx"));
  const auto trained = onnx_import::Model::open(scratch_ / "trained.onnx");
  const onnx_import::DimBindings dims = golden_["dims"];
  const graph::Graph graph = original->graph(dims);
  int changed = 0;
  for (const graph::Value &value : graph.values()) {
    if (value.origin != graph::Origin::initializer) continue;
    const bool same = trained->load(value.name).same_as(original->load(value.name));
    EXPECT_TRUE(same || is_float(value.type.dtype)) << value.name;
    changed += !same;
  }
  EXPECT_EQ(changed, static_cast<int>(golden_["step1_param_grad_norms"].size()));
  const std::optional<double> loss = runtime_loss(scratch_ / "trained.onnx", GetParam());
  if (!loss) GTEST_SKIP() << "no onnxruntime";
  EXPECT_NEAR(*loss, after, 1e-4 * after);
}

// A checkpoint has no integers either; they come from the file again.
TEST_P(Quantised, ResumesFromACheckpoint) {
  const auto session = open();
  set_inputs(*session, 0);
  for (int i = 0; i < 2; ++i) session->step();
  session->save(scratch_.path());
  const auto again = open("resume", scratch_.path());
  for (std::size_t step = 1; step < 3; ++step) {
    set_inputs(*session, step);
    set_inputs(*again, step);
    EXPECT_EQ(again->step().loss, session->step().loss);
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Quantised, testing::ValuesIn(files()), [](const auto &info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

}  // namespace
}  // namespace protrain::quantised_test
