// Faults that let a training run fail quietly, planted one by one into a small classifier. Each must be named within
// two steps: by an alarm in the log, or by the error that ends the run.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "errors.h"
#include "onnx_import/wire.h"
#include "session/session.h"

namespace protrain::session::seeded_faults_test {
namespace {

using Json = nlohmann::json;
using test::Names;
using test::node;

constexpr std::int64_t kRows = 8, kFeatures = 6, kHidden = 8, kClasses = 3;
constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

// Three layers and a head:
//   h0 = Relu(x layers.0.weight + layers.0.bias), then `middle` turns h0 into m0, and so on up to the logits.
struct Case {
  Case() {
    std::int64_t width = kFeatures;
    for (const char *layer : {"layers.0", "layers.1", "layers.2"}) {
      add(layer, width, kHidden);
      width = kHidden;
    }
    add("head", kHidden, kClasses);
    std::mt19937 bits(5);
    const auto uniform = [&] { return static_cast<float>(bits() % 1000) / 500 - 1; };
    for (auto &[name, values] : weights)
      for (float &value : values) value = 0.7F * uniform();
    x.resize(kRows * kFeatures);
    for (float &value : x) value = uniform();
    labels.resize(kRows);
    for (std::int64_t &label : labels) label = static_cast<std::int64_t>(bits() % kClasses);
  }

  std::string file() const {
    test::Wire wire;
    wire.nodes.clear();
    const auto layer = [&](const std::string &number, const std::string &from) {
      const std::string name = "layers." + number;
      wire.nodes.push_back(node("MatMul", {from, name + ".weight"}, {"a" + number}));
      wire.nodes.push_back(node("Add", {"a" + number, name + ".bias"}, {"b" + number}));
      wire.nodes.push_back(node("Relu", {"b" + number}, {"h" + number}));
    };
    layer("0", "x");
    wire.nodes.insert(wire.nodes.end(), middle.begin(), middle.end());
    layer("1", "m0");
    layer("2", "h1");
    wire.nodes.push_back(node("MatMul", {"h2", "head.weight"}, {"c"}));
    wire.nodes.push_back(node("Add", {"c", "head.bias"}, {"logits"}));
    wire.nodes.insert(wire.nodes.end(), more_nodes.begin(), more_nodes.end());
    wire.initializers = constants;
    for (const auto &[name, values] : weights) wire.initializers.push_back(test::floats(name, dims.at(name), values));
    wire.inputs = {test::value("x", test::kFloat, {"8", "6"})};
    wire.inputs.insert(wire.inputs.end(), more_inputs.begin(), more_inputs.end());
    wire.outputs = outputs;
    wire.graph_extra = graph_extra;
    return wire.bytes();
  }

  void option(const std::string &key, const std::string &value) { options.emplace_back(key, value); }
  void fill(const std::string &weight, float value) { std::ranges::fill(weights.at(weight), value); }

  std::map<std::string, std::vector<float>> weights;
  std::map<std::string, test::Dims> dims;
  Names middle = {node("Identity", {"h0"}, {"m0"})};
  Names more_nodes, more_inputs, constants;
  std::string graph_extra;
  Names outputs = {test::value("logits", test::kFloat, {"8", "3"})};
  std::vector<std::pair<std::string, std::string>> options = {
      {"threads", "1"}, {"learning_rate", "1e-3"}, {"loss", "cross_entropy"}};
  std::vector<float> x;
  std::vector<std::int64_t> labels;
  std::map<std::string, std::vector<float>> other_floats;  // of further inputs (8,)
  int healthy = 0;                                         // steps before the fault
  std::function<void(Case &, Session &)> later = nullptr;  // plants the fault after these steps

 private:
  void add(const std::string &layer, std::int64_t in, std::int64_t out) {
    dims[layer + ".weight"] = {in, out};
    dims[layer + ".bias"] = {out};
    weights[layer + ".weight"].resize(static_cast<std::size_t>(in * out));
    weights[layer + ".bias"].resize(static_cast<std::size_t>(out));
  }
};

// The alarms of a session, and the error that ended it.
struct Outcome {
  std::vector<Json> alarms;
  std::string error;
};

class Trial {
 public:
  explicit Trial(Case run) : case_(std::move(run)) {
    draft::Options options;
    for (const auto &[key, value] : case_.options) options.set(key, value);
    session_ = Session::create(options, scratch_.put("model.onnx", case_.file()), [this](const std::string &line) {
      const Json json = Json::parse(line);
      if (json["event"] == "created")
        for (const Json &alarm : json["alarms"]) found_.alarms.push_back(alarm);
      if (json["event"] == "alarm") found_.alarms.push_back(json);
    });
  }

  void steps(int count) {
    try {
      for (int i = 0; i < count; ++i) step();
    } catch (const Error &error) {
      found_.error = error.text;
    }
  }

  Outcome run() {
    steps(case_.healthy);
    EXPECT_TRUE(case_.healthy == 0 || found_.alarms.empty()) << Json(found_.alarms);
    if (case_.later) case_.later(case_, *session_);
    steps(2);
    return found_;
  }

  float evaluate() {
    set_inputs();
    return session_->evaluate();
  }

  Session &session() { return *session_; }
  const Outcome &found() const { return found_; }

 private:
  void set_inputs() {
    for (std::size_t i = 0; i < session_->input_count(); ++i) {
      const std::string &name = session_->input_name(i);
      const Shape &shape = session_->input_shape(i);
      if (name == "x")
        session_->set_input(name, DType::f32, shape, case_.x.data());
      else if (session_->input_dtype(i) == DType::i64)
        session_->set_input(name, DType::i64, shape, case_.labels.data());
      else
        session_->set_input(name, DType::f32, shape, floats_of(name, shape).data());
    }
  }

  void step() {
    set_inputs();
    session_->step();
  }

  // Returns the values of an input. If the case sets none, they are zeros.
  const std::vector<float> &floats_of(const std::string &name, const Shape &shape) {
    std::vector<float> &values = case_.other_floats[name];
    values.resize(static_cast<std::size_t>(element_count(shape)));
    return values;
  }

  Case case_;
  test::Scratch scratch_;
  Outcome found_;
  std::unique_ptr<Session> session_;
};

struct Fault {
  std::string name;
  std::function<void(Case &)> plant;
  std::string code;   // of the alarm
  std::string names;  // what its sentence names
};

void PrintTo(const Fault &fault, std::ostream *out) { *out << fault.name; }

// Returns a function that puts one operator between the first two layers. The operator reads h0, and the constant if
// one is given.
std::function<void(Case &)> between(const std::string &op, const std::vector<float> &constant = {}) {
  return [=](Case &run) {
    run.middle = {node(op, constant.empty() ? Names{"h0"} : Names{"h0", "k"}, {"m0"})};
    if (!constant.empty())
      run.constants.push_back(test::floats("k", {static_cast<std::int64_t>(constant.size())}, constant));
  };
}

std::function<void(Case &)> with(const std::vector<std::pair<std::string, std::string>> &options) {
  return [=](Case &run) {
    for (const auto &[key, value] : options) run.option(key, value);
  };
}

std::function<void(Case &)> after(int healthy, std::function<void(Case &, Session &)> later) {
  return [=](Case &run) {
    run.healthy = healthy;
    run.later = later;
  };
}

std::vector<Fault> wrong_options() {
  return {
      {"GroupAtRest", with({{"group", "head*,learning_rate_scale=0"}}), "group_rate_zero", "head.bias"},
      {"AllGroupsAtRest", with({{"group", "*,learning_rate_scale=0"}}), "group_rate_zero", "and 5 more"},
      {"BiasesAtRest", with({{"group", "layers.?.bias,learning_rate_scale=0"}}), "group_rate_zero", "layers.1.bias"},
      {"FrozenLayerBetween", with({{"frozen", "layers.1*"}}), "frozen_between", "layers.1.weight"},
      {"FrozenBiasBetween", with({{"frozen", "*1.bias"}}), "frozen_between", "layers.1.bias"},
      {"ForgottenLayer", with({{"frozen", "*"}, {"trainable", "*.0.*"}, {"trainable", "*.2.*"}}), "frozen_between",
       "layers.1.weight"},
      {"NoRate", with({{"learning_rate", "0"}}), "rate_zero", "step 1 is zero"},
      {"LinearEnds", with({{"schedule", "linear"}, {"total_steps", "1"}}), "rate_zero", "step 2 is zero"},
      {"CosineEnds", with({{"schedule", "cosine"}, {"total_steps", "1"}}), "rate_zero", "step 2 is zero"},
      {"StepToZero", with({{"schedule", "step"}, {"step_interval", "1"}, {"step_factor", "0"}}), "rate_zero",
       "step 2 is zero"},
      {"RateSetToZero", after(3, [](Case &, Session &session) { session.set_learning_rate(0); }), "rate_zero",
       "step 4 is zero"},
      {"OtherLabels",
       [](Case &run) {
         run.more_inputs = {test::value("answers", test::kInt64, {"8"}), test::value("ids", test::kInt64, {"8"})};
         run.option("loss_labels", "ids");
       },
       "input_unused", "input answers"},
      {"ExplodingRate", with({{"optimizer", "sgd"}, {"learning_rate", "3000"}}), "norm_far", "in step 2"},
  };
}

// In PyTorch, a Relu reads detach(h0). The file has lost the detach(), so its Relu reads h0.
void drop_detach(Case &run) {
  const std::string call =
      "%relu : [num_users=1] = call_function[target=torch.ops.aten.relu.default](args = (%detach,), kwargs = {})";
  const std::string kind = test::pair("pkg.torch.export.graph_signature.InputSpec.kind", "PARAMETER");
  run.middle = {node("Relu", {"h0"}, {"m0"}) + test::field(9, test::pair("pkg.torch.onnx.fx_node", call))};
  for (const auto &[name, values] : run.weights)
    run.graph_extra += test::field(13, test::field(1, name) + test::field(4, kind));
}

// In PyTorch, the loss has label_smoothing=0.1. The node in the file lacks the smoothing.
void drop_smoothing(Case &run) {
  const std::string call =
      "%cross_entropy_loss : [num_users=1] = call_function[target=torch.ops.aten.cross_entropy_loss.default](args = "
      "(%linear, %labels, None, 1, -100, 0.1), kwargs = {})";
  run.options.pop_back();  // the graph has its loss
  run.more_inputs = {test::value("labels", test::kInt64, {"8"})};
  run.more_nodes = {node("SoftmaxCrossEntropyLoss", {"logits", "labels"}, {"loss"}) +
                    test::field(9, test::pair("pkg.torch.onnx.fx_node", call))};
  run.outputs = {test::value("loss", test::kFloat, {})};
}

std::string called_in_pytorch(const std::string &target, const std::string &arguments) {
  return test::field(
      9, test::pair("pkg.torch.onnx.fx_node", "%m0 : [num_users=1] = call_function[target=torch.ops.aten." + target +
                                                  ".default](args = (" + arguments + "), kwargs = {})"));
}

// In PyTorch, the norm is in training mode.
void leave_training(Case &run) {
  run.constants = {test::floats("variance", {kHidden}, std::vector<float>(kHidden, 1)),
                   test::floats("mean", {kHidden}, std::vector<float>(kHidden, 0)),
                   test::floats("scale", {kHidden}, std::vector<float>(kHidden, 0.5F)),
                   test::floats("shift", {kHidden}, std::vector<float>(kHidden, 0.25F))};
  run.middle = {node("BatchNormalization", {"h0", "scale", "shift", "mean", "variance"}, {"m0"}) +
                called_in_pytorch("_native_batch_norm_legit_functional", "%h0, %w, %b, %mean, %var, True, 0.1, 1e-05")};
}

// In PyTorch, attention drops a fifth of its probabilities.
void drop_dropout(Case &run) {
  run.constants = {test::floats("ratio", {}, {0.2F})};
  run.middle = {node("Dropout", {"h0", "ratio"}, {"m0"}) +
                called_in_pytorch("scaled_dot_product_attention", "%q, %k, %v, None, 0.2")};
}

std::vector<Fault> wrong_graphs() {
  return {
      {"TrainingModeDropped", leave_training, "batch_norm_lost", "make_m0"},
      {"DropoutDropped", drop_dropout, "dropout_lost", "make_m0"},
      {"DetachedByRound", between("Round"), "no_gradient", "layers.0.weight"},
      {"DetachedByFloor", between("Floor"), "no_gradient", "layers.0.bias"},
      {"DetachedBySign", between("Sign"), "no_gradient", "layers.0.weight"},
      {"DetachDropped", drop_detach, "detach_lost", "make_m0"},
      {"SmoothingDropped", drop_smoothing, "smoothing_lost", "make_loss"},
      {"UnreadInput", [](Case &run) { run.more_inputs = {test::value("mask", test::kFloat, {"8"})}; }, "input_unused",
       "input mask"},
      {"InputOfAnotherOutput",
       [](Case &run) {
         run.more_inputs = {test::value("scale", test::kFloat, {"8"})};
         run.more_nodes = {node("Mul", {"scale", "scale"}, {"square"})};
         run.outputs.push_back(test::value("square", test::kFloat, {"8"}));
       },
       "input_unused", "input scale"},
      {"GateOfZero",
       [](Case &run) {
         run.more_inputs = {test::value("gate", test::kFloat, {"8"})};
         run.other_floats["gate"].assign(kRows, 0);
         run.constants.push_back(test::tensor("axes", test::kInt64, {1}, test::raw_data(test::raw<std::int64_t>({1}))));
         run.middle = {node("Unsqueeze", {"gate", "axes"}, {"g"}), node("Mul", {"h0", "g"}, {"m0"})};
       },
       "gradient_zero", "layers.0.weight"},
      {"ClippedAway",
       [](Case &run) {
         run.constants.push_back(test::floats("low", {}, {50}));
         run.constants.push_back(test::floats("high", {}, {60}));
         run.middle = {node("Clip", {"h0", "low", "high"}, {"m0"})};
       },
       "gradient_zero", "layers.0.weight"},
      {"DeadUnits", [](Case &run) { run.fill("layers.1.bias", -1000); }, "gradient_zero",
       "layers.2.weight is the last of them"},
      {"DeadLastUnits", [](Case &run) { run.fill("layers.2.bias", -1000); }, "gradient_zero",
       "head.weight is the last of them"},
      {"SaturatedSigmoid",
       [](Case &run) {
         between("Sigmoid")(run);
         run.fill("layers.0.bias", 1000);
       },
       "gradient_zero", "layers.0.weight"},
      {"SaturatedTanh",
       [](Case &run) {
         between("Tanh")(run);
         run.fill("layers.0.bias", 1000);
       },
       "gradient_zero", "layers.0.weight"},
      {"TwoLayersOfZeros",
       [](Case &run) {
         for (const char *name : {"layers.1.weight", "layers.1.bias", "layers.2.weight", "layers.2.bias"})
           run.fill(name, 0);
       },
       "gradient_zero", "layers.1.weight"},
      {"InputOfZeros", [](Case &run) { std::ranges::fill(run.x, 0.F); }, "gradient_zero", "layers.0.weight"},
  };
}

// Operators whose results are not finite.
std::vector<Fault> wrong_domains() {
  return {
      {"RootOfNegative",
       [](Case &run) {
         run.middle = {node("Neg", {"h0"}, {"n"}), node("Sqrt", {"n"}, {"m0"})};
       },
       "nonfinite", "Sqrt (make_m0) made the first NaN, in m0"},
      {"SqrtBeforeALossThatIsReshaped",
       [](Case &run) {
         run.middle = {node("Neg", {"h0"}, {"negative"}), node("Sqrt", {"negative"}, {"m0"})};
         run.options.pop_back();  // the graph has its loss
         run.constants.push_back(test::tensor("no_dims", test::kInt64, {0}, ""));
         run.more_nodes = {node("ReduceMean", {"logits"}, {"mean"}), node("Reshape", {"mean", "no_dims"}, {"loss"})};
         run.outputs = {test::value("loss", test::kFloat, {})};
       },
       "nonfinite", "Sqrt (make_m0) made the first NaN, in m0"},
      {"LogarithmOfZero", between("Log"), "nonfinite", "Log (make_m0) made the first infinity, in m0"},
      {"DivisionByZero",
       [](Case &run) {
         run.middle = {node("Div", {"h0", "h0"}, {"m0"})};
       },
       "nonfinite", "Div (make_m0) made the first NaN, in m0"},
      {"OverflowOfExp",
       [](Case &run) {
         between("Exp")(run);
         run.fill("layers.0.bias", 300);
       },
       "nonfinite", "Exp (make_m0) made the first infinity, in m0"},
      {"OverflowOfAProduct",
       [](Case &run) {
         run.fill("layers.0.bias", 1e30F);
         run.fill("layers.1.weight", 1e30F);
       },
       "nonfinite", "MatMul"},
      {"MaskedWholeRow",
       [](Case &run) {
         run.constants.push_back(test::floats("minus", {kHidden}, std::vector<float>(kHidden, -kInfinity)));
         run.middle = {node("Add", {"h0", "minus"}, {"s"}),
                       node("Softmax", {"s"}, {"m0"}, {test::int_attribute("axis", -1)})};
       },
       "nonfinite", "Softmax (make_m0) made the first NaN, in m0, from an infinity in s"},
      {"SlopeOfRootAtZero",
       [](Case &run) {
         run.middle = {node("Sqrt", {"h0"}, {"m0"})};
         run.fill("layers.0.bias", 0.2F);  // some units are zero
       },
       "nonfinite", "of backward made the first"},
  };
}

// Weights or batches that hold a NaN or an infinity, and a batch whose values are far larger than those of other
// batches.
std::vector<Fault> wrong_numbers() {
  const auto set = [](const std::string &weight, float value) {
    return [=](Case &run) { run.weights.at(weight)[1] = value; };
  };
  return {
      {"NanInALayer", set("layers.1.weight", kNan), "nonfinite", "the parameter layers.1.weight holds a NaN"},
      {"InfinityInALayer", set("layers.2.bias", kInfinity), "nonfinite", "layers.2.bias"},
      {"NanInTheHead", set("head.bias", kNan), "nonfinite", "the parameter head.bias holds a NaN"},
      {"NanInTheBatch", [](Case &run) { run.x[7] = kNan; }, "nonfinite", "the input x holds a NaN"},
      {"NanInALaterBatch", after(3, [](Case &run, Session &) { run.x[7] = kNan; }), "nonfinite",
       "the input x holds a NaN"},
      {"NanInASecondBatch",
       [](Case &run) {
         after(3, [](Case &later, Session &) { later.other_floats["factors"][1] = kNan; })(run);
         run.option("accumulation", "2");
         run.option("loss_weights", "factors");
         run.other_floats["factors"].assign(kRows, 1);
       },
       "nonfinite", "the input factors holds a NaN"},
      {"NanInAFirstBatch",
       [](Case &run) {
         after(1, [](Case &later, Session &) { std::ranges::fill(later.x, 0.F); })(run);
         between("Sqrt")(run);
         run.fill("layers.0.bias", 0.2F);  // some units of the first batch are zero, and none of the second
         run.option("accumulation", "2");
       },
       "nonfinite", "an earlier batch of the step"},
      {"SkippedNan",
       [](Case &run) {
         run.option("on_nonfinite", "skip");
         run.x[7] = kNan;
       },
       "nonfinite", "the input x holds a NaN"},
      {"OutlierInABatch",
       after(3,
             [](Case &run, Session &) {
               for (float &value : run.x) value *= 3e4F;
             }),
       "norm_far", "in step 4"},
  };
}

std::vector<Fault> wrong_labels() {
  const auto ignore = [](Case &run) { std::ranges::fill(run.labels, -100); };
  const auto ignored_with = [=](const std::vector<std::pair<std::string, std::string>> &options) {
    return [=](Case &run) {
      ignore(run);
      with(options)(run);
    };
  };
  return {
      {"AllIgnored", ignore, "nonfinite", "no target counts"},
      {"AllIgnoredInALaterStep", after(3, [=](Case &run, Session &) { ignore(run); }), "nonfinite", "no target counts"},
      {"AllIgnoredAndSkipped", ignored_with({{"on_nonfinite", "skip"}}), "nonfinite", "no target counts"},
      {"AllIgnoredInTwoBatches", ignored_with({{"accumulation", "2"}}), "nonfinite", "no target counts"},
      {"AllIgnoredWithClipping", ignored_with({{"clip_norm", "1"}}), "nonfinite", "no target counts"},
      {"AllWeightsZero",
       [](Case &run) {
         run.option("loss_weights", "factors");
         run.other_floats["factors"].assign(kRows, 0);
       },
       "nonfinite", "no target counts"},
      {"AllIgnoredInASum",
       [=](Case &run) {
         ignore(run);
         run.options.pop_back();  // the graph has its loss
         run.more_inputs = {test::value("labels", test::kInt64, {"8"})};
         run.more_nodes = {node("SoftmaxCrossEntropyLoss", {"logits", "labels"}, {"loss"},
                                {test::attribute("reduction", 3, test::field(4, std::string("sum"))),
                                 test::int_attribute("ignore_index", -100)})};
         run.outputs = {test::value("loss", test::kFloat, {})};
       },
       "gradient_zero", "each of the 8 trained parameters"},
  };
}

class SeededFaults : public testing::TestWithParam<Fault> {};

TEST_P(SeededFaults, AreNamedWithinTwoSteps) {
  Case run;
  GetParam().plant(run);
  const Outcome found = Trial(std::move(run)).run();
  const bool named = std::ranges::any_of(found.alarms, [&](const Json &alarm) {
    return alarm["code"] == GetParam().code &&
           alarm["text"].get<std::string>().find(GetParam().names) != std::string::npos;
  });
  EXPECT_TRUE(named) << GetParam().code << ", " << GetParam().names << "\nfound: " << Json(found.alarms)
                     << "\nerror: " << found.error;
  const bool in_error = found.error.find(GetParam().names) != std::string::npos;
  EXPECT_TRUE(in_error || found.error.empty() || GetParam().code != "nonfinite") << found.error;
}

std::vector<Fault> all_faults() {
  std::vector<Fault> all;
  for (const auto &some : {wrong_options(), wrong_graphs(), wrong_domains(), wrong_numbers(), wrong_labels()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

INSTANTIATE_TEST_SUITE_P(Faults, SeededFaults, testing::ValuesIn(all_faults()),
                         [](const auto &info) { return info.param.name; });

TEST(SeededFaults, AreAtLeastForty) { EXPECT_GE(all_faults().size(), 40u); }

TEST(HealthyRuns, RaiseNoAlarm) {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  for (const Pairs &options :
       {Pairs{}, Pairs{{"optimizer", "sgd"}, {"learning_rate", "0.1"}}, Pairs{{"accumulation", "2"}},
        Pairs{{"precision", "bf16"}}, Pairs{{"precision", "fp16"}}, Pairs{{"frozen", "layers.0*"}},
        Pairs{{"schedule", "cosine"}, {"total_steps", "20"}, {"warmup_steps", "4"}}, Pairs{{"clip_norm", "0.01"}}}) {
    Case run;
    with(options)(run);
    Trial trial(std::move(run));
    trial.steps(20);
    EXPECT_EQ(trial.found().error, "");
    EXPECT_TRUE(trial.found().alarms.empty()) << Json(trial.found().alarms) << " with " << Json(options);
  }
}

// Returns a trial whose labels have the weights `factors`.
Trial weighted(const std::vector<float> &factors) {
  Case run;
  run.option("loss_weights", "factors");
  run.other_floats["factors"] = factors;
  return Trial(std::move(run));
}

TEST(Evaluations, AreNotFiniteIfTheWeightsAreNot) {
  std::vector<float> factors(kRows, 1);
  factors[1] = kNan;
  const Error error = test::error_of([&] { weighted(factors).evaluate(); });
  EXPECT_EQ(error.code, Code::nonfinite);
  EXPECT_EQ(error.subject, "loss");
}

TEST(Evaluations, NameTheOperatorThatMadeANaN) {
  for (const char *mode : {"train", "eval"}) {
    Case run;
    run.option("mode", mode);
    run.middle = {node("Neg", {"h0"}, {"negative"}), node("Sqrt", {"negative"}, {"m0"})};
    Trial trial(std::move(run));
    const Error error = test::error_of([&] { trial.evaluate(); });
    EXPECT_EQ(error.code, Code::nonfinite);
    EXPECT_EQ(error.text, "the loss is not finite; Sqrt (make_m0) made the first NaN, in m0, from finite numbers");
  }
}

TEST(Evaluations, AreMeansWhateverTheSignOfTheWeights) {
  EXPECT_EQ(weighted(std::vector<float>(kRows, -1)).evaluate(), weighted(std::vector<float>(kRows, 1)).evaluate());
}

TEST(Alarms, StandInTheReportOnceEach) {
  Case run;
  with({{"group", "head*,learning_rate_scale=0"}, {"learning_rate", "0"}})(run);
  Trial trial(std::move(run));
  trial.steps(4);
  const Json alarms = Json::parse(trial.session().report_json())["alarms"];
  ASSERT_EQ(alarms.size(), 2u);
  EXPECT_EQ(alarms[0]["code"], "group_rate_zero");
  EXPECT_EQ(alarms[0]["step"], 0) << "known before the first step";
  EXPECT_EQ(alarms[0]["subject"], "head.weight");
  EXPECT_EQ(alarms[1]["code"], "rate_zero");
  EXPECT_EQ(alarms[1]["step"], 1);
}

}  // namespace
}  // namespace protrain::session::seeded_faults_test
