#include "measure/disk.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/spill_file.h"
#include "measure/load.h"

namespace protrain::measure {

namespace {

using Time = std::chrono::steady_clock;

constexpr std::uint64_t kRegion = 16ull << 20, kRegions = 16;

// A file that is written and read as in a step.
class Transfers {
 public:
  explicit Transfers(const std::string &directory)
      : file_(directory, kRegion * kRegions), memory_(kRegion, "disk profiling") {
    std::memset(memory_.data(), 0x5A, memory_.size());
    for (std::uint64_t r = 0; r < kRegions; ++r) file_.declare(r * kRegion, kRegion);
  }

  double write() {
    return rate([&](std::uint64_t offset) { file_.write(offset, {memory_.data(), kRegion}); });
  }
  double read() {
    return rate([&](std::uint64_t offset) { file_.read(offset, {memory_.data(), kRegion}); });
  }

 private:
  template <typename Do>
  double rate(Do &&act) {
    const Time::time_point start = Time::now();
    for (std::uint64_t r = 0; r < kRegions; ++r) act(r * kRegion);
    return static_cast<double>(kRegion * kRegions) / std::chrono::duration<double>(Time::now() - start).count();
  }

  SpillFile file_;
  MemoryBlock memory_;
};

}  // namespace

void measure_disk(backend::Device &device, const std::string &directory, profile::Profile &profile) {
  Transfers transfers(directory);
  transfers.write();  // the first write also makes the file system allocate
  profile.disk_write = transfers.write();
  profile.disk_read = transfers.read();
  if (!profile.shares_cores) return;

  Load load(device);
  double write = 0, read = 0;
  profile.compute_beside_disk = load.share_beside([&] {
    write = transfers.write();
    read = transfers.read();
  });
  profile.disk_beside_compute = std::clamp((write / profile.disk_write + read / profile.disk_read) / 2, 0.05, 1.0);
}

}  // namespace protrain::measure
