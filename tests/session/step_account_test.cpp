// StepAccount, which keeps account of a step: weights of micro-batches, losses, norms, counters, and the start of the
// next step.
#include "session/step_account.h"

#include <gtest/gtest.h>

#include <cmath>

#include "errors.h"

namespace protrain::session::step_account_test {
namespace {

using test::error_of;

constexpr program::StatusWord kLoss = program::StatusWord::loss();
constexpr program::StatusWord kGradient = program::StatusWord::gradient(3);  // the gradient of parameter 3

StepAccount account(const StepAccount::Terms &terms, const Counters &counters = {}) { return {terms, counters}; }

backend::StepScalars scalars_of(const StepAccount &account) { return account.scalars({}, {}); }

TEST(StepAccount, OfOneBatchGivesBackItsLossAndNorm) {
  StepAccount books = account({});
  EXPECT_TRUE(books.is_last());
  const auto result = books.add({.batches = {{.loss = 1.5F}}, .norm = 2}, 0.25);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->loss, 1.5F);
  EXPECT_EQ(result->grad_norm, 2);
  EXPECT_EQ(books.counters().steps, 1u);
  EXPECT_EQ(books.grad_norm(), 2);
  EXPECT_EQ(books.gradient_factor("w"), 1);
  EXPECT_EQ(books.seconds(), 0.25);
}

TEST(StepAccount, WeighsMicroBatchesByTheirTargets) {
  StepAccount books = account({.accumulation = 3});
  EXPECT_EQ(books.add({.batches = {{.loss = 4, .weight = 1}}}, 1)->loss, 4.0F) << "each tells its own";
  EXPECT_FALSE(books.is_last());
  EXPECT_EQ(books.add({.batches = {{.loss = NAN, .weight = 0}}}, 1)->grad_norm, 0)
      << "a batch without targets has no loss";
  EXPECT_TRUE(books.is_last());
  const auto result = books.add({.batches = {{.loss = 2, .weight = 3}}, .norm = 5}, 1);
  EXPECT_EQ(result->loss, 2.5F);
  EXPECT_EQ(books.gradient_factor("w"), 0.25) << "sums of gradients are as many times too large";
  EXPECT_EQ(books.seconds(), 3);
  EXPECT_EQ(books.counters().steps, 1u);
  books.add({}, 1);
  EXPECT_EQ(books.seconds(), 1) << "of the next step";
}

TEST(StepAccount, CountsWeightsBelowZeroToo) {
  StepAccount books = account({.accumulation = 2});
  books.add({.batches = {{.loss = 4, .weight = -1}}}, 1);
  EXPECT_EQ(books.add({.batches = {{.loss = 2, .weight = -3}}}, 1)->loss, 2.5F);
}

TEST(StepAccount, OfSeveralRanksIsThatOfOneRankWithAsManyMicroBatches) {
  const RoundNumbers::Batch batches[] = {
      {.loss = 4, .weight = 1}, {.loss = NAN, .weight = 0}, {.loss = 2, .weight = 3}, {.loss = 0.1F, .weight = 7}};
  StepAccount one = account({.accumulation = 4}), two = account({.accumulation = 4, .ranks = 2});
  std::optional<StepResult> of_one, of_two;
  for (const auto &batch : batches) of_one = one.add({.batches = {batch}, .norm = 5, .samples = 8}, 1);
  EXPECT_FALSE(two.is_last());
  two.add({.batches = {batches[0], batches[1]}, .samples = 8}, 1);
  EXPECT_TRUE(two.is_last());
  EXPECT_EQ(scalars_of(two).micro_batch, 2u);
  EXPECT_EQ(scalars_of(two).first_sample, 16u);
  of_two = two.add({.batches = {batches[2], batches[3]}, .norm = 5, .samples = 8}, 1);
  EXPECT_EQ(of_one->loss, of_two->loss);
  EXPECT_EQ(one.gradient_factor("w"), two.gradient_factor("w"));
  EXPECT_EQ(two.counters().steps, 1u);
}

TEST(StepAccount, LeavesTheFirstStepOfTheOptimizerToTheFirstCompleteStep) {
  StepAccount books = account({});
  books.count_half_applied();
  books.count_half_applied();
  EXPECT_EQ(books.counters().steps, 2u);
  EXPECT_EQ(books.counters().skipped, 2u);
  books.add({}, 0);
  books.count_half_applied();
  EXPECT_EQ(books.counters().steps, 4u);
  EXPECT_EQ(books.counters().skipped, 2u) << "the optimizer counts it, because some parameters took it";
}

TEST(StepAccount, NumbersTheSamplesOfAStep) {
  StepAccount books = account({.accumulation = 3}, {.steps = 7, .skipped = 2, .seed = 5});
  for (const std::uint64_t samples : {4u, 2u, 8u}) {
    const backend::StepScalars scalars = scalars_of(books);
    EXPECT_EQ(scalars.step, 8u);
    EXPECT_EQ(scalars.seed, 5u);
    EXPECT_EQ(scalars.first_sample, samples == 4 ? 0u : samples == 2 ? 4u : 6u);
    EXPECT_EQ(scalars.micro_batch, samples == 4 ? 0u : samples == 2 ? 1u : 2u);
    books.add({.samples = samples}, 0);
  }
  EXPECT_EQ(scalars_of(books).step, 9u);
  EXPECT_EQ(scalars_of(books).first_sample, 0u);
}

TEST(StepAccount, HasTheLearningRateOfEachStep) {
  StepAccount books = account({.accumulation = 2, .schedule = {.warmup = 4}, .learning_rate = 8}, {.steps = 1});
  EXPECT_EQ(books.learning_rate(), 4) << "step 2";
  EXPECT_EQ(books.last_learning_rate(), 4) << "before the first step";
  books.add({}, 0);
  EXPECT_EQ(books.learning_rate(), 4) << "amid the step";
  EXPECT_EQ(books.add({}, 0)->learning_rate, 4);
  EXPECT_EQ(books.learning_rate(), 6);
  books.set_learning_rate(1);
  EXPECT_EQ(books.learning_rate(), 0.75);
  EXPECT_EQ(books.last_learning_rate(), 4);
}

TEST(StepAccount, RefusesWhatIsNotFiniteAndBeginsAnew) {
  StepAccount books = account({.accumulation = 2});
  books.add({.batches = {{.loss = 1}}}, 0);
  EXPECT_FALSE(books.add({.status = kGradient, .batches = {{.loss = 1}}}, 0).has_value());
  EXPECT_EQ(books.counters().steps, 0u);
  EXPECT_FALSE(books.is_last());
  EXPECT_EQ(scalars_of(books).first_sample, 0u);
  books.add({.batches = {{.loss = 3}}}, 0);
  EXPECT_EQ(books.add({.batches = {{.loss = 5}}}, 0)->loss, 4.0F) << "nothing of the step before is in it";
}

TEST(StepAccount, SkipsAStepThatOneBatchHasSpoilt) {
  StepAccount books = account({.accumulation = 2, .skips = true});
  EXPECT_TRUE(books.status().finite());
  ASSERT_TRUE(books.add({.status = kLoss}, 0).has_value());
  EXPECT_EQ(books.status(), kLoss) << "no Update of the step is to run";
  ASSERT_TRUE(books.add({.status = kLoss}, 0).has_value());
  EXPECT_EQ(books.counters().steps, 1u);
  EXPECT_EQ(books.counters().skipped, 1u);
  EXPECT_TRUE(books.status().finite());
  EXPECT_EQ(scalars_of(books).step, 2u);
}

TEST(StepAccount, HalvesTheLossScaleWhereGradientsOverflow) {
  StepAccount books = account({.scales_loss = true});
  const std::uint64_t first = books.loss_scale();
  EXPECT_EQ(scalars_of(books).loss_scale, static_cast<double>(first));
  ASSERT_TRUE(books.add({.status = kGradient}, 0).has_value());
  EXPECT_EQ(books.loss_scale(), first / 2);
  EXPECT_EQ(books.counters().skipped, 1u);
  EXPECT_EQ(books.gradient_factor("w"), 1 / static_cast<double>(first)) << "they were made with the scale before";
  EXPECT_FALSE(books.add({.status = kLoss}, 0).has_value()) << "no scale mends a loss";
  EXPECT_EQ(books.loss_scale(), first / 2);
}

TEST(StepAccount, RefusesGradientsThatOverflowAtTheLeastScale) {
  StepAccount books = account({.scales_loss = true}, {.loss_scale = LossScale(LossScale::kLeast, 0)});
  EXPECT_FALSE(books.add({.status = kGradient}, 0).has_value());
}

TEST(StepAccount, KnowsNoScaleWhereNoneIsAskedFor) {
  StepAccount books = account({});
  EXPECT_EQ(books.loss_scale(), 1u);
  EXPECT_FALSE(books.add({.status = kGradient}, 0).has_value());
}

TEST(StepAccount, HasGradientsAfterACompleteStepUntilTheNextBatch) {
  StepAccount books = account({.accumulation = 2});
  const auto code = [&] { return error_of([&] { books.gradient_factor("w"); }).code; };
  EXPECT_EQ(code(), Code::state) << "before the first step";
  EXPECT_EQ(error_of([&] { books.grad_norm(); }).code, Code::state);
  for (int batch = 0; batch < 2; ++batch) {
    books.begin_batch();
    books.add({.batches = {{.loss = 1}}}, 0);
    EXPECT_EQ(code(), batch == 0 ? Code::state : Code::ok) << batch;
  }
  books.begin_batch();
  books.begin_anew();
  EXPECT_EQ(code(), Code::state) << "a call that failed has overwritten them";
  EXPECT_NO_THROW(books.require_complete("session", ""));
  books.add({}, 0);
  const Error error = error_of([&] { books.require_complete("session", "; wait"); });
  EXPECT_EQ(error.code, Code::state);
  EXPECT_EQ(error.text, "the step is not complete: 1 of 2 batches; wait");
}

}  // namespace
}  // namespace protrain::session::step_account_test
