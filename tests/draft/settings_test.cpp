// The conversion of options to Settings.
#include "draft/settings.h"

#include <gtest/gtest.h>

#include "draft/binding.h"
#include "errors.h"

namespace protrain::draft::settings_test {
namespace {

using test::error_of;

Settings settings(const std::vector<std::pair<std::string, std::string>> &pairs) {
  Options options;
  for (const auto &[key, value] : pairs) options.set(key, value);
  return settings_of(options);
}

TEST(Settings, OfNoOptionsAreTheDefaultsOfTheTable) {
  const Settings none = settings({});
  EXPECT_EQ(none.device, "cpu");
  EXPECT_EQ(none.threads, 0);
  EXPECT_EQ(none.precision, DType::f32);
  EXPECT_FALSE(none.tf32);
  EXPECT_FALSE(none.export_as_computed);
  EXPECT_FALSE(none.seed || none.memory || none.tokens_per_step || none.accumulation);
  EXPECT_TRUE(none.dims.empty() && none.offload_dir.empty() && none.resume.empty());
  EXPECT_TRUE(none.losses.empty());
  EXPECT_EQ(none.optimizer.kind, backend::Optimizer::Kind::adamw);
  EXPECT_EQ(none.optimizer.weight_decay, 0.01);
  EXPECT_EQ(none.learning_rate, 0.001);
  EXPECT_EQ(none.clip_norm, 0);
  EXPECT_EQ(none.on_nonfinite, NonfinitePolicy::stop);
  EXPECT_FALSE(none.test_modes.workers || none.test_modes.delays || none.test_modes.poison);
}

TEST(Settings, HoldWhatIsSet) {
  const Settings some = settings({{"precision", "bf16"},
                                  {"seed", "0"},
                                  {"memory", "2KiB"},
                                  {"optimizer", "sgd"},
                                  {"on_nonfinite", "rollback"},
                                  {"tie", "a|b"},
                                  {"tie", "c|d"},
                                  {"trial", "poison"},
                                  {"trial", "workers"}});
  EXPECT_EQ(some.precision, DType::bf16);
  EXPECT_EQ(some.seed, 0) << "another thing than a seed that is not set";
  EXPECT_EQ(some.memory, 2048u);
  EXPECT_EQ(some.optimizer.kind, backend::Optimizer::Kind::sgd);
  EXPECT_EQ(some.optimizer.weight_decay, 0) << "what people expect of sgd";
  EXPECT_EQ(some.on_nonfinite, NonfinitePolicy::rollback);
  EXPECT_EQ(some.tie, (std::vector<std::string>{"a|b", "c|d"}));
  EXPECT_TRUE(some.test_modes.workers && some.test_modes.poison && !some.test_modes.delays);
}

TEST(Settings, RefuseWhatASchedulesNameDoesNotTake) {
  const auto refusal = [](const std::vector<std::pair<std::string, std::string>> &pairs) {
    return error_of([&] { settings(pairs); });
  };
  EXPECT_EQ(refusal({{"schedule", "linear"}}).text, "schedule linear ends after total_steps steps; set total_steps");
  EXPECT_EQ(refusal({{"schedule", "cosine"}, {"total_steps", "9"}, {"warmup_steps", "9"}}).subject, "total_steps");
  EXPECT_EQ(refusal({{"schedule", "cosine"}, {"total_steps", "9"}, {"warmup_steps", "8"}}).code, Code::ok);
  EXPECT_EQ(refusal({{"schedule", "step"}}).subject, "step_interval");
  EXPECT_EQ(refusal({{"total_steps", "9"}}).text, "total_steps has no effect unless schedule is linear or cosine");
  EXPECT_EQ(refusal({{"schedule", "step"}, {"step_interval", "2"}, {"final_learning_rate", "0"}}).subject,
            "final_learning_rate");
  EXPECT_EQ(refusal({{"schedule", "inverse_sqrt"}, {"step_factor", "0.5"}}).subject, "step_factor");
}

TEST(Settings, TakeABudgetOfTheDiskOnlyWhereThereIsADisk) {
  const Error error = error_of([] { settings({{"disk_memory", "1GiB"}}); });
  EXPECT_EQ(error.code, Code::arg);
  EXPECT_EQ(error.subject, "disk_memory");
  EXPECT_NE(error.text.find("offload_dir"), std::string::npos) << error.text;
  for (const auto &[key, value] : {std::pair("offload_dir", "."), {"hardware", "h200"}})
    EXPECT_EQ(settings({{"disk_memory", "1GiB"}, {key, value}}).disk_memory, 1ull << 30) << key;
}

TEST(Settings, OfOptimizersAreWhatTheirNamesSay) {
  using Optimizer = backend::Optimizer;
  const Optimizer adam = settings({{"optimizer", "adam"}, {"correction", "rate"}}).optimizer;
  EXPECT_TRUE(adam.kind == Optimizer::Kind::adamw && !adam.decoupled);
  EXPECT_EQ(adam.correction, Optimizer::Correction::rate);
  EXPECT_EQ(adam.weight_decay, 0);
  const Optimizer adagrad = settings({{"optimizer", "adagrad"}, {"rate_decay", "0.1"}}).optimizer;
  EXPECT_EQ(adagrad.kind, Optimizer::Kind::adagrad);
  EXPECT_EQ(adagrad.rate_decay, 0.1);
  EXPECT_TRUE(settings({{"optimizer", "sgd"}, {"momentum", "0.9"}, {"nesterov", "on"}}).optimizer.nesterov);
  EXPECT_TRUE(settings({{"decay_order", "after"}}).optimizer.decays_after);
  EXPECT_THROW(settings({{"optimizer", "sgd"}, {"nesterov", "on"}}), Error);
  EXPECT_THROW(settings({{"optimizer", "sgd"}, {"dampening", "0.1"}}), Error);
  EXPECT_NO_THROW(settings({{"optimizer", "adam"}, {"nesterov", "on"}, {"dampening", "0.1"}}))
      << "options of sgd alone";
  const Optimizer lion = settings({{"optimizer", "lion"}}).optimizer;
  EXPECT_EQ(lion.kind, Optimizer::Kind::lion);
  EXPECT_EQ(lion.beta2, 0.99);
  EXPECT_EQ(lion.weight_decay, 0);
  EXPECT_EQ(settings({{"optimizer", "lion"}, {"beta2", "0.98"}}).optimizer.beta2, 0.98);
  const Optimizer coded = settings({{"optimizer", "adamw8bit"}, {"ema", "0.5"}}).optimizer;
  EXPECT_TRUE(coded.kind == Optimizer::Kind::adamw && coded.coded && coded.decoupled);
  EXPECT_EQ(coded.weight_decay, 0.01);
  EXPECT_EQ(coded.average, 0.5);
}

TEST(Settings, OfAnExportNeedAnAverageToExport) {
  EXPECT_EQ(error_of([] { settings({{"export_weights", "ema"}}); }).subject, "export_weights");
  EXPECT_TRUE(settings({{"export_weights", "ema"}, {"ema", "0.9"}}).export_average);
  EXPECT_FALSE(settings({{"ema", "0.9"}}).export_average);
}

TEST(Settings, OfAnEvaluationTakeAveragesFromACheckpointAlone) {
  const auto subject_of = [](const std::vector<std::pair<std::string, std::string>> &pairs) {
    return error_of([&] { settings(pairs); }).subject;
  };
  EXPECT_EQ(subject_of({{"eval_weights", "ema"}}), "eval_weights");
  EXPECT_EQ(subject_of({{"eval_weights", "ema"}, {"mode", "eval"}}), "eval_weights");
  EXPECT_EQ(subject_of({{"eval_weights", "ema"}, {"resume", "run"}}), "eval_weights");
  EXPECT_EQ(subject_of({{"export_weights", "ema"}, {"ema", "0.9"}, {"mode", "eval"}}), "export_weights");
  EXPECT_TRUE(settings({{"eval_weights", "ema"}, {"mode", "eval"}, {"resume", "run"}}).eval_average);
}

// Each optimizer must keep the arrays that belong to it, and name() must return its name in the option `optimizer`.
TEST(Settings, OfOptimizersSayWhatTheyKeep) {
  using Arrays = std::vector<graph::OptimizerArray>;
  const auto kept = [](const std::string &name) { return settings({{"optimizer", name}}).optimizer.state(); };
  EXPECT_EQ(kept("adamw"), (Arrays{{"moment1"}, {"moment2"}}));
  EXPECT_EQ(kept("adam"), kept("adamw"));
  EXPECT_EQ(kept("lion"), Arrays{{"moment"}});
  EXPECT_EQ(kept("adagrad"), Arrays{{"sum"}});
  EXPECT_EQ(kept("sgd"), Arrays{});
  EXPECT_EQ(settings({{"optimizer", "sgd"}, {"momentum", "0.9"}, {"ema", "0.9"}}).optimizer.state(),
            (Arrays{{"ema"}, {"momentum"}}));
  double bytes = 0;
  for (const graph::OptimizerArray &array : kept("adamw8bit")) bytes += array.bytes_each();
  EXPECT_EQ(bytes, 2 + 8.0 / 256);
  for (const char *name : {"adamw", "adamw8bit", "adam", "lion", "adagrad", "sgd"})
    EXPECT_STREQ(settings({{"optimizer", name}}).optimizer.name(), name);
}

TEST(Settings, BindEachDimOnceAndEachShapeAsAWhole) {
  const Settings bound =
      settings({{"dim", "batch=4"}, {"dim", "a=b=2"}, {"dim", "batch=4"}, {"shapes", "batch=1,s=3"}});
  EXPECT_EQ(bound.dims, (onnx_import::DimBindings{{"batch", 4}, {"a=b", 2}}));
  EXPECT_EQ(bound.shapes, (std::vector<onnx_import::DimBindings>{{{"batch", 1}, {"s", 3}}}));
  const Error error = error_of([] { settings({{"dim", "batch=4"}, {"dim", "batch=8"}}); });
  EXPECT_EQ(error.code, Code::shape);
  EXPECT_EQ(error.text, "dim batch is bound to both 4 and 8");
}

TEST(Settings, OfALossContradictNothing) {
  const Settings loss = settings({{"loss", "cross_entropy"}, {"loss_shift", "1"}, {"loss_from", "logits"}});
  EXPECT_EQ(loss.losses.at(0).labels, "labels");
  EXPECT_TRUE(loss.losses.at(0).shift);
  EXPECT_EQ(error_of([] { settings({{"loss_labels", "y"}}); }).subject, "loss_labels");
  EXPECT_EQ(error_of([] { settings({{"loss", "mse"}, {"loss_from", "logits"}}); }).subject, "loss_from");
  EXPECT_EQ(error_of([] { settings({{"loss", "dpo"}, {"loss_temperature", "2"}}); }).subject, "loss_temperature");
  EXPECT_EQ(error_of([] { settings({{"loss", "triplet"}, {"loss_shift", "1"}}); }).subject, "loss_shift");
  EXPECT_EQ(error_of([] { settings({{"loss", "dpo"}, {"packed", "positions"}}); }).subject, "packed");
  EXPECT_EQ(error_of([] { settings({{"loss", "cross_entropy"}, {"focal", "2"}, {"z_loss", "1"}}); }).subject, "focal");
  for (const char *key : {"loss_axis", "loss_weights", "label_smoothing", "z_loss", "class_weights"}) {
    const std::string value = std::string(key) == "loss_weights" ? "w" : "1e-1";
    if (std::string(key) != "loss_axis") {
      EXPECT_EQ(error_of([&] { settings({{"loss", "bce"}, {key, value}}); }).subject, key);
    }
    EXPECT_EQ(error_of([&] { settings({{key, std::string(key) == "loss_axis" ? "1" : value}}); }).subject, key);
  }
  EXPECT_EQ(settings({{"loss", "cross_entropy"}, {"class_weights", "0.5,2"}}).losses.at(0).class_weights,
            (std::vector<double>{0.5, 2}));
  EXPECT_EQ(error_of([] {
              settings({{"loss", "cross_entropy"}, {"class_weights", "1,2"}, {"label_smoothing", "0.1"}});
            }).subject,
            "class_weights");
  for (const char *bad : {"1,,2", "-1", "nan", "x"})
    EXPECT_EQ(error_of([&] { settings({{"loss", "cross_entropy"}, {"class_weights", bad}}); }).code, Code::arg) << bad;
}

TEST(Settings, OfCtcAreReadForCtcAlone) {
  const passes::Loss loss = settings({{"loss", "ctc"},
                                      {"loss_blank", "31"},
                                      {"loss_lengths", "n"},
                                      {"loss_label_length", "80"},
                                      {"loss_time_first", "1"},
                                      {"loss_axis", "1"},
                                      {"loss_from", "probabilities"}})
                                .losses.at(0);
  EXPECT_EQ(loss.kind, passes::Loss::Kind::ctc);
  EXPECT_EQ(std::tuple(loss.blank, loss.lengths, loss.label_length, loss.time_first, loss.class_axis),
            std::tuple(31, "n", 80, true, 1));
  for (const auto &[key, value] :
       {std::pair("loss_blank", "1"), {"loss_lengths", "n"}, {"loss_label_length", "8"}, {"loss_time_first", "1"}}) {
    EXPECT_EQ(error_of([&] { settings({{key, value}}); }).subject, key);
    EXPECT_EQ(error_of([&] { settings({{"loss", "cross_entropy"}, {key, value}}); }).subject, key);
  }
  for (const auto &[key, value] :
       {std::pair("loss_shift", "1"), {"loss_weights", "w"}, {"focal", "2"}, {"packed", "positions"}})
    EXPECT_EQ(error_of([&] { settings({{"loss", "ctc"}, {key, value}}); }).subject, key);
}

TEST(Settings, OfSeveralLossesAreLikeThoseOfTheFirst) {
  const std::vector<passes::Loss> losses =
      settings({{"loss", "l1"},
                {"loss_factor", "0.25"},
                {"also_loss", "y,loss=cross_entropy,shift=1,axis=1,label_smoothing=0.1,weights=w,labels=t,factor=3"},
                {"also_loss", "z,loss=infonce,temperature=0.5"},
                {"packed", "positions"}})
          .losses;
  ASSERT_EQ(losses.size(), 3u);
  EXPECT_EQ(losses[0].factor, 0.25);
  EXPECT_EQ(losses[0].positions, "");
  const passes::Loss &second = losses[1];
  EXPECT_EQ(second.kind, passes::Loss::Kind::cross_entropy);
  EXPECT_EQ(std::tuple(second.output, second.labels, second.weights, second.positions),
            std::tuple("y", "t", "w", "positions"));
  EXPECT_EQ(std::tuple(second.shift, second.class_axis, second.label_smoothing, second.factor),
            std::tuple(true, 1, 0.1, 3.0));
  EXPECT_EQ(std::tuple(losses[2].temperature, losses[2].factor, losses[2].labels), std::tuple(0.5, 1.0, "labels"));
  EXPECT_EQ(error_of([] { settings({{"loss_factor", "2"}}); }).subject, "loss_factor");
  EXPECT_EQ(error_of([] { settings({{"loss", "mean"}, {"loss_labels", "t"}}); }).subject, "loss_labels");
  EXPECT_EQ(error_of([] {
              settings({{"loss", "mse"}, {"also_loss", "y,loss=mse,from=logits"}});
            }).text,
            "y: loss_from says what cross_entropy, ctc and bce are given; mse compares numbers as they are");
}

TEST(Binding, IsANameAndASize) {
  EXPECT_EQ(parse_binding("batch=8")->name, "batch");
  EXPECT_EQ(parse_binding("batch=8")->size, 8);
  EXPECT_EQ(parse_binding("a=b=8")->name, "a=b");
  EXPECT_EQ(parse_binding("batch=8")->text(), "batch=8");
  for (const char *bad : {"", "batch", "=8", "batch=", "batch=-1", "batch=8x"})
    EXPECT_FALSE(parse_binding(bad).has_value()) << bad;
}

TEST(InputBinding, IsANameAndItsValues) {
  EXPECT_EQ(parse_input_binding("use_cache=false")->name, "use_cache");
  EXPECT_EQ(parse_input_binding("a=b=1,-2.5,true")->name, "a=b");
  EXPECT_EQ(parse_input_binding("a=b=1,-2.5,true")->values, (std::vector<double>{1, -2.5, 1}));
  for (const char *bad : {"", "x", "=1", "x=", "x=1,", "x=yes", "x=1 2"})
    EXPECT_FALSE(parse_input_binding(bad).has_value()) << bad;
}

TEST(Settings, BindInputsOnce) {
  const Settings bound = settings({{"constant", "x=1"}, {"constant", "y=1,2"}, {"constant", "x=1"}, {"past", "none"}});
  EXPECT_EQ(bound.constants, (onnx_import::InputValues{{"x", {1}}, {"y", {1, 2}}}));
  EXPECT_TRUE(bound.without_past);
  EXPECT_EQ(error_of([] {
              settings({{"constant", "x=1"}, {"constant", "x=2"}});
            }).text,
            "input x is bound to two values");
}

TEST(PrecisionName, IsTheOptionsOwn) {
  for (const char *name : {"fp32", "bf16", "fp16"})
    EXPECT_STREQ(precision_name(settings({{"precision", name}}).precision), name);
}

}  // namespace
}  // namespace protrain::draft::settings_test
