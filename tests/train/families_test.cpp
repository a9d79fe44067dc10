// The many model families that fixtures/export_families.py exported, each with its loss inside. They must follow
// PyTorch's losses for ten AdamW steps. They must also have PyTorch's number of parameters and gradient norms. Norms
// are compared as sorted lists, because exporters rename parameters.
#include <gtest/gtest.h>

#include <map>

#include "session/session.h"
#include "train/command.h"

namespace protrain::families_test {
namespace {

namespace fs = std::filesystem;
using test::Json;

std::vector<std::string> exports() {
  std::vector<std::string> names;
  for (const auto &entry : fs::directory_iterator(test::fixture("families")))
    if (entry.path().extension() == ".onnx") names.push_back(entry.path().stem());
  std::ranges::sort(names);
  return names;
}

// The golden file of a family: that of "t5" for "t5.dynamo18".
Json golden_of(const std::string &name) {
  std::ifstream file(test::fixture("families/" + name.substr(0, name.find('.')) + ".json"));
  return Json::parse(file);
}

// One input for all steps. The JSON has integers; a float is stored in units of 1/256.
struct Values {
  explicit Values(const Json &json) : shape(json["shape"].get<Shape>()), dtype(DType::i64) {
    integers = json["values"].get<std::vector<std::int64_t>>();
    if (json["dtype"] != "float32") return;
    dtype = DType::f32;
    for (std::int64_t value : integers) reals.push_back(static_cast<float>(value) / 256);
  }
  Shape batch() const { return {shape.begin() + 1, shape.end()}; }
  const void *at(std::size_t step) const {
    const std::size_t first = step * (integers.size() / static_cast<std::size_t>(shape[0]));
    return dtype == DType::f32 ? static_cast<const void *>(reals.data() + first) : integers.data() + first;
  }

  Shape shape;  // (steps, ...)
  DType dtype;
  std::vector<std::int64_t> integers;
  std::vector<float> reals;
};

std::unique_ptr<session::Session> open(const std::string &name, const Json &golden) {
  draft::Options options;
  options.set("keep_gradients", "*");
  options.set("threads", "1");
  options.set("learning_rate", "1e-3");
  options.set("beta1", "0.9");
  options.set("beta2", "0.95");
  options.set("epsilon", "1e-8");
  options.set("weight_decay", "0.1");
  for (const auto &[dim, size] : golden["dims"].items())
    options.set("dim", dim + "=" + std::to_string(size.get<int>()));
  return session::Session::create(options, test::fixture("families/" + name + ".onnx"), nullptr);
}

class Families : public testing::TestWithParam<std::string> {};

TEST_P(Families, FollowPyTorch) {
  const Json golden = golden_of(GetParam());
  const auto session = open(GetParam(), golden);
  std::map<std::string, Values> inputs;
  for (const auto &[name, values] : golden["inputs"].items()) inputs.emplace(name, Values(values));

  const std::vector<double> losses = golden["losses"];
  const double global = golden["grad_norms"][0];
  for (std::size_t step = 0; step < losses.size(); ++step) {
    for (const auto &[name, values] : inputs) session->set_input(name, values.dtype, values.batch(), values.at(step));
    const session::StepResult result = session->step();
    const double tolerance = (step == 0 ? 2e-6 : 5e-4) * std::abs(losses[step]);
    EXPECT_NEAR(result.loss, losses[step], tolerance) << "step " << step + 1;
    if (step > 0) continue;
    EXPECT_NEAR(result.grad_norm, global, 1e-4 * global);
    test::expect_norms(test::sorted_gradient_norms(*session), golden);
  }
}

INSTANTIATE_TEST_SUITE_P(Exports, Families, testing::ValuesIn(exports()), [](const auto &info) {
  std::string name = info.param;
  for (char &c : name)
    if (c == '-' || c == '.') c = '_';
  return name;
});

}  // namespace
}  // namespace protrain::families_test
