#include "measure/link.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "comm/agree.h"

namespace protrain::measure {

namespace {

constexpr int kRounds = 5;
constexpr std::uint64_t kSmall = 8, kLarge = 4ull << 20;  // bytes that go to each other rank

// Memory for messages, on the device or on the host.
class Messages {
 public:
  Messages(backend::Device *device, std::uint64_t bytes)
      : device_(device),
        bytes_(device == nullptr ? bytes : 0),
        there_(device == nullptr ? nullptr : device->allocate(bytes)) {}
  ~Messages() {
    if (there_ != nullptr) device_->release(there_);
  }
  Messages(const Messages &) = delete;
  Messages &operator=(const Messages &) = delete;
  std::byte *data() { return there_ != nullptr ? static_cast<std::byte *>(there_) : bytes_.data(); }

 private:
  backend::Device *const device_;
  std::vector<std::byte> bytes_;
  void *const there_;
};

// Returns the least seconds of an exchange of `bytes` with each other rank.
double seconds_of(const Link &link, std::uint64_t bytes) {
  const auto others = static_cast<std::size_t>(link.steps.ranks() - 1);
  Messages out(link.device, bytes), in(link.device, bytes * others);
  std::vector<comm::Send> sends;
  std::vector<comm::Receive> receives;
  for (int r = 0; r < link.steps.ranks(); ++r) {
    if (r == link.steps.rank()) continue;
    receives.push_back({r, in.data() + bytes * receives.size(), bytes});
    sends.push_back({r, out.data(), bytes});
  }
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    comm::barrier(link.hosts);
    const auto start = std::chrono::steady_clock::now();
    link.steps.exchange(sends, receives);
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return std::ranges::max(comm::gather_values(link.hosts, least));
}

}  // namespace

void measure_link(const Link &link, profile::Profile &profile) {
  const double small = seconds_of(link, kSmall), large = seconds_of(link, kLarge);
  const auto bytes = static_cast<double>(kLarge) * static_cast<double>(link.steps.ranks() - 1);
  profile.link_seconds = small;
  profile.link = bytes / std::max(large - small, large / 10);
}

}  // namespace protrain::measure
