// The options table: the values that each row accepts, and the errors for values that it refuses.
#include "draft/options.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace protrain::draft::options_test {
namespace {

Error refusal(const std::string &key, const std::string &value) {
  try {
    Options().set(key, value);
  } catch (const Error &error) {
    return error;
  }
  return {Code::ok, "", "taken"};
}

// A valid value for a row.
std::string sample(const OptionRow &row) {
  if (row.key == "dim" || row.key == "shapes" || row.key == "constant") return "batch=2";
  if (row.key == "trial") return "poison";
  if (row.key == "group") return "*.bias,weight_decay=0";
  if (row.key == "no_decay") return "norms,biases";
  if (row.key == "class_weights") return "0.5,2";
  if (row.key == "also_loss") return "logits,loss=mse,factor=0.5";
  switch (row.type) {
    case OptionType::integer:
      return "1";
    case OptionType::real:
      return "0.5";
    case OptionType::bytes:
      return "1GiB";
    case OptionType::choice:
      return split(row.range, '|').front();
    default:
      return "x";
  }
}

TEST(Options, TakeEveryRow) {
  for (const OptionRow &row : option_table()) {
    const Error error = refusal(std::string(row.key), sample(row));
    EXPECT_EQ(error.code, Code::ok) << row.key << ": " << error.text;
  }
}

TEST(Options, HaveDefaultsThatTheyWouldTake) {
  for (const OptionRow &row : option_table()) {
    if (row.fallback.empty()) continue;
    EXPECT_EQ(refusal(std::string(row.key), std::string(row.fallback)).code, Code::ok) << row.key;
  }
}

TEST(Options, NameTheNearestKey) {
  const Error error = refusal("device_memroy", "1GiB");
  EXPECT_EQ(error.code, Code::arg);
  EXPECT_EQ(error.text, "there is no option 'device_memroy'; did you mean 'device_memory'?");
  EXPECT_EQ(refusal("qqqqqqqqqq", "1").text, "there is no option 'qqqqqqqqqq'");
  EXPECT_EQ(refusal("a\x1b[2J", "1").text, "there is no option 'a\\x1b[2J'");
}

TEST(Options, CheckTypesAndRangesAtOnce) {
  for (const auto &[key, value] : std::vector<std::pair<const char *, const char *>>{{"learning_rate", "-1"},
                                                                                     {"learning_rate", "nan"},
                                                                                     {"learning_rate", "inf"},
                                                                                     {"learning_rate", "fast"},
                                                                                     {"beta1", "1"},
                                                                                     {"beta2", "1.0"},
                                                                                     {"epsilon", "0"},
                                                                                     {"epsilon", "1e-46"},
                                                                                     {"rank", "9223372036854775807"},
                                                                                     {"weight_decay", "nan"},
                                                                                     {"momentum", "-0.1"},
                                                                                     {"threads", "-1"},
                                                                                     {"threads", "1025"},
                                                                                     {"threads", "1.5"},
                                                                                     {"seed", "-1"},
                                                                                     {"seed", "1e3"},
                                                                                     {"memory", "0"},
                                                                                     {"memory", "lots"},
                                                                                     {"memory", "-1GiB"},
                                                                                     {"device", "gpu"},
                                                                                     {"precision", "fp64"},
                                                                                     {"optimizer", "ADAMW"},
                                                                                     {"dim", "batch"},
                                                                                     {"dim", "batch=-1"},
                                                                                     {"dim", "=2"},
                                                                                     {"dim", "batch=x"},
                                                                                     {"frozen", ""},
                                                                                     {"clip_norm", "0"},
                                                                                     {"shapes", "batch=2,sequence"},
                                                                                     {"trial", "luck"},
                                                                                     {"on_nonfinite", "panic"},
                                                                                     {"accumulation", "0"},
                                                                                     {"device", ""}}) {
    const Error error = refusal(key, value);
    EXPECT_EQ(error.code, Code::arg) << key << "=" << value << ": " << error.text;
    EXPECT_EQ(error.subject, key);
  }
}

TEST(Options, SayWhichNumberAndWhichUnitsTheyTake) {
  EXPECT_EQ(refusal("learning_rate", "fast").text, "'fast' is not a number");
  EXPECT_EQ(refusal("memory", "6M").text,
            "'6M' is not a size such as 20GiB, in B, KB, MB, GB, TB, KiB, MiB, GiB or TiB");
}

TEST(Options, CheckFurtherLossesKeyByKey) {
  for (const char *good : {"y,loss=mean", "y,loss=kl,temperature=2,labels=a=b", "a=b,loss=bce,from=logits,factor=0"})
    EXPECT_EQ(refusal("also_loss", good).code, Code::ok) << good;
  for (const char *bad : {"y", ",loss=mse", "loss=mse", "y,factor=2", "y,loss=mse,loss=l1", "y,loss=mse,factor",
                          "y,loss=mse,labels=", "y,loss=mse,loss_factor=2", "y,loss=mse,"}) {
    const Error error = refusal("also_loss", bad);
    EXPECT_EQ(error.code, Code::arg) << bad;
    EXPECT_EQ(error.subject, "also_loss");
    EXPECT_NE(error.text.find("is not OUTPUT,loss=KIND,KEY=VALUE,... with the keys factor,"), std::string::npos) << bad;
  }
  EXPECT_EQ(refusal("also_loss", "y,loss=mse,factor=-1").text, "factor: -1 is out of range: >= 0");
  EXPECT_EQ(refusal("also_loss", "y,loss=mse,factor=many").text, "factor: 'many' is not a number");
  EXPECT_EQ(refusal("also_loss", "y,loss=huber").text,
            "loss: 'huber' is none of cross_entropy|mse|l1|bce|ctc|kl|cosine|triplet|infonce|dpo|mean");
  EXPECT_EQ(refusal("also_loss", "y,loss=dpo").text,
            "dpo can only be the first loss; set loss=dpo, and the other losses with also_loss");
  EXPECT_EQ(refusal("also_loss", "y,loss=cross_entropy,class_weights=1,2").text,
            "class_weights is a list, and the settings of also_loss are single values; make this loss the first one");
}

TEST(Options, AccumulateListsAndReplaceTheRest) {
  Options options;
  options.set("frozen", "*.bias");
  options.set("frozen", "m.wte,m.wpe");
  EXPECT_EQ(options.list("frozen"), (std::vector<std::string>{"*.bias", "m.wte,m.wpe"}));
  EXPECT_EQ(options.get("frozen"), "*.bias\nm.wte,m.wpe");
  options.set("learning_rate", "0.1");
  options.set("learning_rate", "3e-4");
  EXPECT_EQ(options.real("learning_rate"), 3e-4);
}

TEST(Options, TellWhatHolds) {
  Options options;
  EXPECT_EQ(options.get("learning_rate"), "0.001");
  EXPECT_FALSE(options.is_set("learning_rate"));
  EXPECT_EQ(options.bytes("memory"), 0u);
  EXPECT_TRUE(options.list("dim").empty());
  options.set("memory", "12GiB");
  EXPECT_EQ(options.bytes("memory"), 12ull << 30);
  EXPECT_THROW(options.get("nothing"), Error);
}

TEST(Options, DecayByDefaultWithAdamwOnly) {
  Options options;
  EXPECT_EQ(options.real("weight_decay"), 0.01);
  options.set("optimizer", "sgd");
  EXPECT_EQ(options.real("weight_decay"), 0);
  options.set("weight_decay", "0.1");
  EXPECT_EQ(options.real("weight_decay"), 0.1);
}

TEST(Options, LeaveEverythingAsItWasWhenTheyRefuse) {
  Options options;
  options.set("threads", "2");
  EXPECT_THROW(options.set("threads", "many"), Error);
  EXPECT_EQ(options.integer("threads"), 2);
}

TEST(Options, HelpListsEveryRowAsJson) {
  const nlohmann::json help = nlohmann::json::parse(Options::help());
  ASSERT_EQ(help.size(), option_table().size());
  for (std::size_t i = 0; i < help.size(); ++i) {
    EXPECT_EQ(help[i]["key"], option_table()[i].key);
    EXPECT_FALSE(help[i]["sentence"].get<std::string>().empty());
  }
}

}  // namespace
}  // namespace protrain::draft::options_test
