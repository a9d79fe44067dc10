#include "measure/link.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "comm/agree.h"

namespace protrain::measure {

namespace {

constexpr int kRounds = 5;
constexpr std::uint64_t kSmall = 8, kLarge = 4ull << 20;  // bytes that go to each other rank

// Returns the least seconds of an exchange of `bytes` with each other rank.
double seconds_of(comm::Channel &channel, std::uint64_t bytes) {
  const auto others = static_cast<std::size_t>(channel.ranks() - 1);
  std::vector<std::byte> out(bytes), in(bytes * others);
  std::vector<comm::Send> sends;
  std::vector<comm::Receive> receives;
  for (int r = 0; r < channel.ranks(); ++r) {
    if (r == channel.rank()) continue;
    receives.push_back({r, in.data() + bytes * receives.size(), bytes});
    sends.push_back({r, out.data(), bytes});
  }
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    comm::barrier(channel);
    const auto start = std::chrono::steady_clock::now();
    channel.exchange(sends, receives);
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return std::ranges::max(comm::gather_values(channel, least));
}

}  // namespace

void measure_link(comm::Channel &channel, profile::Profile &profile) {
  const double small = seconds_of(channel, kSmall), large = seconds_of(channel, kLarge);
  const auto bytes = static_cast<double>(kLarge) * static_cast<double>(channel.ranks() - 1);
  profile.link_seconds = small;
  profile.link = bytes / std::max(large - small, large / 10);
}

}  // namespace protrain::measure
