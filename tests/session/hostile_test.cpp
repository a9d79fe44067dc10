// Well-formed graphs that are malicious or meaningless. Each must be refused with its code and the node's name, before
// much memory is taken. Malformed files are in tests/onnx_import/hostile_test.cpp.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "draft/check.h"
#include "draft/hostile_cases.h"
#include "session/session.h"

namespace protrain::session::hostile_test {
namespace {

using test::HostileGraph;
using test::node;
using test::Wire;
using Json = nlohmann::json;

Json check(const Wire &wire) {
  const test::Scratch scratch;
  draft::Options options;
  options.set("loss", "mse");
  return Json::parse(draft::check_model(options, scratch.put("model.onnx", wire.bytes())));
}

class Hostile : public testing::TestWithParam<HostileGraph> {};

TEST_P(Hostile, IsRefusedByName) {
  Wire wire;
  GetParam().change(wire);
  const Json about = check(wire);
  EXPECT_FALSE(about["trainable"]);
  ASSERT_EQ(about["problems"].size(), 1u) << about;
  const Json &problem = about["problems"][0];
  EXPECT_EQ(problem["code"], static_cast<int>(GetParam().code)) << problem;
  EXPECT_EQ(problem["subject"], GetParam().subject) << problem;
  EXPECT_NE(problem["text"].get<std::string>().find(GetParam().text), std::string::npos) << problem;
  EXPECT_LT(problem["text"].get<std::string>().size(), 600u);
}

const auto kCaseName = [](const testing::TestParamInfo<HostileGraph> &info) { return std::string(info.param.name); };
INSTANTIATE_TEST_SUITE_P(Shape, Hostile, testing::ValuesIn(test::shape_cases()), kCaseName);
INSTANTIATE_TEST_SUITE_P(Channel, Hostile, testing::ValuesIn(test::channel_cases()), kCaseName);
INSTANTIATE_TEST_SUITE_P(Class, Hostile, testing::ValuesIn(test::class_cases()), kCaseName);
INSTANTIATE_TEST_SUITE_P(Window, Hostile, testing::ValuesIn(test::window_cases()), kCaseName);
INSTANTIATE_TEST_SUITE_P(Attribute, Hostile, testing::ValuesIn(test::attribute_cases()), kCaseName);
INSTANTIATE_TEST_SUITE_P(Constant, Hostile, testing::ValuesIn(test::constant_cases()), kCaseName);
INSTANTIATE_TEST_SUITE_P(Control, Hostile, testing::ValuesIn(test::control_cases()), kCaseName);
INSTANTIATE_TEST_SUITE_P(Meaning, Hostile, testing::ValuesIn(test::meaning_cases()), kCaseName);

// ONNX's LayerNormalization has two more outputs, which the library does not support. A model that has them is accepted
// as long as nothing reads them.
TEST(UnreadOutputs, AreNoMatter) {
  Wire wire;
  const auto normalized = [&](const test::Names &more) {
    Wire changed;
    test::after({node("LayerNormalization", {"y", "v"}, {"n", "mean", "deviation"})},
                {test::floats("v", {4}, {1, 2, 3, 4})})(changed);
    changed.nodes.push_back(node("Add", more, {"z"}));
    return check(changed);
  };
  EXPECT_TRUE(normalized({"n", "y"})["trainable"]) << normalized({"n", "y"})["problems"];
  const Json read = normalized({"n", "mean"});
  ASSERT_EQ(read["problems"].size(), 1u);
  EXPECT_EQ(read["problems"][0]["code"], static_cast<int>(Code::unsupported)) << read["problems"];
  EXPECT_EQ(read["problems"][0]["subject"], "make_n");
}

std::vector<std::string> keys_of(const Json &about) {
  std::vector<std::string> keys;
  for (const auto &[key, value] : about.items()) keys.push_back(key);
  return keys;
}

TEST(Check, HasAllKeysWhereverItGivesUp) {
  const std::vector<std::string> keys = keys_of(check(Wire()));
  Wire unknown, branch, foreign;
  unknown.nodes.push_back(node("Wavelet", {"y"}, {"z"}));
  unknown.outputs = {test::value("z", test::kFloat, {})};
  branch.inputs.push_back(test::value("c", test::kBool, {}));
  branch.nodes.push_back(node("If", {"c"}, {"z"}, test::branches("y", "x")));
  branch.outputs = {test::value("z", test::kFloat, {})};
  foreign.tail = test::field(20, "");  // training_info, ONNX's own training graph
  for (const Wire &wire : {unknown, branch, foreign}) {
    const Json about = check(wire);
    EXPECT_FALSE(about["trainable"]);
    EXPECT_FALSE(about["problems"].empty());
    EXPECT_EQ(keys_of(about), keys);
  }
}

TEST(Check, NamesControlFlowBesideWhateverElseIsWrong) {
  Wire wire;
  wire.inputs.push_back(test::value("c", test::kBool, {}));
  wire.nodes = {node("MatMul", {"x", "w"}, {"m"}),
                node("Wavelet", {"m"}, {"v"}),
                node("Wavelet", {"v"}, {"u"}),
                node("Exp", {"u"}, {"e"}),
                node("Shape", {"e"}, {"s"}),
                node("Reshape", {"m", "s"}, {"r"}),
                node("If", {"c"}, {"i"}, test::branches("m", "w")),
                node("Add", {"r", "i"}, {"y"})};
  const Json about = check(wire);
  ASSERT_EQ(about["problems"].size(), 2u) << about["problems"];
  EXPECT_EQ(about["problems"][0]["text"], "Wavelet is unknown (make_v, make_u)");
  EXPECT_EQ(about["problems"][1]["nodes"], (Json{"make_i"}));
  EXPECT_EQ(about["problems"][1]["text"], "If: the condition is the input c; bind it with constant=c=VALUE (make_i)");
  EXPECT_EQ(about["unseen_nodes"], 4);  // Exp, Shape, Reshape, Add
}

// A model that is larger than any machine must be refused for the budget, before memory is taken.
TEST(Planets, AreOverEveryBudget) {
  const test::Scratch scratch;
  Wire wire;
  test::after({node("Expand", {"y", "s"}, {"z"})}, {test::integers("s", {std::int64_t{1} << 50, 1, 1})})(wire);
  draft::Options options;
  options.set("loss", "mse");
  const std::string model = scratch.put("model.onnx", wire.bytes());
  const Error error = test::error_of([&] { Session::create(options, model, nullptr); });
  EXPECT_EQ(error.code, Code::budget) << error.text;
}

// A model with many nodes is accepted. The time to read it grows only linearly.
TEST(LongModels, AreRead) {
  Wire wire;
  wire.initializers.push_back(test::floats("one", {1, 4}, {1, 1, 1, 1}));
  std::string last = "y";
  for (int i = 0; i < 3000; ++i) {
    const std::string next = i == 2999 ? "z" : "n" + std::to_string(i);
    wire.nodes.push_back(node("Tanh", {last}, {next}));
    last = next;
  }
  wire.outputs = {test::value("z", test::kFloat, {})};
  EXPECT_TRUE(check(wire)["trainable"]);
}

}  // namespace
}  // namespace protrain::session::hostile_test
