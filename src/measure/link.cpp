#include "measure/link.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "comm/agree.h"
#include "measure/load.h"

namespace protrain::measure {

namespace {

constexpr int kRounds = 5;
constexpr std::uint64_t kSmall = 64;                            // bytes of a message that shows the latency alone
constexpr std::uint64_t kLeast = 64 << 10, kMost = 4ull << 20;  // limits of the bytes of a message that shows the rate
constexpr double kBeside = 0.05;                                // seconds that all exchanges beside compute take, about
constexpr int kFewestBeside = 3, kMostBeside = 20;              // limits of the number of these exchanges

// Memory for one message of up to `bytes` to or from each rank, on the device or on the host.
class Messages {
 public:
  Messages(backend::Device &device, const Link &link, std::uint64_t bytes)
      : device_(device),
        bytes_(bytes),
        on_host_(link.on_device ? 0 : bytes_of_all(link)),
        on_device_(link.on_device ? static_cast<std::byte *>(device.allocate(bytes_of_all(link))) : nullptr) {}
  ~Messages() {
    if (on_device_ != nullptr) device_.release(on_device_);
  }
  Messages(const Messages &) = delete;
  Messages &operator=(const Messages &) = delete;

  std::byte *of_rank(int rank) {
    return (on_device_ != nullptr ? on_device_ : on_host_.data()) + bytes_ * static_cast<std::uint64_t>(rank);
  }

 private:
  std::uint64_t bytes_of_all(const Link &link) const { return bytes_ * static_cast<std::uint64_t>(link.steps.ranks()); }

  backend::Device &device_;
  const std::uint64_t bytes_;
  std::vector<std::byte> on_host_;
  std::byte *const on_device_;
};

// Times exchanges like those of a step: each rank sends a part to every other rank, and copies its own part.
class Exchange {
 public:
  Exchange(backend::Device &device, const Link &link, std::uint64_t most)
      : device_(device), link_(link), out_(device, link, most), in_(device, link, most) {}

  double seconds(std::uint64_t bytes) {
    std::vector<comm::Send> sends;
    std::vector<comm::Receive> receives;
    const int own = link_.steps.rank();
    for (int r = 0; r < link_.steps.ranks(); ++r) {
      if (r == own) continue;
      sends.push_back({r, out_.of_rank(r), bytes});
      receives.push_back({r, in_.of_rank(r), bytes});
    }
    comm::barrier(link_.hosts);
    const auto start = std::chrono::steady_clock::now();
    device_.copy_alone({.to = in_.of_rank(own), .from = out_.of_rank(own), .bytes = bytes});
    link_.steps.exchange(sends, receives);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  // Times several exchanges on every rank, and takes each rank's least time. Returns the longest of these times.
  double least(std::uint64_t bytes) {
    double least = std::numeric_limits<double>::infinity();
    for (int round = 0; round < kRounds; ++round) least = std::min(least, seconds(bytes));
    return std::ranges::max(comm::gather_values(link_.hosts, least));
  }

 private:
  backend::Device &device_;
  const Link &link_;
  Messages out_, in_;
};

}  // namespace

void measure_link(backend::Device &device, const Link &link, std::uint64_t bytes, profile::Profile &profile) {
  bytes = std::clamp(bytes, kLeast, kMost);
  Exchange exchange(device, link, bytes);
  const double small = exchange.least(kSmall), large = exchange.least(bytes);
  profile.link_seconds = small;
  profile.link = static_cast<double>(bytes) * (link.steps.ranks() - 1) / std::max(large - small, large / 10);
  if (!profile.shares_cores) return;
  const int count = static_cast<int>(std::clamp(kBeside / large, double{kFewestBeside}, double{kMostBeside}));
  double together = std::numeric_limits<double>::infinity();  // the least of several times
  const double share = Load(device).share_beside([&] {
    double seconds = 0;
    for (int i = 0; i < count; ++i) seconds += exchange.seconds(bytes);
    together = std::min(together, seconds);
  });
  profile.compute_beside_link = std::ranges::min(comm::gather_values(link.hosts, share));
  together = std::ranges::max(comm::gather_values(link.hosts, together));
  profile.link_beside_compute = std::clamp(count * large / together, 0.05, 1.0);
}

}  // namespace protrain::measure
