// Channels that need no other process: a rank alone, the checks of a ChannelRequest, and helpers of agree.h. ranks.sh
// tests ranks that exchange bytes.
#include "comm/channel.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "comm/address.h"
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
  const ChannelRequest sound{.transport = Transport::gloo, .rank = 1, .ranks = 2, .rendezvous = "/tmp", .timeout = 1s};
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

TEST(ChannelRequest, MeetsInAFolderThatIsThereOrAtAHostAndAPort) {
  const auto refused = [&](const std::string &rendezvous) {
    const Error error = error_of(
        [&] { open({.transport = Transport::gloo, .rank = 1, .ranks = 2, .rendezvous = rendezvous, .timeout = 1s}); });
    EXPECT_EQ(error.code, Code::arg) << rendezvous;
    EXPECT_EQ(error.subject, "rendezvous");
    return error.text;
  };
  for (const char *rendezvous : {"host", "host:", ":29500", "host:0", "host:65536", "host:-1", "host:12x", "::1:29500",
                                 "[]:29500", "[::1]", "host:\n", "a host:29500", "\x1b[31m:29500"})
    EXPECT_NE(refused(rendezvous).find("HOST:PORT"), std::string::npos) << rendezvous;
  EXPECT_NE(refused("/no/such/folder").find("/no/such/folder"), std::string::npos);
  EXPECT_NE(refused("/dev/null").find("no folder"), std::string::npos);
}

TEST(Address, IsAHostAndAPort) {
  const auto parts = [](std::string_view text) {
    const std::optional<Address> address = address_of(text);
    return address ? address->host + ' ' + address->port : "";
  };
  EXPECT_EQ(parts("node7:29500"), "node7 29500");
  EXPECT_EQ(parts("10.0.0.1:1"), "10.0.0.1 1");
  EXPECT_EQ(parts("[fe80::1]:65535"), "fe80::1 65535");
}

// Rank 0's channel to ranks 1 and 2. Both ranks send back the bytes that they get, but rank 1 changes a bit of every
// text.
class EchoChannel final : public Channel {
 public:
  int rank() const override { return 0; }
  int ranks() const override { return 3; }
  void exchange(std::span<const Send> sends, std::span<const Receive> receives) override {
    for (const Receive &receive : receives)
      for (const Send &send : sends)
        if (send.rank == receive.rank) std::copy_n(send.data, receive.bytes, receive.data);
    for (const Receive &receive : receives)
      if (receive.rank == 1 && receive.bytes > sizeof(std::uint64_t)) receive.data[receive.bytes - 2] ^= std::byte{1};
  }
  void abort(const std::string &) noexcept override {}
  void throw_if_failed() override {}
};

TEST(RanksOfThisMachine, AreThoseWithItsName) {
  EchoChannel channel;
  EXPECT_EQ(ranks_of_this_machine(channel), (std::vector{0, 2}));
  EXPECT_EQ(ranks_of_this_machine(*open({.timeout = 1s})), std::vector{0});
}

TEST(BroadcastText, IsRank0s) {
  EXPECT_EQ(broadcast_text(*open({.timeout = 1s}), "a plan"), "a plan");
  EXPECT_EQ(broadcast_text(*open({.timeout = 1s}), ""), "");
}

}  // namespace
}  // namespace protrain::comm::channel_test
