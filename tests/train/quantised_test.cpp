// Model files in which tools have quantised some weights (fixtures/quantise.py). Sessions train the other weights, and
// must follow PyTorch's losses on the same file. The quantised weights never change. Exports must run in ONNX Runtime;
// this check is skipped if Python has no onnxruntime.
#include <gtest/gtest.h>

#include "onnx_import/model.h"
#include "scratch.h"
#include "train/family.h"
#include "train/runtime.h"

namespace protrain::quantised_test {
namespace {

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
  // True if activations are quantised. Rounding them to integers is no smooth function: a tiny difference may grow to a
  // whole unit, so the losses agree less closely with PyTorch's.
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
  const std::optional<double> loss = test::runtime_loss(scratch_ / "trained.onnx", golden_["inputs"]);
  if (!loss) GTEST_SKIP() << "no onnxruntime";
  EXPECT_NEAR(*loss, after, 1e-4 * after);
}

// A checkpoint does not hold the quantised weights. A resumed session reads them from the model file again.
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

INSTANTIATE_TEST_SUITE_P(Files, Quantised, testing::ValuesIn(files()), test::kCaseName);

}  // namespace
}  // namespace protrain::quantised_test
