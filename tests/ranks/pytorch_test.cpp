// Ranks that divide a batch among them follow PyTorch's losses on the whole batch.
#include <gtest/gtest.h>

#include "ranked_training.h"

namespace protrain::test::ranked_pytorch_test {
namespace {

constexpr int kRanks = 2;
static_assert(kBatch == kRanks);  // each rank takes one sample of the batch

class RanksFollowPyTorch : public testing::TestWithParam<std::string> {};

TEST_P(RanksFollowPyTorch, ForTenSteps) {
  const nlohmann::json expected = golden(family_of(GetParam()));
  const auto number = [&](const char *key) { return expected["optimizer"][key].dump(); };
  const Pairs pairs = {{"dim", "batch=1"},
                       {"dim", "sequence=" + std::to_string(kSequence)},
                       {"learning_rate", number("lr")},
                       {"beta1", expected["optimizer"]["betas"][0].dump()},
                       {"beta2", expected["optimizer"]["betas"][1].dump()},
                       {"epsilon", number("eps")},
                       {"weight_decay", number("weight_decay")},
                       {"threads", "1"}};
  const std::vector<std::int64_t> ids = load_tokens("input_ids.npy"), labels = load_tokens("labels.npy");
  const std::vector<double> losses = expected["losses"], norms = expected["grad_norms"];
  const auto errors = ThreadGroup(kRanks).run([&](std::shared_ptr<comm::Channel> channel) {
    const auto session = session_of(pairs, GetParam(), channel);
    for (std::size_t step = 0; step < losses.size(); ++step) {
      const std::ptrdiff_t sample = std::ptrdiff_t{channel->rank()} * kSequence;
      session->set_input("input_ids", DType::i64, {1, kSequence}, batch(ids, static_cast<int>(step)) + sample);
      session->set_input("labels", DType::i64, {1, kSequence}, batch(labels, static_cast<int>(step)) + sample);
      const session::StepResult result = session->step();
      EXPECT_NEAR(result.loss, losses[step], (step == 0 ? 2e-6 : 5e-4) * losses[step]) << "step " << step + 1;
      EXPECT_NEAR(result.grad_norm, norms[step], (step == 0 ? 1e-5 : 1e-2) * norms[step]) << "step " << step + 1;
    }
  });
  for (const std::exception_ptr &error : errors)
    if (error) std::rethrow_exception(error);
}

INSTANTIATE_TEST_SUITE_P(Models, RanksFollowPyTorch,
                         testing::Values("gpt2-dynamic-opset18", "llama-dynamic-opset23", "opt-dynamic-opset18",
                                         "mistral-dynamic-opset23"),
                         model_name);

}  // namespace
}  // namespace protrain::test::ranked_pytorch_test
