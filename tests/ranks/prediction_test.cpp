// A prediction by several ranks gives each rank the outputs of its own inputs. They must have the bits that a single
// rank computes, also if each rank holds only its shards of the weights.
#include <gtest/gtest.h>

#include "errors.h"
#include "ranked_training.h"

namespace protrain::test::ranked_prediction_test {
namespace {

constexpr int kRanks = 2;
constexpr const char *kModel = "outputs/classes";

Pairs options_of(const Scratch &scratch) {
  return {{"loss", "cross_entropy"},  {"loss_output", "logits"},
          {"keep_outputs", "logits"}, {"dim", "batch=3"},
          {"threads", "1"},           {"plan", scratch.put("plan.json", R"({"n_whole": 0})")}};
}

void feed_tokens(session::Session &session, int batch) {
  std::vector<std::int64_t> tokens(18);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = (7 * static_cast<std::int64_t>(i) + 3 * batch) % 20;
  session.set_input("tokens", DType::i64, {3, 6}, tokens.data());
}

std::vector<float> predicted(session::Session &session, int batch) {
  feed_tokens(session, batch);
  session.predict();
  std::vector<float> logits(15);
  session.read_output("logits", DType::f32, logits.data(), logits.size() * sizeof(float));
  return logits;
}

TEST(RankedPrediction, HasTheBitsOfOneRank) {
  const Scratch scratch;
  Pairs pairs = options_of(scratch);
  const auto step = [](session::Session &session, int batch) {
    feed_tokens(session, batch);
    const std::vector<std::int64_t> labels = {batch % 5, (batch + 1) % 5, 2};
    session.set_input("labels", DType::i64, {3}, labels.data());
    session.step();
  };
  std::vector<std::vector<float>> found(kRanks);
  const auto errors = ThreadGroup(kRanks).run([&](std::shared_ptr<comm::Channel> channel) {
    const auto session = session_of(pairs, kModel, channel);
    predicted(*session, 0);  // before any labels were set
    for (int i = 0; i < 2; ++i) step(*session, i * kRanks + channel->rank());
    found[static_cast<std::size_t>(channel->rank())] = predicted(*session, channel->rank());
  });
  for (const std::exception_ptr &error : errors)
    if (error) std::rethrow_exception(error);
  pairs.back() = {"accumulation", std::to_string(kRanks)};
  const auto alone = session_of(pairs, kModel, std::shared_ptr(comm::open({})));
  for (int batch = 0; batch < 2 * kRanks; ++batch) step(*alone, batch);
  for (int r = 0; r < kRanks; ++r)
    EXPECT_EQ(std::memcmp(predicted(*alone, r).data(), found[static_cast<std::size_t>(r)].data(), 15 * sizeof(float)),
              0)
        << "rank " << r;
}

TEST(RankedPrediction, IsMadeByAllRanksOrNone) {
  const Scratch scratch;
  const Pairs pairs = options_of(scratch);
  std::vector<Code> codes(kRanks);
  const auto errors = ThreadGroup(kRanks).run([&](std::shared_ptr<comm::Channel> channel) {
    const auto session = session_of(pairs, kModel, channel);
    if (channel->rank() == 0) feed_tokens(*session, 0);
    codes[static_cast<std::size_t>(channel->rank())] = error_of([&] { session->predict(); }).code;
    predicted(*session, 1);
  });
  for (const std::exception_ptr &error : errors) EXPECT_FALSE(error);
  EXPECT_EQ(codes, (std::vector<Code>{Code::peer, Code::state})) << "rank 1 has set no tokens";
}

}  // namespace
}  // namespace protrain::test::ranked_prediction_test
