// The options about adapters, and what `check` says about them.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "draft/binding.h"
#include "draft/check.h"
#include "draft/settings.h"
#include "errors.h"
#include "fixtures.h"

namespace protrain::draft::lora_test {
namespace {

Options options_with(const std::vector<std::pair<std::string, std::string>> &pairs) {
  Options options;
  for (const auto &[key, value] : pairs) options.set(key, value);
  return options;
}

TEST(Lora, APatternMayHaveARankAndAnAlpha) {
  const LoraPattern plain = parse_lora("*.q_proj.weight").value();
  EXPECT_EQ(plain.pattern, "*.q_proj.weight");
  EXPECT_FALSE(plain.rank || plain.alpha);
  const LoraPattern full = parse_lora("*,alpha=2.5,rank=16").value();
  EXPECT_EQ(full.rank, 16);
  EXPECT_EQ(full.alpha, 2.5);
}

TEST(Lora, AnythingElseBehindAPatternIsRefused) {
  for (const char *text : {",rank=4", "*,rank=0", "*,rank=1.5", "*,rank", "*,alpha=0", "*,alpha=-1", "*,beta=1", "*,"})
    EXPECT_EQ(test::code_of([&] { Options().set("lora", text); }), Code::arg) << text;
}

TEST(Lora, ScalesAreAlphaByRankOrByItsRoot) {
  const auto requests =
      settings_of(options_with({{"lora", "a"}, {"lora", "b,rank=16,alpha=8"}, {"lora_rank", "4"}, {"lora_alpha", "2"}}))
          .adapters;
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].scale(), 0.5);
  EXPECT_EQ(requests[1].scale(), 0.5);
  const auto stabilised =
      settings_of(options_with({{"lora", "a,rank=16"}, {"lora_scaling", "rank_stabilised"}})).adapters;
  EXPECT_EQ(stabilised.at(0).scale(), 2);
}

TEST(Lora, TheOtherOptionsNeedAPattern) {
  for (const char *key : {"lora_rank", "lora_alpha"})
    EXPECT_EQ(test::error_of([&] { settings_of(options_with({{key, "4"}})); }).subject, key);
}

TEST(Lora, CheckListsAdaptersAndCountsWhatIsTrained) {
  const auto about =
      nlohmann::json::parse(check_model(options_with({{"lora", "*.c_attn.weight,rank=4"}, {"trainable", "*.ln_f.*"}}),
                                        test::fixture("gpt2-static-opset18.onnx")));
  EXPECT_TRUE(about["trainable"].get<bool>()) << about["problems"];
  ASSERT_EQ(about["adapters"].size(), 4u);
  EXPECT_EQ(about["adapters"][0]["parameter"], "m.transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(about["adapters"][0]["rank"], 4);
  EXPECT_EQ(about["adapters"][0]["scale"], 2.0);
  EXPECT_EQ(about["trained_elements"], 4 * 4 * (64 + 192) + 2 * 64);
  std::int64_t trained = 0;
  for (const auto &row : about["parameters"]) trained += row["frozen"].get<bool>() ? 0 : 1;
  EXPECT_EQ(trained, 4 * 2 + 2);
  EXPECT_TRUE(about["doubtful"].empty());
}

TEST(Lora, OptionsAboutAdaptersAreRefusedWithoutThem) {
  for (const auto &[key, value] : std::map<std::string, std::string>{
           {"lora_rank", "4"}, {"adapter_names", "names"}, {"export_adapters", "inputs"}})
    EXPECT_EQ(test::error_of([&] { settings_of(options_with({{key, value}})); }).subject, key);
  EXPECT_TRUE(settings_of(options_with({{"lora", "a"}, {"export_adapters", "inputs"}})).export_adapters_as_inputs);
}

TEST(Lora, CheckSaysWhatCannotBeAdapted) {
  const auto about = nlohmann::json::parse(
      check_model(options_with({{"lora", "*.ln_1.weight"}}), test::fixture("gpt2-static-opset18.onnx")));
  EXPECT_FALSE(about["trainable"].get<bool>());
  const std::string text = about["problems"].at(0)["text"];
  EXPECT_NE(text.find("asks for an adapter"), std::string::npos) << text;
}

TEST(Lora, CheckNamesTheFormOfARoundedBase) {
  const auto rows_with = [](const char *form) {
    std::map<std::string, nlohmann::json> rows;
    const auto about =
        nlohmann::json::parse(check_model(options_with({{"lora", "*.c_attn.weight"}, {"base_precision", form}}),
                                          test::fixture("gpt2-static-opset18.onnx")));
    EXPECT_TRUE(about["trainable"].get<bool>()) << about["problems"];
    for (const auto &row : about["parameters"]) rows[row["name"]] = row;
    return rows;
  };
  const std::string product = "m.transformer.h.0.mlp.c_fc.weight", table = "m.transformer.wpe.weight";
  auto plain = rows_with("file"), nf4 = rows_with("nf4"), bf16 = rows_with("bf16");
  EXPECT_EQ(nf4[product]["dtype"], "nf4");
  EXPECT_EQ(nf4[product]["shape"], plain[product]["shape"]);
  EXPECT_EQ(nf4[table]["dtype"], "float32");
  EXPECT_EQ(bf16[table]["dtype"], "bfloat16");
  EXPECT_EQ(nf4.size(), plain.size());
}

}  // namespace
}  // namespace protrain::draft::lora_test
