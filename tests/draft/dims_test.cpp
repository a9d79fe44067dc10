// Sizes of dims that no option binds. If shapes in the model determine a dim, it is inferred, and the reason is given.
// Other dims get an assumed size.
#include "draft/dims.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "draft/check.h"
#include "draft/hostile_cases.h"
#include "session/session.h"

namespace protrain::draft::dims_test {
namespace {

using test::floats;
using test::integers;
using test::ints;
using test::Names;
using test::node;
using By = DimSize::By;

std::vector<float> zeros(std::size_t count) { return std::vector<float>(count, 0.5f); }

struct Case {
  Names x;  // dims of the input
  Names nodes, initializers;
};

std::map<std::string, DimSize> settled(const Case &c, const onnx_import::DimBindings &given = {}) {
  const test::Scratch scratch;
  test::Wire wire;
  wire.inputs = {test::value("x", test::kFloat, c.x)};
  wire.nodes = c.nodes;
  wire.initializers = c.initializers;
  wire.outputs = {test::value("y", test::kFloat, {})};
  return settle_dims(*test::open_bytes(scratch, wire.bytes()), given);
}

void expect(const DimSize &dim, std::int64_t value, By by, const std::string &reason = "") {
  EXPECT_EQ(dim.value, value) << dim.reason;
  EXPECT_EQ(dim.by, by) << dim.reason;
  EXPECT_NE(dim.reason.find(reason), std::string::npos) << dim.reason;
}

const Names kImage = {"batch", "channels", "height", "width"};

TEST(Dims, OfChannelsAreThoseOfTheFirstKernel) {
  const auto dims = settled({kImage, {node("Conv", {"x", "w"}, {"y"})}, {floats("w", {8, 3, 3, 3}, zeros(216))}});
  expect(dims.at("channels"), 3, By::inference, "Conv at make_y, where w is float32[8, 3, 3, 3]");
  expect(dims.at("batch"), 2, By::assumption);
  expect(dims.at("height"), 224, By::assumption);
  const auto groups = settled({kImage,
                               {node("Conv", {"x", "w"}, {"y"}, {test::int_attribute("group", 2)})},
                               {floats("w", {8, 3, 3, 3}, zeros(216))}});
  expect(groups.at("channels"), 6, By::inference);
}

// tf2onnx gives the batch's dim a different name in each input, here unk__1 and unk__2. Both must count as the number
// of samples. The positions p have no batch: their first dim is the sequence.
TEST(Dims, OfSamplesAreTheFirstOfInputsWithoutTheBatch) {
  const test::Scratch scratch;
  test::Wire wire;
  wire.inputs = {test::value("x", test::kFloat, {"unk__1", "sequence", "4"}),
                 test::value("z", test::kFloat, {"unk__2", "width", "4"}),
                 test::value("p", test::kFloat, {"sequence", "4"})};
  wire.nodes = {node("Add", {"x", "p"}, {"y"})};
  wire.outputs = {test::value("y", test::kFloat, {})};
  const auto dims = settle_dims(*test::open_bytes(scratch, wire.bytes()), {});
  EXPECT_EQ(dims.at("unk__1").value, 2);
  EXPECT_EQ(dims.at("unk__2").value, 2);
  EXPECT_EQ(dims.at("sequence").value, dims.at("width").value);
}

TEST(Dims, ThatAnOptionBindsStay) {
  const Case conv = {kImage, {node("Conv", {"x", "w"}, {"y"})}, {floats("w", {8, 3, 3, 3}, zeros(216))}};
  const auto dims = settled(conv, {{"channels", 5}, {"height", 32}});
  expect(dims.at("channels"), 5, By::option);
  expect(dims.at("height"), 32, By::option);
}

TEST(Dims, OfFeaturesAreTheRowsOfTheMatrix) {
  const auto dims = settled({{"batch", "time", "features"},
                             {node("MatMul", {"x", "w"}, {"m"}), node("Add", {"m", "p"}, {"y"})},
                             {floats("w", {80, 4}, zeros(320)), floats("p", {24, 4}, zeros(96))}});
  expect(dims.at("features"), 80, By::inference, "w is float32[80, 4]");
  expect(dims.at("time"), 24, By::inference, "p is float32[24, 4]");
  expect(dims.at("batch"), 2, By::assumption);
}

// The matrix has 256 rows, so the flattened features (batch, 4, h, w) must be 8 x 8. With stride 8, images of size 57
// to 64 give such features. 64 is chosen, because it is the roundest number.
TEST(Dims, OfAnImageAreThoseThatItsFeaturesMeetAMatrixWith) {
  const auto dims = settled({kImage,
                             {node("Conv", {"x", "w"}, {"c"}, {ints("strides", {8, 8})}), node("Flatten", {"c"}, {"f"}),
                              node("Gemm", {"f", "v"}, {"y"})},
                             {floats("w", {4, 3, 1, 1}, zeros(12)), floats("v", {256, 5}, zeros(1280))}});
  expect(dims.at("channels"), 3, By::inference);
  expect(dims.at("height"), 64, By::inference, "57 to 64 fit");
  expect(dims.at("width"), 64, By::inference);
}

// The table p has 36 positions, one for each of 6 x 6 patches. A patch is 16 x 16, so the image is 96 x 96.
TEST(Dims, OfAnImageAreThoseThatHaveAsManyPatchesAsPositions) {
  const auto dims = settled(
      {{"batch", "channels", "height", "width"},
       {node("Conv", {"x", "w"}, {"c"}, {ints("strides", {16, 16})}), node("Reshape", {"c", "s"}, {"r"}),
        node("Transpose", {"r"}, {"t"}, {ints("perm", {0, 2, 1})}), node("Add", {"t", "p"}, {"y"})},
       {floats("w", {4, 3, 16, 16}, zeros(3072)), integers("s", {0, 4, -1}), floats("p", {1, 36, 4}, zeros(144))}});
  expect(dims.at("height"), 96, By::inference, "p is float32[1, 36, 4]");
  expect(dims.at("width"), 96, By::inference);
}

// The stride is 2, so 99 or 100 frames match the 50 positions of p. 100 is chosen, because it is the rounder number.
TEST(Dims, OfAudioAreThoseThatHaveAsManyFramesAsPositions) {
  const auto dims =
      settled({{"batch", "mel", "frames"},
               {node("Conv", {"x", "w"}, {"c"}, {ints("strides", {2}), ints("pads", {1, 1})}),
                node("Transpose", {"c"}, {"t"}, {ints("perm", {0, 2, 1})}), node("Add", {"t", "p"}, {"y"})},
               {floats("w", {4, 80, 3}, zeros(960)), floats("p", {50, 4}, zeros(200))}});
  expect(dims.at("mel"), 80, By::inference);
  expect(dims.at("frames"), 100, By::inference, "99 to 100 fit");
}

TEST(Dims, ThatAnExportBakedInAreFound) {
  const auto dims = settled({{"batch", "sequence"}, {node("Reshape", {"x", "s"}, {"y"})}, {integers("s", {1, 4, 8})}});
  EXPECT_EQ(dims.at("batch").value * dims.at("sequence").value, 32);
}

// These files are invalid with any size of a dim. The search for a size must not overflow.
TEST(Dims, AreAssumedIfTheFileWantsSizesBeyondAllLimits) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const auto reshaped =
      settled({{"batch", "sequence"}, {node("Reshape", {"x", "s"}, {"y"})}, {integers("s", {kMost, 8})}});
  expect(reshaped.at("batch"), 2, By::assumption);
  const auto convolved = settled({kImage,
                                  {node("Conv", {"x", "w"}, {"y"}, {test::int_attribute("group", kMost)})},
                                  {floats("w", {8, 3, 3, 3}, zeros(216))}});
  expect(convolved.at("batch"), 2, By::assumption);
}

// A model that looks up positions 0 to sequence - 1 in a table of 6.
Case positions() {
  const auto scalar = [](const std::string &name, std::int64_t value) { return test::integer(name, value); };
  return {{"batch", "sequence", "4"},
          {node("Shape", {"x"}, {"s"}), node("Gather", {"s", "one"}, {"n"}), node("Range", {"zero", "n", "one"}, {"r"}),
           node("Gather", {"p", "r"}, {"e"}), node("Add", {"x", "e"}, {"y"})},
          {scalar("zero", 0), scalar("one", 1), floats("p", {6, 4}, zeros(24))}};
}

TEST(Dims, OfASequenceAreNoMoreThanItsPositions) {
  expect(settled(positions()).at("sequence"), 6, By::assumption, "p is float32[6, 4]");
}

TEST(Dims, BeyondATableOfPositionsAreRefusedBeforeAnyStep) {
  const test::Scratch scratch;
  test::Wire wire;
  wire.inputs = {test::value("x", test::kFloat, positions().x)};
  wire.nodes = positions().nodes;
  wire.initializers = positions().initializers;
  Options options;
  for (const auto &[key, value] :
       {std::pair("loss", "mse"), std::pair("dim", "batch=2"), std::pair("dim", "sequence=7")})
    options.set(key, value);
  const Error error =
      test::error_of([&] { session::Session::create(options, scratch.put("model.onnx", wire.bytes()), nullptr); });
  EXPECT_EQ(error.code, Code::arg);
  EXPECT_EQ(error.subject, "make_e");
  EXPECT_EQ(error.text,
            "index 6 is outside 0..5 of its table float32[6, 4]; if the indices are positions, a dimension such as the "
            "sequence is longer than the table");
}

// The convolution's kernel has 100 elements, but the dim `samples` is first assumed to be 16. No shape determines this
// dim, so its assumed size is doubled until the model accepts it.
TEST(Dims, AreLargerWhereTheAssumedOnesAreTooFew) {
  const auto dims = settled({{"batch", "samples"},
                             {node("Unsqueeze", {"x", "one"}, {"u"}), node("Conv", {"u", "w"}, {"y"})},
                             {integers("one", {1}), floats("w", {4, 1, 100}, zeros(400))}});
  expect(dims.at("samples"), 128, By::assumption, "Conv at make_y");
}

TEST(Dims, AreSaidByCheck) {
  const test::Scratch scratch;
  test::Wire wire;
  wire.inputs = {test::value("x", test::kFloat, {"batch", "features"})};
  Options options;
  options.set("loss", "mse");
  const auto about = nlohmann::json::parse(check_model(options, scratch.put("model.onnx", wire.bytes())));
  EXPECT_TRUE(about["trainable"]) << about["problems"];
  EXPECT_EQ(about["dims"]["features"], (nlohmann::json{{"value", 3},
                                                       {"default", true},
                                                       {"inferred", true},
                                                       {"reason", "MatMul at make_y, where w is float32[3, 4]"}}));
  EXPECT_FALSE(about["dims"]["batch"]["inferred"]);
}

// The file declares the output y as float32[8], but y's node gives (2, 4). The labels must have the node's shape.
// PyTorch's older exporter can declare such a wrong shape: the shape that a branch would give, although the branch is
// not taken.
TEST(Check, TakesTheAxesOfLabelsFromTheNodes) {
  const test::Scratch scratch;
  test::Wire wire;
  wire.outputs = {test::value("y", test::kFloat, {"8"})};
  Options options;
  for (const auto &[key, value] : {std::pair{"loss", "mse"}, {"loss_labels", "wanted"}}) options.set(key, value);
  const auto about = nlohmann::json::parse(check_model(options, scratch.put("model.onnx", wire.bytes())));
  EXPECT_EQ(about["inputs"][1]["dims"], nlohmann::json({2, 4}));
}

}  // namespace
}  // namespace protrain::draft::dims_test
