// Tests how adapter_config.json of PEFT is read: the kinds that are refused, and each module's rank and alpha.
#include "draft/peft_config.h"

#include <gtest/gtest.h>

#include "errors.h"
#include "scratch.h"

namespace protrain::draft::peft_config_test {
namespace {

using passes::Adapter;
using passes::AdapterRequest;

// Returns a request for an adapter of `module`, completed from a PEFT file that has rank 8 and these members.
AdapterRequest completed(const std::string &members, const std::string &module = "h.1.attn") {
  const test::Scratch scratch;
  const std::string text = R"({"peft_type": "LORA", "r": 8)" + (members.empty() ? "" : ", " + members) + "}";
  AdapterRequest request{.pattern = module, .one_module = true};
  PeftConfig(scratch.put("adapter_config.json", text)).complete(request);
  return request;
}

Error error_of_members(const std::string &members) {
  return test::error_of([&] { completed(members); });
}

TEST(PeftConfig, GivesAlphaScalingAndDropout) {
  const AdapterRequest request = completed(R"("lora_alpha": 32, "use_rslora": true, "lora_dropout": 0.5)");
  EXPECT_EQ(request.alpha, 32);
  EXPECT_TRUE(request.stabilised);
  EXPECT_EQ(request.dropout, 0.5);
  EXPECT_EQ(completed("").alpha, 8);
}

TEST(PeftConfig, OfMoreThanAProductIsRefusedByName) {
  for (const char *member :
       {R"("alora_invocation_tokens": [1, 2])", R"("layer_replication": [[0, 4], [2, 4]])", R"("use_dora": true)",
        R"("use_dora": "true")", R"("lora_bias": true)", R"("use_qalora": 1)", R"("velora_config": {"scale": 1})",
        R"("arrow_config": {"top_k": 3})", R"("kasa_config": {})", R"("monteclora_config": {"num_samples": 8})",
        R"("use_bdlora": {"nblocks": 2})"}) {
    const Error error = error_of_members(member);
    EXPECT_EQ(error.code, Code::unsupported) << member;
    const std::string key = std::string(member).substr(1, std::string(member).find('"', 1) - 1);
    EXPECT_TRUE(error.text.starts_with(key + " is ")) << error.text;
    EXPECT_EQ(error_of_members("\"" + key + "\": null").code, Code::ok) << key;
    EXPECT_EQ(error_of_members("\"" + key + "\": false").code, Code::ok) << key;
  }
}

TEST(PeftConfig, MustLeaveTheBaseAsItIs) {
  for (const char *start :
       {"true", "false", "null", R"("gaussian")", R"("eva")", R"("orthogonal")", R"("mica")", R"("lora_ga")"})
    EXPECT_EQ(error_of_members(std::string(R"("init_lora_weights": )") + start).code, Code::ok) << start;
  for (const char *start : {R"("pissa")", R"("pissa_niter_16")", R"("olora")", R"("corda")", R"("loftq")", "1"}) {
    const Error error = error_of_members(std::string(R"("init_lora_weights": )") + start);
    EXPECT_EQ(error.code, Code::unsupported) << start;
    EXPECT_NE(error.text.find("path_initial_model_for_weight_conversion"), std::string::npos) << error.text;
  }
}

TEST(PeftConfig, HasAFlagAsABoolean) {
  for (const char *value : {"1", R"("true")", "[]"})
    EXPECT_EQ(error_of_members(std::string(R"("use_rslora": )") + value).code, Code::format) << value;
}

TEST(PeftConfig, HasTheRankOfTheMatrices) {
  for (const char *wrong : {R"("rank_pattern": {"attn": 4})", R"("rank_pattern": {"^h.1.attn": 4})",
                            R"("rank_pattern": {"attn": "8"})", R"("rank_pattern": [8])"})
    EXPECT_EQ(error_of_members(wrong).code, Code::format) << wrong;
  for (const char *right : {R"("rank_pattern": {"mlp": 4})", R"("rank_pattern": {"^attn": 4})",
                            R"("rank_pattern": {"h\\.1\\.attn": 8})", R"("rank_pattern": {"h.*attn": 4})"})
    EXPECT_EQ(error_of_members(right).code, Code::ok) << right;
  const test::Scratch scratch;
  const PeftConfig config(scratch.put("c", R"({"peft_type": "LORA", "r": 4, "rank_pattern": {"h.*attn": 8}})"));
  AdapterRequest attn{.pattern = "h.1.attn", .one_module = true}, mlp{.pattern = "h.1.mlp", .one_module = true};
  EXPECT_EQ(test::code_of([&] { config.complete(attn); }), Code::ok);
  attn.rank = 16;
  EXPECT_EQ(test::code_of([&] { config.complete(attn); }), Code::format);
  mlp.rank = 4;
  EXPECT_EQ(test::code_of([&] { config.complete(mlp); }), Code::ok);
}

TEST(PeftConfig, NamesModulesByTheirLastPartsOrWhole) {
  EXPECT_EQ(completed(R"("alpha_pattern": {"attn": 2})").alpha, 2);
  EXPECT_EQ(completed(R"("alpha_pattern": {"tn": 2})").alpha, 8);
  EXPECT_EQ(completed(R"("alpha_pattern": {"^attn": 2})").alpha, 8);
  EXPECT_EQ(completed(R"("alpha_pattern": {"^h.1.attn": 2})").alpha, 2);
  EXPECT_EQ(completed(R"("alpha_pattern": {"h\\.1\\.attn": 2})").alpha, 2);
  EXPECT_EQ(error_of_members(R"("alpha_pattern": {".*attn": 2})").code, Code::unsupported);
  EXPECT_EQ(error_of_members(R"("alpha_pattern": {"attn\\": 2})").code, Code::unsupported);
}

// PEFT applies a bare name such as "fc" to every module whose name ends with "fc", and so to block.fc too. Therefore
// the file must have whole names, each after a "^".
TEST(PeftConfig, IsWrittenWithWholeNames) {
  const auto adapter = [](const std::string &module, std::int64_t rank, double alpha) {
    return Adapter{.parameter = module + ".weight",
                   .module = module,
                   .request = {.pattern = "*", .rank = rank, .alpha = alpha},
                   .a = {},
                   .b = {}};
  };
  const std::vector<Adapter> adapters = {adapter("fc", 8, 4), adapter("block.fc", 4, 16), adapter("a+b", 8, 4),
                                         adapter("block.a+b", 4, 16), adapter("c", 4, 16)};
  const test::Scratch scratch;
  const std::string text = peft_config_of(adapters);
  EXPECT_NE(text.find("\"^fc\": 8"), std::string::npos) << text;
  const PeftConfig config(scratch.put("adapter_config.json", text));
  for (const Adapter &one : adapters) {
    AdapterRequest request{.pattern = one.module, .one_module = true, .rank = one.request.rank};
    config.complete(request);
    EXPECT_EQ(request.alpha, one.request.alpha) << one.module;
  }
}

}  // namespace
}  // namespace protrain::draft::peft_config_test
