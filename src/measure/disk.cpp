#include "measure/disk.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "base/on_threads.h"
#include "base/spill_file.h"
#include "measure/load.h"

namespace protrain::measure {

namespace {

using Time = std::chrono::steady_clock;

constexpr std::uint64_t kRegion = 16ull << 20, kRegions = 16;

// A file that is written and read as in a step. All rates are bytes per second.
class Transfers {
 public:
  explicit Transfers(const std::string &directory)
      : file_(directory, kRegion * kRegions), from_(kRegion, "disk profiling"), to_(kRegion, "disk profiling") {
    std::memset(from_.data(), 0x5A, from_.size());
    for (std::uint64_t r = 0; r < kRegions; ++r) file_.declare(r * kRegion, kRegion);
  }

  double write() {
    return rate([&] {
      for (std::uint64_t r = 0; r < kRegions; ++r) write(r);
    });
  }
  double read() {
    return rate([&] {
      for (std::uint64_t r = 0; r < kRegions; ++r) read(r);
    });
  }
  // One thread writes in one half of the file while another reads in the other half, until they have moved as many
  // regions together as the file has.
  double both_ways() {
    std::atomic<std::uint64_t> begun = 0;
    const auto move = [&](std::size_t thread) {
      for (std::uint64_t r = 0; begun.fetch_add(1) < kRegions; r = (r + 1) % (kRegions / 2))
        thread == 0 ? write(r) : read(kRegions / 2 + r);
    };
    return rate([&] { on_threads(2, 2, "profiling", move); });
  }

 private:
  void write(std::uint64_t region) { file_.write(region * kRegion, {from_.data(), kRegion}); }
  void read(std::uint64_t region) { file_.read(region * kRegion, {to_.data(), kRegion}); }

  // `act` moves as many regions as the file has.
  template <typename Do>
  static double rate(Do &&act) {
    const Time::time_point start = Time::now();
    act();
    return static_cast<double>(kRegion * kRegions) / std::chrono::duration<double>(Time::now() - start).count();
  }

  SpillFile file_;
  MemoryBlock from_, to_;
};

}  // namespace

void measure_disk(backend::Device &device, const std::string &directory, profile::Profile &profile) {
  Transfers transfers(directory);
  transfers.write();  // the first write also makes the file system allocate
  profile.disk_write = transfers.write();
  profile.disk_read = transfers.read();
  profile.disk_both_ways = transfers.both_ways();
  if (!profile.shares_cores) return;

  Load load(device);
  double beside = 0;
  profile.compute_beside_disk = load.share_beside([&] { beside = transfers.both_ways(); });
  profile.disk_beside_compute = std::clamp(beside / profile.disk_both_ways, 0.05, 1.0);
}

}  // namespace protrain::measure
