// Models that fixtures/make_control.py and make_forms.py made: decoders with a past, models with control flow, and
// models whose weights or layers a tool has stored in another form.
//
// They must follow PyTorch's losses for ten steps. An export must keep the file's inputs and bodies, and must give the
// same loss in ONNX Runtime. The comparison with ONNX Runtime is skipped if Python has no onnxruntime.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <map>

#include "onnx_import/model.h"
#include "scratch.h"
#include "train/family.h"

namespace protrain::control_test {
namespace {

namespace fs = std::filesystem;
using test::Json;

std::vector<std::string> models() {
  std::vector<std::string> names;
  for (const std::string folder : {"control/", "forms/"})
    for (const auto &entry : fs::directory_iterator(test::fixture(folder)))
      if (entry.path().extension() == ".onnx") names.push_back(folder + entry.path().stem().string());
  std::ranges::sort(names);
  return names;
}

// Computes the mean cross entropy of the first batch. The golden file lacks some of the inputs. If an option of the
// session binds such an input to a value, the script uses this value. All other such inputs describe earlier tokens (a
// past); the script takes a past of 0 tokens.
constexpr const char *kScript = R"(import json, numpy, onnxruntime, sys
model, original, golden, out = sys.argv[1:]
session = onnxruntime.InferenceSession(model, providers=['CPUExecutionProvider'])
golden = json.load(open(golden))
values = {}
for name, given in golden['inputs'].items():
    array = numpy.array(given['values']).reshape(given['shape'])[0]
    values[name] = (array / 256).astype('float32') if given['dtype'] == 'float32' else array
bound = dict(item.rsplit('=', 1) for item in golden['options'].get('constant', []))
sizes, feed = dict(golden['dims']), {}
types = {'tensor(float)': 'float32', 'tensor(int64)': 'int64', 'tensor(bool)': 'bool'}
def size(dim):
    return dim if isinstance(dim, int) else sum(sizes.get(term.strip(), 0) for term in dim.split('+'))
for wanted in session.get_inputs():
    if wanted.name in values:
        feed[wanted.name] = values[wanted.name]
        continue
    number = [{'true': 1, 'false': 0}.get(v, v) for v in bound.get(wanted.name, '0').split(',')]
    shape = [size(dim) for dim in wanted.shape]
    feed[wanted.name] = numpy.broadcast_to(numpy.array(number).astype(float), shape).astype(types[wanted.type])
try:
    onnxruntime.InferenceSession(original, providers=['CPUExecutionProvider']).run(['logits'], feed)
except Exception as error:
    sys.exit(77 if 'supported blocked layout' in str(error) else str(error))
logits = session.run(['logits'], feed)[0].astype('float64')
shifted = logits - logits.max(-1, keepdims=True)
scores = shifted - numpy.log(numpy.exp(shifted).sum(-1, keepdims=True))
open(out, 'w').write(repr(float(-numpy.take_along_axis(scores, values['labels'][..., None], -1).mean())))
)";

// Returns the loss that ONNX Runtime computes with an export of the fixture `name`. Returns an empty optional if Python
// lacks onnxruntime or numpy, or if ONNX Runtime cannot run the original fixture on this processor. ONNX Runtime lays
// out channels in blocks of 8 with AVX2 and of 16 with AVX-512, and a graph that was optimised for one size of block
// does not run with the other.
std::optional<double> runtime_loss(const fs::path &model, const std::string &name) {
  const char *chosen = std::getenv("PROTRAIN_PYTHON");
  const std::string python = chosen != nullptr ? chosen : "python3";
  if (std::system((python + " -c 'import onnxruntime, numpy' > /dev/null 2>&1").c_str()) != 0) return std::nullopt;
  const fs::path script = model.string() + ".py", out = model.string() + ".loss";
  std::ofstream(script) << kScript;
  const std::string command = fmt::format("{} {} {} {} {} {}", python, script.string(), model.string(),
                                          test::fixture(name + ".onnx"), test::fixture(name + ".json"), out.string());
  const int status = std::system(command.c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return std::nullopt;
  EXPECT_EQ(status, 0) << command;
  double loss = 0;
  std::ifstream(out) >> loss;
  return loss;
}

class Control : public testing::TestWithParam<std::string> {
 protected:
  Control() {
    std::ifstream file(test::fixture(GetParam() + ".json"));
    golden_ = Json::parse(file);
    session_ = test::open_family(GetParam(), golden_);
    for (const auto &[name, values] : golden_["inputs"].items()) inputs_.emplace(name, test::Values(values));
  }
  void set_inputs(std::size_t step) {
    for (const auto &[name, values] : inputs_) session_->set_input(name, values.dtype, values.batch(), values.at(step));
  }

  Json golden_;
  std::unique_ptr<session::Session> session_;
  std::map<std::string, test::Values> inputs_;
  test::Scratch scratch_;
};

TEST_P(Control, FollowsPyTorch) {
  ASSERT_EQ(session_->input_count(), inputs_.size()) << "a past, or an input that is bound, wants no values";
  const std::vector<double> losses = golden_["losses"];
  const double global = golden_["grad_norms"][0];
  for (std::size_t step = 0; step < losses.size(); ++step) {
    set_inputs(step);
    const session::StepResult result = session_->step();
    EXPECT_NEAR(result.loss, losses[step], (step == 0 ? 2e-6 : 5e-4) * losses[step]) << "step " << step + 1;
    if (step > 0) continue;
    EXPECT_NEAR(result.grad_norm, global, 1e-4 * global);
    test::expect_norms(test::sorted_gradient_norms(*session_), golden_);
  }
}

TEST_P(Control, ExportsItsOwnGraph) {
  set_inputs(0);
  const float before = session_->evaluate();
  for (int i = 0; i < 3; ++i) session_->step();
  const float after = session_->evaluate();
  ASSERT_LT(after, before);
  session_->export_model(scratch_ / "trained.onnx");
  const auto original = onnx_import::Model::open(test::fixture(GetParam() + ".onnx"));
  const auto trained = onnx_import::Model::open(scratch_ / "trained.onnx");
  EXPECT_EQ(trained->inputs().size(), original->inputs().size());
  EXPECT_EQ(trained->bodies().size(), original->bodies().size());
  const std::optional<double> loss = runtime_loss(scratch_ / "trained.onnx", GetParam());
  if (!loss) GTEST_SKIP() << "no onnxruntime, or none that runs the original file on this processor";
  EXPECT_NEAR(*loss, after, 1e-4 * after);
}

INSTANTIATE_TEST_SUITE_P(Models, Control, testing::ValuesIn(models()),
                         [](const auto &info) { return test::case_name(info.param.substr(info.param.find('/') + 1)); });

}  // namespace
}  // namespace protrain::control_test
