#include "measure/disk.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/files.h"
#include "base/on_threads.h"
#include "base/spill_file.h"
#include "measure/load.h"
#include "measure/operands.h"
#include "measure/stopwatch.h"

namespace protrain::measure {

namespace {

constexpr std::uint64_t kFewestRegions = 4, kMostRegions = 16;  // regions that are written and read
constexpr double kSecondsOfFile = 0.1;                          // of writing, after which no more regions are used

// A file that is written and read as in a step. All rates are bytes per second. On a slow disk fewer regions of the
// file are used, so that measuring does not take long.
class Transfers {
 public:
  Transfers(const std::string &directory, const DiskFile &shape)
      : region_(shape.region),
        file_(directory, shape.region * shape.regions),
        from_(incompressible(shape.region)),
        to_(shape.region, "disk profiling") {
    for (std::uint64_t r = 0; r < shape.regions; ++r) file_.declare(r * region_, region_);
    // Writes each region once before rates are measured, because the first write also makes the file system allocate.
    // On a slow disk this ends early, and only the regions written so far are used.
    const double start = steady_now();
    for (; regions_ < kFewestRegions || (regions_ < shape.regions && (steady_now() - start) < kSecondsOfFile);
         regions_ += 2) {
      write(regions_);
      write(regions_ + 1);
    }
  }

  double write() {
    return rate([&] {
      for (std::uint64_t r = 0; r < regions_; ++r) write(r);
    });
  }
  double read() {
    return rate([&] {
      for (std::uint64_t r = 0; r < regions_; ++r) read(r);
    });
  }
  // Returns the rate of writing and reading at the same time. One thread writes the first half of the regions while
  // another reads the second half, until both together have moved regions_ regions.
  double both_ways() {
    std::atomic<std::uint64_t> begun = 0;
    const auto move = [&](std::size_t thread) {
      for (std::uint64_t r = 0; begun.fetch_add(1) < regions_; r = (r + 1) % (regions_ / 2))
        thread == 0 ? write(r) : read(regions_ / 2 + r);
    };
    return rate([&] { on_threads(2, 2, "profiling", move); });
  }

 private:
  void write(std::uint64_t region) { file_.write(region * region_, {from_.data(), region_}); }
  void read(std::uint64_t region) { file_.read(region * region_, {to_.data(), region_}); }

  // Returns the bytes per second of `act`, which must move regions_ regions.
  template <typename Do>
  double rate(Do &&act) const {
    const double start = steady_now();
    act();
    return static_cast<double>(region_ * regions_) / (steady_now() - start);
  }

  const std::uint64_t region_;  // bytes
  SpillFile file_;
  MemoryBlock from_, to_;
  std::uint64_t regions_ = 0;  // regions in use, an even number
};

}  // namespace

MemoryBlock incompressible(std::uint64_t bytes) {
  MemoryBlock block(bytes, "disk profiling");
  const std::vector<std::byte> tile = random_tile(DType::f32, bytes, true);
  for (std::uint64_t done = 0; done < bytes; done += tile.size())
    std::memcpy(block.data() + done, tile.data(), std::min<std::uint64_t>(tile.size(), bytes - done));
  return block;
}

DiskFile disk_file_within(std::uint64_t free) {
  constexpr std::uint64_t kLargest = 16ull << 20, kSmallest = 1ull << 20;
  const std::uint64_t room = free / 2;
  const std::uint64_t region = std::clamp(room / kFewestRegions / kSmallest * kSmallest, kSmallest, kLargest);
  const std::uint64_t regions = std::clamp(room / region / 2 * 2, kFewestRegions, kMostRegions);
  return {region, regions};
}

void measure_disk(backend::Device &device, const std::string &directory, profile::Profile &profile) {
  Transfers transfers(directory, disk_file_within(free_space(directory)));
  profile.disk_write = transfers.write();
  profile.disk_read = transfers.read();
  profile.disk_both_ways = transfers.both_ways();
  if (!profile.shares_cores) return;

  Load load(device);
  double beside = 0;  // the best of several rates
  profile.compute_beside_disk = load.share_beside([&] { beside = std::max(beside, transfers.both_ways()); });
  profile.disk_beside_compute = std::clamp(beside / profile.disk_both_ways, 0.05, 1.0);
}

}  // namespace protrain::measure
