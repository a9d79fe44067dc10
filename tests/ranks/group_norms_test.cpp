// Norms by group in the report of every rank. They are norms of whole gradients, and must have the same bits as the
// norms of a single rank that takes all batches.
#include <gtest/gtest.h>

#include "ranked_training.h"

namespace protrain::test::group_norms_test {
namespace {

constexpr const char *kModel = "gpt2-dynamic-opset18";

// Returns the norms of each rank's report after two steps.
std::vector<nlohmann::json> norms_of(const Group &group, const Pairs &more) {
  Pairs pairs = base_options(kModel);
  pairs.insert(pairs.end(), more.begin(), more.end());
  pairs.emplace_back("accumulation", std::to_string(group.accumulation));
  std::vector<nlohmann::json> norms(static_cast<std::size_t>(group.ranks));
  const auto errors = ThreadGroup(group.ranks).run([&](std::shared_ptr<comm::Channel> channel) {
    const auto session = session_of(pairs, kModel, channel);
    train_share(*session, *channel, group);
    norms[static_cast<std::size_t>(channel->rank())] = nlohmann::json::parse(session->report_json())["grad_norms"];
  });
  for (const std::exception_ptr &error : errors) EXPECT_FALSE(error);
  return norms;
}

TEST(GroupNormsOfRanks, AreThoseOfOneRankBitForBit) {
  for (const Pairs &options : {Pairs{}, Pairs{{"precision", "fp16"}}, Pairs{{"group", "*.bias,weight_decay=0"}}}) {
    const nlohmann::json alone = norms_of({.ranks = 1, .accumulation = 6, .steps = 2}, options).front();
    EXPECT_GE(alone.size(), 2u);
    for (const auto &norm : alone) EXPECT_GT(norm.get<double>(), 0);
    for (const Group &group :
         {Group{.ranks = 3, .accumulation = 2, .steps = 2}, {.ranks = 2, .accumulation = 3, .steps = 2}})
      for (const nlohmann::json &norms : norms_of(group, options)) EXPECT_EQ(norms, alone);
  }
}

}  // namespace
}  // namespace protrain::test::group_norms_test
