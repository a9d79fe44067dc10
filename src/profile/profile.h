// Profile: what a machine can hold and how fast it is, as plain data. Measured on the machine at hand, or written down
// for one that nobody here has; predictions know no other source of times.
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
  std::string name;  // "rtx3090", or what the device says of itself
  // Bytes that there are; of the device's and the host's the reserves are kept for the system.
  std::uint64_t device_memory = 0, host_memory = 0, disk_memory = 0;
  std::uint64_t device_reserve = 0, host_reserve = 0;
  DeviceKind kind = DeviceKind::gpu;
  bool shares_memory = false;  // device and host are one memory
  bool shares_cores = false;   // and one set of cores: all but the disk runs in turn

  // What computes.
  double fp32_flops = 0, bf16_flops = 0;  // per second, that large matrix products sustain
  double device_bandwidth = 0;            // bytes per second, of the device's memory
  double launch_seconds = 0;              // from one kernel to the next
  // The optimizer: bytes per second that it reads and writes.
  double device_optimizer = 0, host_optimizer = 0;
  // The ways between memories, bytes per second, each alone; both copies together; what host memory gives to all.
  double upload = 0, download = 0, both_ways = 0, host_bandwidth = 0;
  double disk_read = 0, disk_write = 0;
  // Where cores are shared: the speed that is left to what computes while the disk is at work, and the other way round.
  double compute_beside_disk = 1, disk_beside_compute = 1;

  // Measured times of single kernels, in seconds, by ops::signature; what is not here is derived from the rates above.
  std::map<std::string, double> kernels;
  // The algorithm of single kernels that was the quickest, by ops::signature; of what is not here it is number 0.
  std::map<std::string, std::uint64_t> variants;
  // Bytes of scratch that single kernels work in, by ops::signature; of what is not here it is assumed.
  std::map<std::string, std::uint64_t> scratch;

  double matrix_flops(DType dtype) const { return dtype == DType::bf16 ? bf16_flops : fp32_flops; }
  std::uint64_t usable_device() const { return device_memory - std::min(device_memory, device_reserve); }
  std::uint64_t usable_host() const { return host_memory - std::min(host_memory, host_reserve); }
  bool operator==(const Profile &) const = default;
};

// The share of its speed that is left to each queue while another one is at work too, by queue and by the other:
// copies in both directions share the bus, copies and the host's optimizer its memory, disk and compute the cores.
using Shares = std::array<std::array<double, kQueueCount>, kQueueCount>;
Shares shares(const Profile &profile);

std::string to_json(const Profile &profile);
// Keys are those of the struct; memories may be text ("24GiB"). Code::format where the text is no profile, Code::arg
// for a key that there is not (the nearest is named) and for rates that make no machine.
Profile from_json(const std::string &text);

// The machines that can be planned for by name: "rtx3090", "a100-80gb", "h200".
std::vector<std::string> known_machines();
Profile known_machine(const std::string &name);  // Code::arg names them all

}  // namespace protrain::profile
