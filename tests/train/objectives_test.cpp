// Models that fixtures/make_objectives.py exported without a loss. Options add an objective to such a model. With each
// objective, the session must follow PyTorch's losses for ten AdamW steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "draft/check.h"
#include "draft/loaded_model.h"
#include "scratch.h"
#include "train/command.h"
#include "train/family.h"

namespace protrain::objectives_test {
namespace {

using test::Json;

struct Objective {
  std::string model, name;
};

class Objectives : public testing::TestWithParam<Objective> {
 protected:
  void SetUp() override {
    std::ifstream file(test::fixture("objectives/" + GetParam().model + ".json"));
    golden = Json::parse(file);
    const Json &objective = golden["objectives"][GetParam().name];
    golden["options"] = objective["options"];
    losses = objective["losses"].get<std::vector<double>>();
    norm = objective["grad_norm"];
    loss_of_two = objective["loss_of_two"];
    for (const std::string name : objective["inputs"]) inputs.emplace(name, test::Values(golden["inputs"][name]));
    if (!golden["options"].contains("loss_weights")) inputs.erase("weights");
  }

  std::unique_ptr<session::Session> open(const std::map<std::string, std::string> &more = {}) const {
    return test::open_family("objectives/" + GetParam().model, golden, more);
  }

  void feed(session::Session &session, std::size_t step) const {
    for (const auto &[name, values] : inputs) session.set_input(name, values.dtype, values.batch(), values.at(step));
  }

  Json golden;
  std::vector<double> losses;
  double norm = 0, loss_of_two = 0;
  std::map<std::string, test::Values> inputs;
};

TEST_P(Objectives, FollowPyTorch) {
  const auto session = open();
  for (std::size_t step = 0; step < losses.size(); ++step) {
    feed(*session, step);
    const session::StepResult result = session->step();
    EXPECT_NEAR(result.loss, losses[step], (step == 0 ? 1e-5 : 5e-4) * std::max(1.0, std::abs(losses[step]))) << step;
    if (step == 0) {
      EXPECT_NEAR(result.grad_norm, norm, 1e-4 * norm);
    }
  }
}

// The loss of a step of two batches is the mean of the losses of both. If the objective is a single cross entropy, a
// batch is weighted by the labels in it that count, so the mean is the loss of one large batch. With other objectives,
// both batches have the same weight.
TEST_P(Objectives, OfTwoBatchesAreThoseOfOneLargeBatch) {
  const auto session = open({{"accumulation", "2"}});
  feed(*session, 0);
  session->step();
  feed(*session, 1);
  EXPECT_NEAR(session->step().loss, loss_of_two, 1e-5 * std::max(1.0, loss_of_two));
}

TEST_P(Objectives, HaveTheirBitsUnderAPlanThatMovesAndRecomputes) {
  const test::Scratch scratch;
  const std::string plan =
      scratch.file("plan.json", R"({"n_persist": 0, "n_buffer": 2, "n_checkpoint": 99, "chunk_bytes": 4096})");
  const auto resident = open(),
             planned =
                 open({{"plan", plan}, {"trial", "poison"}, {"device_memory", "64MiB"}, {"host_memory", "64MiB"}});
  for (std::size_t step = 0; step < 3; ++step) {
    feed(*resident, step);
    feed(*planned, step);
    const session::StepResult expected = resident->step(), result = planned->step();
    EXPECT_EQ(result.loss, expected.loss) << step;
    EXPECT_EQ(result.grad_norm, expected.grad_norm) << step;
  }
}

TEST_P(Objectives, KeepTheirLossInBfloat16) {
  const auto session = open({{"precision", "bf16"}});
  for (std::size_t step = 0; step < losses.size(); ++step) {
    feed(*session, step);
    EXPECT_NEAR(session->step().loss, losses[step], 2e-2 * std::max(1.0, losses[step])) << step;
  }
}

// The loss infonce becomes a LinearCrossEntropy node, which computes the similarities in slices. The node must have the
// attribute `panels`. With it, the results have the same bits whatever the size of the slices
// (tests/backend/slices_test.cpp).
TEST(Contrast, IsComputedInSlicesOfPanels) {
  draft::Options options;
  for (const auto &[key, value] : {std::pair("loss", "infonce"), {"dim", "batch=6"}}) options.set(key, value);
  const draft::LoadedModel model =
      draft::load_model(draft::settings_of(options), test::fixture("objectives/embeddings.onnx"));
  const graph::Graph &graph = model.prepared.graph;
  const auto loss = std::ranges::find(graph.nodes(), "LinearCrossEntropy", &graph::Node::op);
  ASSERT_NE(loss, graph.nodes().end());
  EXPECT_EQ(loss->attributes.integer("panels", 0), 1);
}

const auto kName = [](const testing::TestParamInfo<Objective> &info) {
  return info.param.model + "_" + info.param.name;
};
INSTANTIATE_TEST_SUITE_P(Fixtures, Objectives,
                         testing::Values(Objective{"tokens", "smoothed"}, Objective{"tokens", "z_loss"},
                                         Objective{"tokens", "weighted"}, Objective{"tokens", "all"},
                                         Objective{"tokens", "focal"}, Objective{"tokens", "distilled"},
                                         Objective{"tokens", "preferred"}, Objective{"embeddings", "cosine"},
                                         Objective{"embeddings", "triplet"}, Objective{"embeddings", "infonce"},
                                         Objective{"pixels", "segmentation"}, Objective{"pixels", "smoothed"},
                                         Objective{"pixels", "of_classes"}, Objective{"pixels", "weighted"},
                                         Objective{"pixels", "between_nodes"}, Objective{"pixels", "and_between_nodes"},
                                         Objective{"spans", "both_ends"}, Objective{"spans", "with_numbers"},
                                         Objective{"spans", "balanced"}, Objective{"spans", "same_labels"},
                                         Objective{"spans", "itself"}, Objective{"spans", "mean_of_many"},
                                         Objective{"speech", "in_full"}, Objective{"speech", "of_lengths"},
                                         Objective{"speech", "time_first"}, Objective{"speech", "with_classes"}),
                         kName);

}  // namespace
}  // namespace protrain::objectives_test
