// The fixtures' models, exported in two more ways: with PyTorch's own graph optimizer, or by its older exporter. These
// ways transpose and rename weights. fixtures/restored has the files without weights, so the test takes the weights
// from other fixtures.
#include <gtest/gtest.h>

#include "onnx_import/model.h"
#include "session/session.h"
#include "train/command.h"

namespace protrain::restored_test {
namespace {

namespace fs = std::filesystem;
using test::Json;

Json recipes() {
  std::ifstream file(test::fixture("restored/restored.json"));
  return Json::parse(file);
}

std::vector<std::string> names() {
  const Json known = recipes();
  std::vector<std::string> all;
  for (const auto &[name, recipe] : known.items()) all.push_back(name);
  return all;
}

void write_transposed(std::ofstream &out, const graph::Array &matrix) {
  const std::int64_t rows = matrix.shape().at(0), columns = matrix.shape().at(1);
  for (std::int64_t j = 0; j < columns; ++j)
    for (std::int64_t i = 0; i < rows; ++i)
      out.write(reinterpret_cast<const char *>(matrix.bytes()) + (i * columns + j) * 4, 4);
}

class Restored : public testing::TestWithParam<std::string> {
 protected:
  Restored() : folder_(fs::temp_directory_path() / ("protrain-restored-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    const Json recipe = recipes()[GetParam()];
    fs::copy_file(test::fixture("restored/" + GetParam() + ".onnx"), model(), fs::copy_options::overwrite_existing);
    const auto base = onnx_import::Model::open(test::fixture(recipe["base"].get<std::string>() + ".onnx"));
    std::ofstream weights(folder_ / (GetParam() + ".weights"), std::ios::binary);
    for (const Json &tensor : recipe["tensors"]) {
      const graph::Array array = base->load(tensor[0]).densified();
      if (tensor[1])
        write_transposed(weights, array);
      else
        weights.write(reinterpret_cast<const char *>(array.bytes()),
                      static_cast<std::streamsize>(array.stored_bytes()));
    }
  }
  ~Restored() override { fs::remove_all(folder_); }

  std::string model() const { return folder_ / (GetParam() + ".onnx"); }
  Json expected() const {
    const std::string base = recipes()[GetParam()]["base"];
    return test::golden(test::family_of(base));
  }

 private:
  const fs::path folder_;
};

TEST_P(Restored, CommandFollowsTheLossesOfTenSteps) { test::expect_losses(test::train(model()), expected()); }

TEST_P(Restored, FirstGradientsHaveTheNormsOfPyTorch) {
  draft::Options options;
  options.set("keep_gradients", "*");
  for (const char *dim : {"batch=2", "sequence=32"}) options.set("dim", dim);
  const auto session = session::Session::create(options, model(), nullptr);
  for (const char *name : {"input_ids", "labels"})
    session->set_input(name, DType::i64, {test::kBatch, test::kSequence},
                       test::load_tokens(std::string(name) + ".npy").data());
  session->step();
  test::expect_norms(test::sorted_gradient_norms(*session), expected());
}

// The operators of a file, in its order.
std::vector<std::string> operators_of(const std::string &path) {
  const auto model = onnx_import::Model::open(path);
  onnx_import::DimBindings dims;
  for (const std::string &dim : model->symbolic_dims()) dims[dim] = dim == "batch" ? test::kBatch : test::kSequence;
  std::vector<std::string> found;
  const graph::Graph graph = model->graph(dims);
  for (const graph::Node &node : graph.nodes()) found.push_back(node.op);
  return found;
}

TEST_P(Restored, ExportHasTheFilesOwnOperators) {
  draft::Options options;
  for (const char *dim : {"batch=2", "sequence=32"}) options.set("dim", dim);
  const auto session = session::Session::create(options, model(), nullptr);
  const std::string exported = model() + ".exported";
  session->export_model(exported);
  EXPECT_EQ(operators_of(exported), operators_of(model()));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Restored, testing::ValuesIn(names()), [](const auto &info) {
  std::string name = info.param;
  for (char &c : name)
    if (c == '-') c = '_';
  return name;
});

}  // namespace
}  // namespace protrain::restored_test
