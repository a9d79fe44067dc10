// The option parameters_from: a list of parameters in a file replaces the model's own. A file that is no list is
// refused.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "draft/check.h"
#include "errors.h"
#include "onnx_import/wire.h"
#include "scratch.h"

namespace protrain::draft::parameters_from_test {
namespace {

using namespace protrain::test;
using Json = nlohmann::json;

class ParametersFrom : public testing::Test {
 protected:
  // y = x * w + b
  ParametersFrom() {
    Wire wire;
    wire.nodes = {node("MatMul", {"x", "m.w"}, {"z"}), node("Add", {"z", "m.b"}, {"y"})};
    wire.initializers = {floats("m.w", {3, 4}, {.1f, -.2f, .3f, .5f, .4f, -.6f, .7f, .2f, -.3f, .9f, .8f, -.1f}),
                         floats("m.b", {4}, {.3f, .1f, -.2f, .4f})};
    wire.tail = field(14, pair("protrain.parameters", "m.w"));
    model_ = scratch_.put("model.onnx", wire.bytes());
  }
  Json check(const std::string &list = "") {
    Options options;
    options.set("loss", "mse");
    if (!list.empty()) options.set("parameters_from", list);
    return Json::parse(check_model(options, model_));
  }
  std::vector<std::string> trained(const std::string &list = "") {
    std::vector<std::string> names;
    const Json about = check(list);
    for (const Json &row : about["parameters"])
      if (!row["frozen"].get<bool>()) names.push_back(row["name"]);
    return names;
  }
  std::string safetensors(const std::string &header) {
    std::string length(8, '\0');
    for (std::size_t i = 0, rest = header.size(); rest > 0; ++i, rest >>= 8) length[i] = static_cast<char>(rest & 0xff);
    return scratch_.put("list.safetensors", length + header);
  }
  Code refusal(const std::string &list) {
    try {
      const Json problems = check(list)["problems"];
      return problems.empty() ? Code::ok : static_cast<Code>(problems[0]["code"].get<int>());
    } catch (const Error &error) {
      return error.code;
    }
  }

  Scratch scratch_;
  std::string model_;
};

using Names = std::vector<std::string>;

TEST_F(ParametersFrom, TheModelItselfWithoutTheOption) { EXPECT_EQ(trained(), Names{"m.w"}); }

TEST_F(ParametersFrom, NamesOneALine) {
  EXPECT_EQ(trained(scratch_.put("names.txt", "m.b\n")), Names{"m.b"});
  const Json about = check(scratch_.put("names.txt", "m.b \r\n\nm.gone"));
  EXPECT_EQ(about["unmatched"], Json::array({"m.gone"}));
  EXPECT_TRUE(about["doubtful"].empty()) << "both have names of their own";
}

TEST_F(ParametersFrom, TheHeaderOfASafetensorsFile) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"m.b":{"dtype":"F16","shape":[4],"data_offsets":[0,8]}})";
  EXPECT_EQ(trained(safetensors(header)), Names{"m.b"}) << "its values are not there and need not be";
}

TEST_F(ParametersFrom, RefusesWhatIsNoList) {
  EXPECT_EQ(refusal(scratch_.put("names.txt", "\n\n")), Code::format);
  EXPECT_EQ(refusal(scratch_.put("names.txt", "w\nb\n")), Code::arg) << "none of them is there";
  EXPECT_EQ(refusal(scratch_ / "none.txt"), Code::io);
  EXPECT_EQ(refusal(safetensors("{\"m.b\":{},\"m.b\":{}}")), Code::format);
  EXPECT_EQ(refusal(safetensors("{" + std::string(100'000, '['))), Code::format);
  EXPECT_EQ(refusal(scratch_.put("cut.safetensors", std::string("\xff\xff\xff\0\0\0\0\0{", 9))), Code::format);
}

// An option can turn an initializer into a parameter. No option can do this with the value of a Constant node, so the
// model must be exported again.
TEST(Doubts, SayWhatSettlesThem) {
  Wire wire;
  const std::vector<float> folded = {.1f, -.2f, .3f, .5f, .4f, -.6f, .7f, .2f, -.3f, .9f, .8f, -.1f};
  wire.nodes = {node("Constant", {}, {"folded"}, {tensor_attribute("value", floats("", {3, 4}, folded))}),
                node("MatMul", {"x", "folded"}, {"z"}), node("Mul", {"z", "m.scale"}, {"y"})};
  wire.initializers = {floats("m.scale", {}, {.5f})};
  const Scratch scratch;
  Options options;
  options.set("loss", "mse");
  const std::string model = scratch.put("model.onnx", wire.bytes());
  std::map<std::string, std::string> settled;
  const Json about = Json::parse(check_model(options, model));
  for (const Json &row : about["doubtful"]) settled[row["name"]] = row["settled_by"];
  EXPECT_EQ(settled, (std::map<std::string, std::string>{{"folded", "export"}, {"m.scale", "option"}}));
  options.set("trainable", "m.scale");
  EXPECT_EQ(Json::parse(check_model(options, model))["doubtful"].size(), 1U);
  options.set("trainable", "folded");
  const Json problems = Json::parse(check_model(options, model))["problems"];
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0]["code"], static_cast<int>(Code::arg));
}

}  // namespace
}  // namespace protrain::draft::parameters_from_test
