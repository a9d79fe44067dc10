// Saving: the graph is unchanged, weights are replaced, files are complete, and a file that is still read is not
// overwritten.
#include <algorithm>
#include <chrono>
#include <filesystem>

#include "fixtures.h"
#include "onnx_import/wire.h"

namespace protrain::onnx_import::save_test {
namespace {

using test::field;
using test::floats;
using test::node;
using test::Scratch;
using test::Wire;

const Model::Weights kUntouched = [](const std::string &, std::byte *) { return false; };

void expect_same_weights(const Model &a, const Model &b) {
  std::size_t compared = 0;
  const graph::Graph graph = a.graph({});
  for (const graph::Value &value : graph.values()) {
    if (value.origin != graph::Origin::initializer) continue;
    EXPECT_TRUE(a.load(value.name).same_as(b.load(value.name))) << value.name;
    ++compared;
  }
  EXPECT_GT(compared, 0u);
}

// A model with a large weight w, a small weight b and a large constant c. Large means more bytes than kPayloadBytes.
Wire mixed() {
  std::vector<float> large(3 * 400), constant(2 * 400);
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<float>(i);
  for (std::size_t i = 0; i < constant.size(); ++i) constant[i] = -static_cast<float>(i);
  Wire wire;
  wire.initializers = {floats("w", {3, 400}, large) + field(12, "kept text"), floats("b", {1}, {7})};
  wire.nodes = {node("Constant", {}, {"c"}, {test::tensor_attribute("value", floats("", {2, 400}, constant))}),
                node("MatMul", {"x", "w"}, {"z"}), node("Add", {"z", "b"}, {"s"}), node("Add", {"s", "c"}, {"y"})};
  wire.tail = field(14, test::pair("author", "somebody")) + field(3, "1.2");
  return wire;
}

class Save : public testing::Test {
 protected:
  Scratch scratch_;
};

TEST_F(Save, UntouchedModelKeepsGraphAndWeights) {
  for (const char *name : {"gpt2-static-opset18.onnx", "mistral-static-opset18.onnx"}) {
    const auto model = Model::open(test::fixture(name));
    model->save(scratch_ / "out.onnx", kUntouched);
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "out.onnx.data"));
    const auto again = Model::open(scratch_ / "out.onnx");
    EXPECT_EQ(again->graph({}).print(), model->graph({}).print());
    expect_same_weights(*model, *again);
  }
}

// An initializer that was split for its two readers is saved as two initializers, with values in the model file or in
// another file.
TEST_F(Save, SplitInitializersAreTwo) {
  Wire wire = mixed();
  wire.nodes[3] = node("Add", {"s", "c"}, {"t"});
  wire.nodes.push_back(node("Add", {"t", "b"}, {"y"}));
  wire.inputs.push_back(test::value("b", test::kFloat, {"1"}));  // IR 3 lists initializers as inputs
  const auto model = test::open_bytes(scratch_, wire.bytes());
  const Model::Weights weights = [](const std::string &name, std::byte *out) {
    const float value = name == "b" ? 5 : 6;
    if (name == "b" || name == "b/2") std::memcpy(out, &value, sizeof value);
    return name == "b" || name == "b/2";
  };
  const std::vector<graph::Split> splits = {{.name = "b/2", .original = "b", .readers = {{"y", 1}}}};
  for (const std::uint64_t inline_bytes : {kInlineBytes, std::uint64_t{0}}) {
    model->save(scratch_ / "out.onnx", weights, {.inline_bytes = inline_bytes, .splits = splits});
    const auto again = Model::open(scratch_ / "out.onnx");
    EXPECT_EQ(again->load("b").doubles(), std::vector<double>{5});
    EXPECT_EQ(again->load("b/2").doubles(), std::vector<double>{6});
    EXPECT_EQ(again->inputs().size(), 1u);
    const graph::Graph graph = again->graph({});
    EXPECT_EQ(graph.value(graph.nodes().back().inputs[1]).name, "b/2");
    EXPECT_EQ(graph.value(graph.nodes()[1].inputs[1]).name, "b");
    model->save(scratch_ / "same.onnx", kUntouched,
                {.inline_bytes = inline_bytes, .splits = splits});  // with the file's own values
    EXPECT_EQ(Model::open(scratch_ / "same.onnx")->load("b/2").doubles(), std::vector<double>{7});
  }
  EXPECT_EQ(test::error_of([&] {
              model->save(scratch_ / "out.onnx", weights, {.splits = {{"c/2", "c", {}}}});
            }).code,
            Code::internal);
}

// PyTorch's older exporter stores equal initializers once, and adds an Identity node for each further name. If such an
// initializer is split, a node that read the Identity must read the new initializer instead.
TEST_F(Save, ReadersOfIdentitiesReadTheSplitInitializerItself) {
  Wire wire = mixed();
  wire.nodes[3] = node("Add", {"s", "c"}, {"t"});
  wire.nodes.push_back(node("Identity", {"b"}, {"again"}));
  wire.nodes.push_back(node("Add", {"t", "again"}, {"y"}));
  const auto model = test::open_bytes(scratch_, wire.bytes());
  model->save(scratch_ / "out.onnx", kUntouched, {.splits = {{.name = "b/2", .original = "b", .readers = {{"y", 1}}}}});
  const graph::Graph graph = Model::open(scratch_ / "out.onnx")->graph({});
  EXPECT_EQ(graph.value(graph.nodes().back().inputs[1]).name, "b/2");
}

// The Identity's output has the name of the tensor that the exporter merged.
TEST_F(Save, ASplitInitializerTakesThePlaceOfAnIdentityOfItsName) {
  Wire wire = mixed();
  wire.nodes[3] = node("Add", {"s", "c"}, {"t"});
  wire.nodes.push_back(node("Identity", {"b"}, {"other.bias"}));
  wire.nodes.push_back(node("Add", {"t", "other.bias"}, {"y"}));
  const auto model = test::open_bytes(scratch_, wire.bytes());
  model->save(scratch_ / "out.onnx", kUntouched, {.splits = {{.name = "other.bias", .original = "b", .readers = {}}}});
  const auto again = Model::open(scratch_ / "out.onnx");
  EXPECT_EQ(again->load("other.bias").doubles(), std::vector<double>{7});
  const graph::Graph graph = again->graph({});
  EXPECT_EQ(graph.nodes().size(), 4u);
  EXPECT_EQ(graph.value(graph.nodes().back().inputs[1]).origin, graph::Origin::initializer);
}

TEST_F(Save, WeightsOfAllSizesAreReplaced) {
  const auto model = test::open_bytes(scratch_, mixed().bytes());
  for (const std::uint64_t inline_bytes : {kInlineBytes, std::uint64_t{0}}) {
    const Model::Weights halves = [&](const std::string &name, std::byte *out) {
      auto *values = reinterpret_cast<float *>(out);
      std::fill(values, values + (name == "w" ? 1200 : 1), name == "w" ? 0.5f : 0.25f);
      return true;
    };
    model->save(scratch_ / "out.onnx", halves, {.inline_bytes = inline_bytes});
    const auto again = Model::open(scratch_ / "out.onnx");
    EXPECT_EQ(again->load("w").doubles(), std::vector<double>(1200, 0.5));
    EXPECT_EQ(again->load("b").doubles(), std::vector<double>{0.25});
    const graph::Graph graph = again->graph({});
    EXPECT_EQ(graph.value(graph.find("c")).array.doubles()[799], -799);
  }
}

TEST_F(Save, WhatThisLibraryDoesNotReadIsKept) {
  const auto model = test::open_bytes(scratch_, mixed().bytes());
  model->save(scratch_ / "out.onnx", kUntouched);
  const std::string bytes = scratch_.get("out.onnx");
  EXPECT_NE(bytes.find("kept text"), std::string::npos);
  EXPECT_NE(bytes.find(field(14, test::pair("author", "somebody"))), std::string::npos);
  EXPECT_NE(bytes.find(field(3, "1.2")), std::string::npos);
}

TEST_F(Save, LargeModelsPutTheirWeightsBesideThem) {
  const auto model = test::open_bytes(scratch_, mixed().bytes());
  model->save(scratch_ / "out.onnx", kUntouched, {.inline_bytes = 100});
  EXPECT_EQ(std::filesystem::file_size(scratch_ / "out.onnx.data"), 4800u);  // b and c are in the model file
  const auto again = Model::open(scratch_ / "out.onnx");
  expect_same_weights(*model, *again);
  EXPECT_EQ(again->graph({}).print(), model->graph({}).print());
}

TEST_F(Save, ExternalTensorsAreAlignedToPages) {
  Wire wire = mixed();
  wire.initializers.push_back(wire.initializers[0]);
  wire.initializers[2].replace(wire.initializers[2].find(field(8, "w")), 3, field(8, "v"));
  wire.nodes.push_back(node("Add", {"w", "v"}, {"u"}));
  test::open_bytes(scratch_, wire.bytes())->save(scratch_ / "out.onnx", kUntouched, {.inline_bytes = 0});
  EXPECT_EQ(std::filesystem::file_size(scratch_ / "out.onnx.data"), 8192u + 4800);
  EXPECT_NE(scratch_.get("out.onnx").find(test::pair("offset", "8192")), std::string::npos);
}

TEST_F(Save, ModelWithExternalDataStaysOne) {
  const auto model = test::open_bytes(scratch_, mixed().bytes());
  model->save(scratch_ / "one.onnx", kUntouched, {.inline_bytes = 0});
  const auto one = Model::open(scratch_ / "one.onnx");
  one->save(scratch_ / "two.onnx", kUntouched);
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "two.onnx.data"));
  std::filesystem::remove(scratch_ / "one.onnx.data");
  expect_same_weights(*model, *Model::open(scratch_ / "two.onnx"));
}

TEST_F(Save, NeverWritesOverFilesTheModelReads) {
  const auto model = test::open_bytes(scratch_, mixed().bytes());
  model->save(scratch_ / "one.onnx", kUntouched, {.inline_bytes = 0});
  const auto one = Model::open(scratch_ / "one.onnx");
  std::filesystem::create_symlink("one.onnx.data", scratch_ / "alias");
  std::filesystem::create_hard_link(scratch_ / "one.onnx.data", scratch_ / "other.onnx.data");
  for (const char *target : {"one.onnx", "one.onnx.data", "alias", "other.onnx"}) {
    const Error error = test::error_of([&] { one->save(scratch_ / target, kUntouched); });
    EXPECT_EQ(error.code, Code::path) << target;
  }
  expect_same_weights(*model, *one);
}

TEST_F(Save, RefusesToCopyFromAFileThatWasChangedAfterItWasRead) {
  const auto model = test::open_bytes(scratch_, mixed().bytes());
  model->save(scratch_ / "one.onnx", kUntouched, {.inline_bytes = 0});
  for (const char *changed : {"one.onnx", "one.onnx.data"}) {
    const auto one = Model::open(scratch_ / "one.onnx");
    expect_same_weights(*model, *one);
    const std::string path = scratch_ / changed;
    std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::seconds(1));
    const Error error = test::error_of([&] { one->save(scratch_ / "two.onnx", kUntouched); });
    EXPECT_EQ(error.code, Code::mismatch) << error.text;
    EXPECT_TRUE(error.subject.ends_with(changed)) << error.subject;
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "two.onnx"));
  }
}

// onnx.save_model(..., convert_attribute=True) moves the tensors of attributes to another file, too. An export can lie
// in another folder than that file, so the export must hold these tensors itself.
TEST_F(Save, ModelHoldsTheTensorsOfItsAttributes) {
  Wire wire = mixed();
  const std::string outside = test::tensor("", test::kFloat, {1}, test::external("fill.data", "0", "4"));
  wire.nodes[0] = node("ConstantOfShape", {"dims"}, {"c"}, {test::tensor_attribute("value", outside)});
  wire.initializers.push_back(
      test::tensor("dims", test::kInt64, {2}, test::raw_data(test::raw(std::vector<std::int64_t>{2, 400}))));
  scratch_.put("fill.data", test::raw(std::vector<float>{2.5}));
  const auto model = test::open_bytes(scratch_, wire.bytes());
  std::filesystem::create_directory(scratch_ / "elsewhere");
  model->save(scratch_ / "elsewhere/out.onnx", kUntouched);
  const auto again = Model::open(scratch_ / "elsewhere/out.onnx");
  EXPECT_EQ(again->graph({}).print(), model->graph({}).print());
  const Error error = test::error_of([&] { model->save(scratch_ / "fill.data", kUntouched); });
  EXPECT_EQ(error.code, Code::path) << error.text;
}

TEST_F(Save, FailureLeavesTheOldFileAndNothingElse) {
  const auto model = test::open_bytes(scratch_, mixed().bytes());
  scratch_.put("out.onnx", "old");
  const Model::Weights broken = [](const std::string &name, std::byte *) -> bool {
    fail(Code::nonfinite, name, "stop here");
  };
  EXPECT_EQ(test::error_of([&] { model->save(scratch_ / "out.onnx", broken); }).code, Code::nonfinite);
  EXPECT_EQ(scratch_.get("out.onnx"), "old");
  const auto files = std::filesystem::directory_iterator(scratch_.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 2);
}

TEST_F(Save, FailureOfTheModelLeavesTheOldDataToo) {
  const auto model = test::open_bytes(scratch_, mixed().bytes());
  scratch_.put("out.onnx.data", "old");
  std::filesystem::create_directory(scratch_ / "out.onnx");
  EXPECT_EQ(test::error_of([&] { model->save(scratch_ / "out.onnx", kUntouched, {.inline_bytes = 0}); }).code,
            Code::path);
  EXPECT_EQ(scratch_.get("out.onnx.data"), "old");
  const auto files = std::filesystem::directory_iterator(scratch_.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 3);
}

// Saving writes the weight w to the data file, and then copies the constant c to the model file. While w is written,
// the file from which the model was opened changes, so the copy of c fails.
TEST_F(Save, FailureAmidTheModelLeavesTheOldDataToo) {
  const std::string path = scratch_.put("model.onnx", mixed().bytes());
  const auto model = Model::open(path);
  scratch_.put("out.onnx.data", "old");
  const Model::Weights weights = [&](const std::string &name, std::byte *out) {
    if (name != "w") return false;
    std::fill_n(out, 4800, std::byte{0});
    std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::seconds(1));
    return true;
  };
  EXPECT_EQ(test::error_of([&] { model->save(scratch_ / "out.onnx", weights, {.inline_bytes = 0}); }).code,
            Code::mismatch);
  EXPECT_EQ(scratch_.get("out.onnx.data"), "old");
}

}  // namespace
}  // namespace protrain::onnx_import::save_test
