// Artifacts of onnxruntime-training: the forward part of the training model, the values of the checkpoint, and what
// the optimizer model says. tests/fixtures/make_artifacts.py made them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "fixtures.h"
#include "onnx_import/mutation.h"
#include "onnx_import/ort_checkpoint.h"
#include "onnx_import/wire.h"

namespace protrain::test::artifacts_test {
namespace {

using onnx_import::CheckpointTensor;
using onnx_import::Model;
using onnx_import::OrtCheckpoint;
using onnx_import::read_ort_checkpoint;

std::string folder(const std::string &name) { return fixture("artifacts/" + name); }

std::string bytes_of(const std::string &path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

// A copy of the artifacts "plain", for tests to damage.
struct Copy {
  Copy() { std::filesystem::copy(folder("plain"), scratch.path()); }
  std::unique_ptr<Model> open() const { return Model::open(scratch.path()); }
  Error error() const {
    return error_of([&] { open(); });
  }
  Scratch scratch;
};

std::string in_domain(const std::string &node, const std::string &domain) { return node + field(7, domain); }

OrtCheckpoint read(const std::string &bytes) {
  const auto at = reinterpret_cast<const std::byte *>(bytes.data());
  return read_ort_checkpoint(
      File::in_memory("checkpoint", std::make_shared<const std::vector<std::byte>>(at, at + bytes.size())));
}

TEST(OrtCheckpoint, HoldsParametersAndTheStateOfTheOptimizer) {
  const OrtCheckpoint found = read(bytes_of(folder("state") + "/mlp_checkpoint"));
  std::set<std::string> trained;
  for (const CheckpointTensor &tensor : found.trained) trained.insert(tensor.name);
  EXPECT_EQ(trained, (std::set<std::string>{"b1", "w2", "b2"}));
  ASSERT_EQ(found.frozen.size(), 1u);
  EXPECT_EQ(found.frozen[0].name, "w1");
  EXPECT_EQ(found.frozen[0].dims, (Dims{4, 8}));
  EXPECT_EQ(found.frozen[0].data_type, kFloat);
  EXPECT_EQ(found.frozen[0].bytes, 4u * 8 * 4);
  EXPECT_EQ(found.steps, 3);
  EXPECT_EQ(found.moments.at("w2").size(), 2u);
}

// Reads bytes as a checkpoint. The result must be tensors that lie in the file or beside it, or one of the errors for
// bad files.
void expect_survived(const std::string &bytes) {
  try {
    const OrtCheckpoint found = read(bytes);
    for (const auto *tensors : {&found.trained, &found.frozen})
      for (const CheckpointTensor &tensor : *tensors)
        EXPECT_TRUE(tensor.beside || tensor.offset + tensor.bytes <= bytes.size());
  } catch (const Error &error) {
    const bool foreseen = error.code == Code::format || error.code == Code::limit || error.code == Code::unsupported;
    EXPECT_TRUE(foreseen) << static_cast<int>(error.code) << " " << error.text;
  }
}

TEST(OrtCheckpoint, IsSurvivedCutShortAndWithAnyByteChanged) {
  const std::string whole = bytes_of(folder("state") + "/mlp_checkpoint");
  for (std::size_t size = 0; size < whole.size(); ++size) expect_survived(whole.substr(0, size));
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (const unsigned char value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(value);
      expect_survived(changed);
    }
  Mutation dice(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string changed = whole;
    for (std::size_t n = 1 + dice.below(6); n > 0; --n)
      changed[dice.below(changed.size())] = static_cast<char>(dice.below(256));
    expect_survived(changed);
  }
}

TEST(OrtCheckpoint, OfOtherKindsIsNamed) {
  EXPECT_EQ(error_of([] { read(""); }).code, Code::format);
  EXPECT_EQ(error_of([] { read("a text that is long enough"); }).code, Code::format);
  std::string endless = bytes_of(folder("plain") + "/checkpoint");
  endless[0] = '\xff', endless[1] = '\xff', endless[2] = '\xff', endless[3] = '\xff';
  EXPECT_EQ(error_of([&] { read(endless); }).code, Code::format);
}

TEST(Artifacts, GiveTheForwardPartOfTheTrainingModel) {
  const auto model = Model::open(folder("text"));
  std::vector<std::string> inputs;
  for (const onnx_import::Input &input : model->inputs()) inputs.push_back(input.name);
  EXPECT_EQ(inputs, (Names{"tokens", "labels"}));
  ASSERT_EQ(model->outputs().size(), 1u);
  EXPECT_EQ(model->outputs()[0].name, "loss");
  const graph::Graph graph = model->graph({{"batch", 2}});
  for (const graph::Node &node : graph.nodes()) {
    EXPECT_EQ(node.op.find("Grad"), std::string::npos);
    EXPECT_EQ(node.op.find("Accumulator"), std::string::npos);
  }
  const auto &declared = model->declared();
  const std::set<std::string> trained(declared.updated->begin(), declared.updated->end());
  EXPECT_EQ(trained,
            (std::set<std::string>{"table", "position", "norm.weight", "norm.bias", "query", "key", "value", "head"}));
  EXPECT_EQ(declared.training->loss, "loss");
  const std::map<std::string, std::string> options(declared.training->options.begin(),
                                                   declared.training->options.end());
  EXPECT_EQ(options, (std::map<std::string, std::string>{{"optimizer", "adamw"},
                                                         {"beta1", "0.9"},
                                                         {"beta2", "0.999"},
                                                         {"epsilon", "1e-06"},
                                                         {"weight_decay", "0"},
                                                         {"correction", "rate"},
                                                         {"decay_order", "after"}}));
  EXPECT_EQ(model->load("query").shape(), (Shape{8, 8}));
}

TEST(Artifacts, WithPrefixHaveTheMomentsOfTheirCheckpoint) {
  const auto model = Model::open(folder("state"));
  EXPECT_EQ(model->declared().training->steps, 3);
  const Names moments = model->declared().training->moments.at("w2");
  EXPECT_EQ(moments, (Names{"w2/momentum0", "w2/momentum1"}));
  const graph::Array squares = model->load(moments[1]);
  EXPECT_EQ(squares.shape(), (Shape{8, 3}));
  for (const double square : squares.doubles()) EXPECT_GE(square, 0);
  EXPECT_EQ(Model::open(folder("state") + "/mlp_training_model.onnx")->declared().training->moments.size(), 3u);
}

TEST(Artifacts, WithoutACheckpointNameIt) {
  Copy copy;
  std::filesystem::remove(copy.scratch / "checkpoint");
  EXPECT_EQ(copy.error().code, Code::io);
  EXPECT_NE((copy.error().subject + copy.error().text).find("checkpoint"), std::string::npos);
  std::filesystem::create_symlink("/etc/passwd", copy.scratch / "checkpoint");
  EXPECT_EQ(copy.error().code, Code::path);
}

TEST(Artifacts, OfAFolderAreOneTrainingModel) {
  Copy copy;
  std::filesystem::copy(copy.scratch / "training_model.onnx", copy.scratch / "b_training_model.onnx");
  EXPECT_EQ(copy.error().code, Code::io);
  const Scratch empty;
  EXPECT_EQ(error_of([&] { Model::open(empty.path()); }).code, Code::io);
}

TEST(Artifacts, MayLackTheModelsThatTrainingDoesNotNeed) {
  Copy copy;
  std::filesystem::remove(copy.scratch / "optimizer_model.onnx");
  std::filesystem::remove(copy.scratch / "eval_model.onnx");
  const auto model = copy.open();
  EXPECT_TRUE(model->declared().training->options.empty());
  const Error error = error_of([&] { model->save(copy.scratch / "out.onnx", [](auto &&...) { return false; }); });
  EXPECT_EQ(error.code, Code::unsupported);
}

TEST(Artifacts, WithAnotherOptimizerNameItsNode) {
  Copy copy;
  Wire wire;
  wire.opset += field(8, field(1, "com.microsoft") + field(2, 1));
  wire.nodes = {in_domain(node("LambOptimizer", {"x"}, {"y"}), "com.microsoft")};
  copy.scratch.put("optimizer_model.onnx", wire.bytes());
  const auto refusal = copy.open()->declared().training->refusal;
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->code, Code::unsupported);
  EXPECT_EQ(refusal->subject, "make_y");
}

TEST(Artifacts, AreNotWrittenOver) {
  Copy copy;
  const auto model = copy.open();
  for (const char *name : {"eval_model.onnx", "checkpoint", "training_model.onnx", "optimizer_model.onnx"})
    EXPECT_EQ(error_of([&] { model->save(copy.scratch / name, [](auto &&...) { return false; }); }).code, Code::path)
        << name;
}

TEST(Artifacts, SurviveChangesOfTheTrainingModel) {
  Copy copy;
  const std::string whole = bytes_of(folder("plain") + "/training_model.onnx");
  int opened = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    copy.scratch.put("training_model.onnx", Mutation(seed).of(whole));
    const Error error = copy.error();
    EXPECT_NE(error.code, Code::internal) << error.subject << ": " << error.text;
    opened += error.code == Code::ok ? 1 : 0;
  }
  EXPECT_GT(opened, 0);
}

}  // namespace
}  // namespace protrain::test::artifacts_test
