// An evaluation by several ranks gives every rank the mean loss over the batches of all ranks. A single rank that takes
// the same batches in one step must get the same loss.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "errors.h"
#include "ranked_training.h"

namespace protrain::test::ranked_evaluation_test {
namespace {

constexpr int kRanks = 3;

// Sets the inputs of batch `number`. Its first `ignored` labels do not count.
void feed_ignoring(session::Session &session, int number, std::size_t ignored) {
  feed(session, number);
  std::vector<std::int64_t> labels(std::size_t{kBatch} * kSequence);
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = i < ignored ? -100 : static_cast<std::int64_t>(i % 7);
  session.set_input("labels", DType::i64, {kBatch, kSequence}, labels.data());
}

class RankedEvaluation : public testing::TestWithParam<std::string> {
 protected:
  // The loss of each rank's evaluation, by sessions with this option `mode`. `ignored` has, for each rank, the number
  // of labels that do not count.
  std::vector<float> evaluated(const std::vector<std::size_t> &ignored, const char *mode) const {
    std::vector<float> losses(kRanks);
    const auto errors = ThreadGroup(kRanks).run([&](std::shared_ptr<comm::Channel> channel) {
      Pairs pairs = base_options(GetParam());
      pairs.emplace_back("mode", mode);
      const auto session = session_of(pairs, GetParam(), channel);
      feed_ignoring(*session, channel->rank(), ignored[static_cast<std::size_t>(channel->rank())]);
      losses[static_cast<std::size_t>(channel->rank())] = session->evaluate();
    });
    for (const std::exception_ptr &error : errors)
      if (error) std::rethrow_exception(error);
    return losses;
  }
  // The loss of a step in which a single rank takes the batches of all ranks.
  float of_a_step(const std::vector<std::size_t> &ignored) const {
    Pairs pairs = base_options(GetParam());
    pairs.emplace_back("accumulation", std::to_string(kRanks));
    const auto session = session_of(pairs, GetParam(), std::shared_ptr(comm::open({})));
    float loss = 0;
    for (int i = 0; i < kRanks; ++i) {
      feed_ignoring(*session, i, ignored[static_cast<std::size_t>(i)]);
      loss = session->step().loss;
    }
    return loss;
  }
};

TEST_P(RankedEvaluation, IsTheLossOfAStepOverTheSameBatchesBitForBit) {
  constexpr std::size_t kAll = std::size_t{kBatch} * kSequence;
  for (const std::vector<std::size_t> &ignored : {std::vector<std::size_t>{0, 0, 0}, {5, kAll - 1, 9}, {0, kAll, 2}}) {
    const float expected = of_a_step(ignored);
    for (const char *mode : {"train", "eval"})
      for (const float loss : evaluated(ignored, mode))
        EXPECT_EQ(std::bit_cast<std::uint32_t>(loss), std::bit_cast<std::uint32_t>(expected)) << loss << expected;
  }
}

TEST_P(RankedEvaluation, OfNoTargetsAtAllIsNotFiniteOnEveryRank) {
  constexpr std::size_t kAll = std::size_t{kBatch} * kSequence;
  const auto errors = ThreadGroup(kRanks).run([&](std::shared_ptr<comm::Channel> channel) {
    const auto session = session_of(base_options(GetParam()), GetParam(), channel);
    feed_ignoring(*session, 0, kAll);
    const Error error = error_of([&] { session->evaluate(); });
    EXPECT_EQ(error.code, Code::nonfinite);
    EXPECT_EQ(error.subject, "targets");
    feed(*session, channel->rank());
    session->evaluate();
  });
  for (const std::exception_ptr &error : errors) EXPECT_FALSE(error);
}

TEST_P(RankedEvaluation, NamesWhatHoldsANaNOnEveryRank) {
  const auto errors = ThreadGroup(kRanks).run([&](std::shared_ptr<comm::Channel> channel) {
    const auto session = session_of(base_options(GetParam()), GetParam(), channel);
    feed(*session, channel->rank());
    const float loss = session->evaluate();
    const std::string name = session->parameter_name(0);
    std::vector<float> values(static_cast<std::size_t>(element_count(session->parameter_shape(0))));
    session->read_parameter(name, values.data(), values.size());
    std::vector<float> broken = values;
    std::ranges::fill(broken, std::numeric_limits<float>::quiet_NaN());
    session->write_parameter(name, broken.data(), broken.size());
    const Error error = error_of([&] { session->evaluate(); });
    EXPECT_EQ(error.code, Code::nonfinite);
    EXPECT_EQ(error.text, "the loss is not finite; the parameter " + name + " holds a NaN itself");
    session->write_parameter(name, values.data(), values.size());
    EXPECT_EQ(session->evaluate(), loss);
  });
  for (const std::exception_ptr &error : errors) EXPECT_FALSE(error);
}

// Calls Ranks::mean on each rank. Rank r has the loss r + 1 and weights[r].
std::vector<float> means(const std::vector<double> &weights) {
  std::vector<float> losses(weights.size());
  const auto errors = ThreadGroup(static_cast<int>(weights.size())).run([&](std::shared_ptr<comm::Channel> channel) {
    const auto r = static_cast<std::size_t>(channel->rank());
    losses[r] = session::Ranks(*channel).mean({.loss = static_cast<float>(r + 1), .weight = weights[r]});
  });
  for (const std::exception_ptr &error : errors)
    if (error) std::rethrow_exception(error);
  return losses;
}

TEST(MeanOfRanks, CountsWeightsBelowZeroToo) {
  EXPECT_EQ(means({-1, 0, -3}), std::vector<float>(3, 2.5F));
  EXPECT_EQ(means({2, -1}), std::vector<float>(2, 0));
}

TEST(MeanOfRanks, IsNotFiniteIfAWeightIsNot) {
  for (const std::vector<double> &weights : {std::vector<double>{NAN}, {1, NAN}, {INFINITY, 1}}) {
    const Error error = error_of([&] { means(weights); });
    EXPECT_EQ(error.code, Code::nonfinite) << weights.size();
    EXPECT_EQ(error.subject, "loss");
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RankedEvaluation, testing::Values("gpt2-dynamic-opset18"), model_name);

}  // namespace
}  // namespace protrain::test::ranked_evaluation_test
