// Model files of 16-bit floats and of float64. fixtures/make_types.py made them from models in fixtures/families.
//
// A session in float32 must start from the loss that ONNX Runtime computes. It must then follow PyTorch's losses in
// float32, as far as the rounded weights allow. Exports must have the file's types. They must also run in ONNX Runtime;
// this check is skipped if Python has no onnxruntime.
#include <gtest/gtest.h>

#include <map>

#include "draft/loaded_model.h"
#include "onnx_import/floats.h"
#include "onnx_import/model.h"
#include "scratch.h"
#include "train/family.h"
#include "train/runtime.h"

namespace protrain::types_test {
namespace {

using test::Json;

Json runtime_losses() {
  std::ifstream file(test::fixture("types/types.json"));
  return Json::parse(file);
}

std::vector<std::string> files() {
  const Json losses = runtime_losses();
  std::vector<std::string> names;
  for (const auto &[name, loss] : losses.items()) names.push_back(name);
  return names;
}

// Sets the inputs of a step, each in the file's own type.
void set_inputs(session::Session &session, const std::map<std::string, test::Values> &inputs, std::size_t step) {
  for (std::size_t i = 0; i < session.input_count(); ++i) {
    const test::Values &values = inputs.at(session.input_name(i));
    const DType in_file = session.input_dtype(i);
    const void *data = values.at(step);
    std::vector<std::byte> converted(byte_count(in_file, values.batch()));
    if (in_file != values.dtype) {
      onnx_import::convert_floats(values.dtype, static_cast<const std::byte *>(data), element_count(values.batch()),
                                  in_file, converted.data());
      data = converted.data();
    }
    session.set_input(session.input_name(i), in_file, values.batch(), data);
  }
}

class Types : public testing::TestWithParam<std::string> {
 protected:
  Types() : golden_(test::golden_of(GetParam())), session_(test::open_family("types/" + GetParam(), golden_)) {
    for (const auto &[name, values] : golden_["inputs"].items()) inputs_.emplace(name, test::Values(values));
  }
  bool is_double() const { return GetParam().ends_with("double"); }
  double tolerance() const { return GetParam().ends_with("bfloat16") ? 1e-2 : is_double() ? 5e-4 : 2e-3; }

  Json golden_;
  std::unique_ptr<session::Session> session_;
  std::map<std::string, test::Values> inputs_;
  test::Scratch scratch_;
};

TEST_P(Types, FollowPyTorch) {
  const std::vector<double> losses = golden_["losses"];
  for (std::size_t step = 0; step < losses.size(); ++step) {
    set_inputs(*session_, inputs_, step);
    const double loss = session_->step().loss;
    EXPECT_NEAR(loss, losses[step], tolerance() * losses[step]) << "step " << step + 1;
    if (step > 0) continue;
    EXPECT_EQ(test::sorted_gradient_norms(*session_).size(), golden_["step1_param_grad_norms"].size());
    const Json runtime = runtime_losses()[GetParam()];
    if (!runtime.is_null()) {
      EXPECT_NEAR(loss, runtime.get<double>(), 1e-3 * loss);
    }
  }
}

TEST_P(Types, ExportsHaveTheFilesTypes) {
  set_inputs(*session_, inputs_, 0);
  const float before = session_->evaluate();
  for (int i = 0; i < 3; ++i) session_->step();
  const float after = session_->evaluate();
  ASSERT_LT(after, before);
  session_->export_model(scratch_ / "trained.onnx");

  const auto original = onnx_import::Model::open(test::fixture("types/" + GetParam() + ".onnx"));
  const auto trained = onnx_import::Model::open(scratch_ / "trained.onnx");
  EXPECT_EQ(trained->replaced_floats(), original->replaced_floats());
  EXPECT_FALSE(trained->replaced_floats().empty());
  for (std::size_t i = 0; i < original->inputs().size(); ++i)
    EXPECT_EQ(trained->inputs()[i].dtype, original->inputs()[i].dtype);
  if (runtime_losses()[GetParam()].is_null()) return;
  const std::optional<double> loss = test::runtime_loss(scratch_ / "trained.onnx", golden_["inputs"]);
  if (!loss) GTEST_SKIP() << "no onnxruntime";
  EXPECT_NEAR(*loss, after, 2e-3 * after);
}

TEST_P(Types, ExportsCanBeOfFloat32) {
  const auto session = test::open_family("types/" + GetParam(), golden_, {{"export_precision", "fp32"}});
  set_inputs(*session, inputs_, 0);
  for (int i = 0; i < 3; ++i) session->step();
  const float after = session->evaluate();
  session->export_model(scratch_ / "wide.onnx");
  const auto wide = onnx_import::Model::open(scratch_ / "wide.onnx");
  EXPECT_TRUE(wide->replaced_floats().empty());
  for (const onnx_import::Input &input : wide->inputs())
    EXPECT_TRUE(!is_float(input.dtype) || input.dtype == DType::f32) << input.name;
  const std::optional<double> loss = test::runtime_loss(scratch_ / "wide.onnx", golden_["inputs"]);
  if (!loss) GTEST_SKIP() << "no onnxruntime";
  EXPECT_NEAR(*loss, after, 1e-4 * after);
}

// Frozen weights keep the file's types.
TEST_P(Types, FrozenWeightsRestAsTheFileHasThem) {
  const std::string file = test::fixture("types/" + GetParam() + ".onnx");
  const std::string trained = session_->parameter_name(session_->parameter_count() - 1);
  const auto model = onnx_import::Model::open(file);
  draft::Options options;
  for (const auto &[dim, size] : golden_["dims"].items())
    options.set("dim", dim + "=" + std::to_string(size.get<int>()));
  const Json others = golden_.value("options", Json::object());
  for (const auto &[key, value] : others.items()) options.set(key, value.get<std::string>());
  options.set("frozen", "*");
  options.set("trainable", trained);
  const draft::LoadedModel loaded = draft::load_model(draft::settings_of(options), file);
  int narrow = 0;
  for (const graph::ValueId id : loaded.prepared.graph.weights()) {
    const graph::Value &value = loaded.prepared.graph.value(id);
    const bool rests_narrow = value.name != trained && size_of(model->dtype_in_file(value.name)) == 2;
    EXPECT_EQ(value.type.dtype, rests_narrow ? model->dtype_in_file(value.name) : DType::f32) << value.name;
    narrow += rests_narrow;
  }
  EXPECT_EQ(narrow > 0, !is_double());
}

// A step computes the same with frozen weights in 16 bits as with all weights in float32, and leaves the frozen ones
// as they were.
TEST_P(Types, FrozenWeightsComputeTheSame) {
  const std::string trained = session_->parameter_name(session_->parameter_count() - 1);
  Json golden = golden_;
  const auto all = test::open_family("types/" + GetParam(), golden);
  golden["options"]["frozen"] = "*";
  golden["options"]["trainable"] = trained;
  const auto frozen = test::open_family("types/" + GetParam(), golden);
  const auto values_of = [&](session::Session &session, std::size_t p, auto read) {
    std::vector<float> values(static_cast<std::size_t>(element_count(session.parameter_shape(p))));
    (session.*read)(session.parameter_name(p), values.data(), values.size());
    return values;
  };
  const std::vector<float> before = values_of(*frozen, 0, &session::Session::read_parameter);
  EXPECT_EQ(before, values_of(*all, 0, &session::Session::read_parameter));
  for (session::Session *one : {all.get(), frozen.get()}) set_inputs(*one, inputs_, 0);
  const double loss = all->evaluate();
  EXPECT_NEAR(frozen->evaluate(), loss, 1e-5 * loss);
  EXPECT_NEAR(frozen->step().loss, all->step().loss, 1e-5 * loss);
  const std::size_t last = session_->parameter_count() - 1;
  const std::vector<float> expected = values_of(*all, last, &session::Session::read_grad),
                           gradient = values_of(*frozen, last, &session::Session::read_grad);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(gradient[i], expected[i], 1e-4 * (1 + std::abs(expected[i])));
  EXPECT_EQ(values_of(*frozen, 0, &session::Session::read_parameter), before);
}

INSTANTIATE_TEST_SUITE_P(Files, Types, testing::ValuesIn(files()), [](const auto &info) {
  std::string name = info.param;
  for (char &c : name)
    if (c == '-' || c == '.') c = '_';
  return name;
});

}  // namespace
}  // namespace protrain::types_test
