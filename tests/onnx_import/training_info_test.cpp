// ONNX's training_info: what is read from an algorithm, and what is refused. tests/fixtures/make_training_info.py made
// the files.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <sstream>

#include "asked.h"
#include "fixtures.h"
#include "onnx_import/mutation.h"
#include "onnx_import/wire.h"

namespace protrain::test::training_info_test {
namespace {

using onnx_import::GraphProto;
using onnx_import::Model;
using onnx_import::ModelProto;
using onnx_import::NodeProto;
using onnx_import::StringPair;
using Options = std::map<std::string, std::string>;

std::string path_of(const std::string &name) { return fixture("training_info/" + name + ".onnx"); }

std::string bytes_of(const std::string &name) {
  std::ostringstream out;
  out << std::ifstream(path_of(name), std::ios::binary).rdbuf();
  return out.str();
}

graph::FileTraining training_of(const std::string &name) { return *Model::open(path_of(name))->declared().training; }

Options options_of(const graph::FileTraining &training) { return {training.options.begin(), training.options.end()}; }

// A node of the algorithm, by its name.
NodeProto &node_of(GraphProto &algorithm, const std::string &name) {
  for (NodeProto &node : *algorithm.mutable_node())
    if (node.name() == name) return node;
  throw std::runtime_error("no node " + name);
}

// Changes the file "adam" and returns what the library reads from its training_info.
graph::FileTraining changed(const std::function<void(GraphProto &, ModelProto &)> &change) {
  const Scratch scratch;
  ModelProto proto;
  EXPECT_TRUE(proto.ParseFromString(bytes_of("adam")));
  change(*proto.mutable_training_info(0)->mutable_algorithm(), proto);
  return *open_bytes(scratch, proto.SerializeAsString())->declared().training;
}

// Changes the file "adam", which the library may then refuse. Returns the subject of the refusal; "" if there is none.
std::string refused(const std::function<void(GraphProto &, ModelProto &)> &change) {
  const graph::FileTraining training = changed(change);
  EXPECT_TRUE(!training.refusal || training.refusal->code == Code::unsupported);
  EXPECT_TRUE(!training.refusal || training.options.empty());
  return training.refusal ? training.refusal->subject : "";
}

void add_node(GraphProto &graph, const char *op, const Names &inputs, const char *output) {
  NodeProto &node = *graph.add_node();
  node.set_op_type(op);
  node.set_name(std::string("make_") + output);
  for (const std::string &input : inputs) node.add_input(input);
  node.add_output(output);
}

TEST(TrainingInfo, NamesLossParametersAndOptimizer) {
  const auto model = Model::open(path_of("adam"));
  EXPECT_EQ(*model->declared().updated, (Names{"W1", "b1", "W2", "b2"}));
  const graph::FileTraining &training = *model->declared().training;
  EXPECT_FALSE(training.refusal);
  EXPECT_EQ(training.loss, "loss");
  EXPECT_EQ(training.steps, -1) << "ONNX's Adam corrects nothing at T = 0";
  EXPECT_EQ(options_of(training), (Options{{"optimizer", "adam"},
                                           {"beta1", "0.8"},
                                           {"beta2", "0.95"},
                                           {"epsilon", "0.001"},
                                           {"weight_decay", "0.02"},
                                           {"correction", "rate"},
                                           {"learning_rate", "0.02"}}));
  EXPECT_EQ(training.moments.at("b1"), (Names{"v_b1", "h_b1"}));
  EXPECT_EQ(model->load("v_W1").shape(), (Shape{4, 6}));
  Names inputs, outputs;
  for (const auto &input : model->inputs()) inputs.push_back(input.name);
  for (const auto &output : model->outputs()) outputs.push_back(output.name);
  EXPECT_EQ(inputs, (Names{"X", "label"}));
  EXPECT_EQ(outputs, (Names{"Y", "loss"}));
  EXPECT_EQ(model->graph({{"N", 5}}).nodes().size(), 4u) << "the graph's three nodes and the loss";
}

TEST(TrainingInfo, OfOtherOptimizersInTheirOwnTerms) {
  EXPECT_EQ(training_of("adam-later").steps, 4) << "T is 4 in the file, and the optimizer reads T + 1";
  EXPECT_EQ(options_of(training_of("momentum")), (Options{{"optimizer", "sgd"},
                                                          {"momentum", "0.9"},
                                                          {"nesterov", "off"},
                                                          {"weight_decay", "0.01"},
                                                          {"dampening", "0.4"},
                                                          {"learning_rate", "0.2"}}));
  EXPECT_EQ(options_of(training_of("nesterov")).at("nesterov"), "on");
  EXPECT_EQ(options_of(training_of("adagrad")), (Options{{"optimizer", "adagrad"},
                                                         {"epsilon", "1e-05"},
                                                         {"weight_decay", "0.01"},
                                                         {"rate_decay", "0.1"},
                                                         {"learning_rate", "0.2"}}));
  EXPECT_EQ(training_of("adagrad").steps, 2);
  EXPECT_EQ(training_of("adagrad").moments.at("W2"), Names{"v_W2"});
}

TEST(TrainingInfo, WithACountThatStaysZeroCorrectsNothing) {
  const graph::FileTraining training = changed([](GraphProto &, ModelProto &proto) {
    auto &bindings = *proto.mutable_training_info(0)->mutable_update_binding();
    for (int i = 0; i < bindings.size(); ++i)
      if (bindings.Get(i).key() == "T") bindings.DeleteSubrange(i, 1);
  });
  EXPECT_FALSE(training.refusal);
  EXPECT_EQ(options_of(training).at("correction"), "none");
}

TEST(TrainingInfo, WhoseRateIsAnInputLeavesItToTheCaller) {
  const graph::FileTraining training = changed([](GraphProto &algorithm, ModelProto &) {
    node_of(algorithm, "update").set_input(0, "rate");
    algorithm.add_input()->set_name("rate");
  });
  EXPECT_FALSE(training.refusal);
  EXPECT_FALSE(options_of(training).contains("learning_rate"));
}

TEST(TrainingInfo, ThatComputesOtherwiseIsRefusedByNode) {
  EXPECT_EQ(refused([](GraphProto &, ModelProto &) {}), "");
  EXPECT_EQ(refused([](GraphProto &algorithm, ModelProto &) {
              add_node(algorithm, "Mul", {"dW1", "R"}, "clipped");
              node_of(algorithm, "update").set_input(6, "clipped");
            }),
            "make_clipped");
  EXPECT_EQ(refused([](GraphProto &algorithm, ModelProto &) {
              add_node(algorithm, "Mul", {"R", "R"}, "rate");
              node_of(algorithm, "update").set_input(0, "rate");
            }),
            "make_rate");
  EXPECT_EQ(refused([](GraphProto &algorithm, ModelProto &) { node_of(algorithm, "count").set_input(1, "T"); }),
            "count");
  EXPECT_EQ(refused([](GraphProto &algorithm, ModelProto &) { node_of(algorithm, "update").set_op_type("Lamb"); }),
            "update");
  EXPECT_EQ(refused([](GraphProto &algorithm, ModelProto &) {
              auto &attribute = *node_of(algorithm, "update").add_attribute();
              attribute.set_name("norm_coefficient_post");
              attribute.set_f(0.1F);
              attribute.set_type(1);
            }),
            "update");
  EXPECT_EQ(refused([](GraphProto &algorithm, ModelProto &proto) {
              add_node(algorithm, "Mul", {"R", "R"}, "R_new");
              StringPair &binding = *proto.mutable_training_info(0)->add_update_binding();
              binding.set_key("R");
              binding.set_value("R_new");
            }),
            "make_R_new");
  EXPECT_EQ(refused([](GraphProto &, ModelProto &proto) {
              proto.mutable_training_info(0)->mutable_update_binding(5)->set_value("v_W2_new");
            }),
            "update");
  EXPECT_EQ(refused([](GraphProto &, ModelProto &proto) {
              proto.mutable_training_info(0)->add_initialization_binding()->set_key("W1");
            }),
            "training_info");
}

TEST(TrainingInfo, WithoutOneGradientNodeIsRefused) {
  const graph::FileTraining training =
      changed([](GraphProto &algorithm, ModelProto &) { node_of(algorithm, "differentiate").set_domain("com.other"); });
  ASSERT_TRUE(training.refusal);
  EXPECT_EQ(training.loss, "");
}

TEST(TrainingInfo, IsExportedAsTheGraphAlone) {
  const Scratch scratch;
  const auto model = Model::open(path_of("adam"));
  model->save(scratch / "out.onnx", [](auto &&...) { return false; });
  const auto saved = Model::open(scratch / "out.onnx");
  ASSERT_EQ(saved->inputs().size(), 1u);
  ASSERT_EQ(saved->outputs().size(), 1u);
  EXPECT_EQ(saved->outputs()[0].name, "Y");
  EXPECT_FALSE(saved->declared().training);
  EXPECT_FALSE(saved->declared().updated);
  EXPECT_EQ(code_of([&] { saved->load("v_W1"); }), Code::arg);
}

// Mutation can change only the graph of a model. So the algorithm becomes the graph of a model of its own, Mutation
// changes this model, and the changed graph becomes the file's algorithm.
TEST(TrainingInfo, SurvivesChangesOfItsAlgorithm) {
  const Scratch scratch;
  ModelProto whole;
  ASSERT_TRUE(whole.ParseFromString(bytes_of("adam")));
  int followed = 0;
  const std::uint64_t mutations = asked("PROTRAIN_MUTATIONS", 500);
  for (std::uint32_t seed = 0; seed < mutations; ++seed) {
    ModelProto proto = whole, algorithm;
    *algorithm.mutable_graph() = whole.training_info(0).algorithm();
    Mutation dice(seed);
    for (std::size_t n = 1 + dice.below(3); n > 0; --n) dice.change(algorithm);
    *proto.mutable_training_info(0)->mutable_algorithm() = algorithm.graph();
    try {
      const auto model = open_bytes(scratch, proto.SerializeAsString());
      followed += model->declared().training && !model->declared().training->refusal ? 1 : 0;
      model->graph({{"N", 5}});
    } catch (const Error &error) {
      EXPECT_NE(error.code, Code::internal) << error.subject << ": " << error.text;
    }
  }
  EXPECT_GT(followed, 0);
}

}  // namespace
}  // namespace protrain::test::training_info_test
