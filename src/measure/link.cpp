#include "measure/link.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <vector>

#include "comm/agree.h"
#include "measure/load.h"

namespace protrain::measure {

namespace {

constexpr int kRounds = 5;
constexpr std::uint64_t kSmall = 64, kLarge = 4ull << 20;  // bytes that go to each rank
constexpr double kBeside = 0.05;                           // seconds of exchanges beside compute, about
constexpr int kFewest = 3, kMost = 20;                     // such exchanges

// An exchange as a step has it: every rank has a part for each rank, and copies the one that is its own.
class Exchange {
 public:
  explicit Exchange(comm::Channel &channel)
      : channel_(channel),
        out_(kLarge * static_cast<std::uint64_t>(channel.ranks())),
        in_(kLarge * static_cast<std::uint64_t>(channel.ranks())) {}

  double seconds(std::uint64_t bytes) {
    std::vector<comm::Send> sends;
    std::vector<comm::Receive> receives;
    for (int r = 0; r < channel_.ranks(); ++r) {
      if (r == channel_.rank()) continue;
      const std::uint64_t at = kLarge * static_cast<std::uint64_t>(r);
      sends.push_back({r, out_.data() + at, bytes});
      receives.push_back({r, in_.data() + at, bytes});
    }
    const std::uint64_t own = kLarge * static_cast<std::uint64_t>(channel_.rank());
    comm::barrier(channel_);
    const auto start = std::chrono::steady_clock::now();
    std::memcpy(in_.data() + own, out_.data() + own, bytes);
    channel_.exchange(sends, receives);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  // The least of some exchanges, of the rank where it is the most.
  double least(std::uint64_t bytes) {
    double least = std::numeric_limits<double>::infinity();
    for (int round = 0; round < kRounds; ++round) least = std::min(least, seconds(bytes));
    return std::ranges::max(comm::gather_values(channel_, least));
  }

 private:
  comm::Channel &channel_;
  std::vector<std::byte> out_, in_;
};

}  // namespace

void measure_link(backend::Device &device, comm::Channel &channel, profile::Profile &profile) {
  Exchange exchange(channel);
  const double small = exchange.least(kSmall), large = exchange.least(kLarge);
  const auto bytes = static_cast<double>(kLarge) * static_cast<double>(channel.ranks() - 1);
  profile.link_seconds = small;
  profile.link = bytes / std::max(large - small, large / 10);
  if (!profile.shares_cores) return;
  const int count = static_cast<int>(std::clamp(kBeside / large, double{kFewest}, double{kMost}));
  double together = 0;
  const double share = Load(device).share_beside([&] {
    for (int i = 0; i < count; ++i) together += exchange.seconds(kLarge);
  });
  profile.compute_beside_link = std::ranges::min(comm::gather_values(channel, share));
  together = std::ranges::max(comm::gather_values(channel, together));
  profile.link_beside_compute = std::clamp(count * large / together, 0.05, 1.0);
}

}  // namespace protrain::measure
