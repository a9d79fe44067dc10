#include "measure/disk.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/signals.h"
#include "base/spill_file.h"

namespace protrain::measure {

namespace {

using Time = std::chrono::steady_clock;

constexpr std::uint64_t kRegion = 16ull << 20, kRegions = 16;
constexpr std::uint64_t kComputeBytes = 512ull << 10;  // fits the caches, so that cores limit the copies, not memory

double seconds_since(Time::time_point start) { return std::chrono::duration<double>(Time::now() - start).count(); }

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
    return static_cast<double>(kRegion * kRegions) / seconds_since(start);
  }

  SpillFile file_;
  MemoryBlock memory_;
};

// Keeps all threads of the device busy with copies that stay in their caches.
class Load {
 public:
  explicit Load(backend::Device &device)
      : device_(device), from_(kComputeBytes, "profiling"), to_(kComputeBytes, "profiling") {}

  // Copies until `stop` returns true. Returns copies per second.
  double until(const std::function<bool()> &stop) {
    stop_ = &stop;
    count_ = 0;
    const Time::time_point start = Time::now();
    device_.run_step([](void *self) { static_cast<Load *>(self)->loop(); }, this);
    return static_cast<double>(count_) / seconds_since(start);
  }

 private:
  void loop() {
    do {
      device_.copy(Queue::compute, {.to = to_.data(), .from = from_.data(), .bytes = kComputeBytes});
      ++count_;
    } while (!(*stop_)());
  }

  backend::Device &device_;
  MemoryBlock from_, to_;
  const std::function<bool()> *stop_ = nullptr;
  std::size_t count_ = 0;
};

template <typename Do>
std::jthread start_thread(const Do &act) {
  const BlockedSignals blocked;
  try {
    return std::jthread(act);
  } catch (const std::system_error &error) {
    fail(Code::nomem, "profiling", "the system refused a thread: {}", error.what());
  }
}

}  // namespace

void measure_disk(backend::Device &device, const std::string &directory, profile::Profile &profile) {
  Transfers transfers(directory);
  transfers.write();  // the first write also makes the file system allocate
  profile.disk_write = transfers.write();
  profile.disk_read = transfers.read();
  if (!profile.shares_cores) return;

  Load load(device);
  const Time::time_point start = Time::now();
  const double alone = load.until([&] { return seconds_since(start) > 0.1; });
  std::atomic<bool> over{false};
  double write = 0, read = 0;
  std::exception_ptr failure;
  const auto transfer = [&] {
    try {
      write = transfers.write();
      read = transfers.read();
    } catch (...) {
      failure = std::current_exception();
    }
    over = true;
  };
  std::jthread worker = start_thread(transfer);  // joins, whatever throws
  const double beside = load.until([&] { return over.load(); });
  worker.join();
  if (failure) std::rethrow_exception(failure);
  profile.compute_beside_disk = std::clamp(beside / alone, 0.05, 1.0);
  profile.disk_beside_compute = std::clamp((write / profile.disk_write + read / profile.disk_read) / 2, 0.05, 1.0);
}

}  // namespace protrain::measure
