// Profile: what a machine can hold and how fast it is, as plain data. It is measured on the machine at hand, or written
// down for another machine. Predictions take all times from it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/device_kind.h"
#include "base/dtype.h"
#include "base/queue.h"

namespace protrain::profile {

struct Profile {
  std::string name;  // "rtx3090", or the name that the device reports
  // Bytes in total. The reserves are the part of device and host memory that is left to the system.
  std::uint64_t device_memory = 0, host_memory = 0, disk_memory = 0;
  std::uint64_t device_reserve = 0, host_reserve = 0;
  DeviceKind kind = DeviceKind::gpu;
  bool shares_memory = false;  // device and host are one memory
  bool shares_cores = false;   // device and host share one set of cores: everything except the disk takes turns

  // The speed of compute.
  double fp32_flops = 0, bf16_flops = 0;  // per second, as large matrix products sustain
  double device_bandwidth = 0;            // bytes per second, of the device's memory
  double launch_seconds = 0;              // of a kernel's launch
  // The speed of bfloat16 compute in a long run, divided by its speed in a short one. It is below 1 if a GPU lowers its
  // clock after a while. Measurements are short and are corrected by this factor, so bf16_flops and `kernels` are those
  // of long runs.
  double sustained = 1;
  // Bytes per second that the optimizer reads and writes, if it runs on the device or on the host.
  double device_optimizer = 0, host_optimizer = 0;
  // Bytes per second of copies between device and host: each direction alone, and the sum of both at the same time.
  // `host_bandwidth` is the bandwidth of the host's memory.
  double upload = 0, download = 0, both_ways = 0, host_bandwidth = 0;
  // Bytes per second of the disk: each direction alone, and the sum of both at the same time.
  double disk_read = 0, disk_write = 0, disk_both_ways = 0;
  // The number of devices in the machine. The ranks that compute on them share the host's memory and its bandwidth, and
  // the bandwidth of the disk.
  std::uint64_t devices = 1;
  // The bandwidth of one rank's link to the others, in bytes per second, and the latency of an exchange, in seconds. If
  // the link is not faster than `upload`, exchanges and copies are assumed to use the same bus.
  double link = 0, link_seconds = 0;
  // The fraction of its speed that compute keeps during disk I/O, and the fraction of its speed that the disk keeps
  // during compute. Both matter only if shares_cores.
  double compute_beside_disk = 1, disk_beside_compute = 1;
  // The fraction of its speed that compute keeps during exchanges between ranks, and the fraction that the exchanges
  // keep during compute. Both matter only if shares_cores, because the exchanges then copy on the cores that compute.
  double compute_beside_link = 1, link_beside_compute = 1;
  // While kernels and rates were measured, the process's threads ran on a core or waited for a core. `waited` is the
  // share of their time in which they waited.
  double waited = 0;

  // Measured times of single kernels, in seconds, by ops::signature. The times of other kernels follow from the rates.
  std::map<std::string, double> kernels;
  // The numbers of the fastest algorithms of single kernels, by ops::signature. Other kernels use algorithm 0.
  std::map<std::string, std::uint64_t> variants;
  // Bytes of scratch that single kernels need, by ops::signature. For other kernels the operators' estimate counts.
  std::map<std::string, std::uint64_t> scratch;

  // Returns the disk's total rate while it reads and writes at the same time. If a described machine leaves out
  // disk_both_ways, returns the faster of disk_read and disk_write.
  double disk_total() const { return disk_both_ways > 0 ? disk_both_ways : std::max(disk_read, disk_write); }
  // Returns the rate of matrix products. A GPU multiplies float16 as fast as bfloat16, a CPU widens it to float32.
  double matrix_flops(DType dtype) const {
    const bool half = dtype == DType::bf16 || (dtype == DType::f16 && kind == DeviceKind::gpu);
    return half ? bf16_flops : fp32_flops;
  }
  std::uint64_t usable_device() const { return device_memory - std::min(device_memory, device_reserve); }
  std::uint64_t usable_host() const { return host_memory - std::min(host_memory, host_reserve); }
  bool operator==(const Profile &) const = default;
};

// Returns how many of `free` bytes of the host's memory plans leave free. They are for other processes, and for what a
// session takes besides its arenas: code, threads, oneDNN's memory, files that are read.
inline std::uint64_t left_to_the_system(std::uint64_t free) {
  constexpr std::uint64_t kLeast = 96ull << 20;
  return std::max(kLeast, free / 20);
}

// shares[a][b]: the fraction of its speed that queue `a` keeps while queue `b` works too. Two queues slow each other if
// they use the same bus, disk or cores, or the host's memory; shares.cpp has the cases. Compute keeps its share beside
// a queue that works at full speed, and more beside one that is slowed itself.
using Shares = PerQueue<PerQueue<double>>;
Shares shares(const Profile &profile);

// Returns the part of a machine that each of several ranks has. Throws Code::arg if the machine has no link.
Profile share_of(Profile machine, int ranks);

std::string to_json(const Profile &profile);
// Reads a profile. Its keys are the members of the struct. Sizes of memory may be text ("24GiB"). Throws Code::format
// if the text is no profile. Throws Code::arg for an unknown key (the nearest is named) and for rates that no machine
// can have.
Profile from_json(const std::string &text);

// Machines that can be planned for by name: "rtx3090", "a100-80gb", "h100-80gb", "h200".
std::vector<std::string> known_machines();
Profile known_machine(const std::string &name);  // throws Code::arg with a list of the names

}  // namespace protrain::profile
