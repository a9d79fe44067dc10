// Channels without other ranks: one rank alone, and what a request may say. Ranks that talk: ranks.sh.
#include "comm/channel.h"

#include <gtest/gtest.h>

#include "comm/agree.h"
#include "errors.h"

namespace protrain::comm::channel_test {
namespace {

using namespace std::chrono_literals;
using test::error_of;

TEST(SingleChannel, AgreesWithItself) {
  const std::unique_ptr<Channel> channel = open({.timeout = 1s});
  EXPECT_EQ(channel->rank(), 0);
  EXPECT_EQ(channel->ranks(), 1);
  EXPECT_EQ(gather_values(*channel, 7), std::vector{7});
  EXPECT_EQ(gather_texts(*channel, "alone"), std::vector<std::string>{"alone"});
  EXPECT_NO_THROW(barrier(*channel));
}

TEST(SingleChannel, HasNobodyToSendTo) {
  const std::unique_ptr<Channel> channel = open({.timeout = 1s});
  const std::byte byte{};
  const Send send{1, &byte, 1};
  EXPECT_EQ(error_of([&] { channel->exchange({&send, 1}, {}); }).code, Code::internal);
}

TEST(ChannelRequest, MustNameARankOfTheGroupAndAPlaceToMeet) {
  const ChannelRequest sound{
      .transport = Transport::gloo, .rank = 1, .ranks = 2, .rendezvous = "/tmp/nowhere", .timeout = 1s};
  const auto refused = [&](auto &&change) {
    ChannelRequest request = sound;
    change(request);
    const Error error = error_of([&] { open(request); });
    EXPECT_EQ(error.code, Code::arg);
    return error.subject;
  };
  EXPECT_EQ(refused([](ChannelRequest &request) { request.ranks = 0; }), "ranks");
  EXPECT_EQ(refused([](ChannelRequest &request) { request.rank = 2; }), "rank");
  EXPECT_EQ(refused([](ChannelRequest &request) { request.rank = -1; }), "rank");
  EXPECT_EQ(refused([](ChannelRequest &request) { request.rendezvous.clear(); }), "rendezvous");
  EXPECT_EQ(refused([](ChannelRequest &request) { request.timeout = 0s; }), "comm_timeout");
}

}  // namespace
}  // namespace protrain::comm::channel_test
