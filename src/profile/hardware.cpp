// Machines that can be planned for by name. Rates are what programs sustain, not what data sheets promise. The buses of
// rtx3090 and a100-80gb are those of the ProTrain paper's testbeds (section 5.1).
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "profile/profile.h"

namespace protrain::profile {

namespace {

constexpr std::uint64_t kGiB = 1ull << 30;

// A GPU with its own memory. 2 GiB of the host are left to the system, half a GiB of the device to the driver.
Profile gpu(const std::string &name, std::uint64_t device_memory, std::uint64_t host_memory) {
  Profile profile;
  profile.name = name;
  profile.device_memory = device_memory;
  profile.host_memory = host_memory;
  profile.device_reserve = kGiB / 2;
  profile.host_reserve = 2 * kGiB;
  profile.launch_seconds = 5e-6;
  return profile;
}

void set_bus(Profile &profile, double bytes_per_second) {
  profile.upload = profile.download = bytes_per_second;
  profile.both_ways = 1.8 * bytes_per_second;
}

// Four GPUs of 24 GiB on PCIe 3, without NVLink; two Xeon 4214R with twelve channels of DDR4-2400.
Profile rtx3090() {
  Profile profile = gpu("rtx3090", 24 * kGiB, 384 * kGiB);
  profile.fp32_flops = 25e12;  // of a nominal 35.6
  profile.bf16_flops = 56e12;  // of a nominal 71, accumulating in fp32
  profile.device_bandwidth = 800e9;
  profile.device_optimizer = 750e9;
  set_bus(profile, 15.8e9);
  profile.host_bandwidth = 150e9;
  profile.host_optimizer = 100e9;
  profile.devices = 4;
  profile.link = 10e9;  // through the host's memory
  profile.link_seconds = 40e-6;
  profile.disk_read = 3.2e9;
  profile.disk_write = 2.6e9;
  return profile;
}

// Four GPUs of 80 GiB on PCIe 4, with NVLink of 300 GB/s; two Xeon 8480+ with sixteen channels of DDR5-4800.
Profile a100() {
  Profile profile = gpu("a100-80gb", 80 * kGiB, 1024 * kGiB);
  profile.fp32_flops = 17e12;   // of a nominal 19.5
  profile.bf16_flops = 220e12;  // of a nominal 312
  profile.device_bandwidth = 1700e9;
  profile.device_optimizer = 1600e9;
  set_bus(profile, 31.5e9);
  profile.host_bandwidth = 400e9;
  profile.host_optimizer = 250e9;
  profile.devices = 4;
  profile.link = 230e9;
  profile.link_seconds = 30e-6;
  profile.disk_read = 6.5e9;
  profile.disk_write = 5e9;
  return profile;
}

// One GPU of 80 GB on PCIe 5, in a virtual machine with 16 cores of a Xeon: rounded from three measurements
// (bench/results/gpu-h100.json).
Profile h100() {
  Profile profile = gpu("h100-80gb", 78 * kGiB, 125 * kGiB);
  profile.fp32_flops = 42e12;
  profile.bf16_flops = 700e12;
  profile.sustained = 0.86;
  profile.device_bandwidth = 2980e9;
  profile.device_optimizer = 2860e9;
  profile.upload = 54e9;
  profile.download = 54.5e9;
  profile.both_ways = 93e9;
  profile.host_bandwidth = 150e9;
  profile.host_optimizer = 130e9;
  profile.launch_seconds = 6e-6;
  profile.disk_read = 3e9;  // the disk was not measured; these are an ordinary NVMe disk's
  profile.disk_write = 2e9;
  return profile;
}

// Eight GPUs of 141 GB on PCIe 5, with NVLink of 450 GB/s; a host of the same generation.
Profile h200() {
  Profile profile = gpu("h200", 139 * kGiB, 2048 * kGiB);
  profile.fp32_flops = 50e12;   // of a nominal 67
  profile.bf16_flops = 620e12;  // of a nominal 989
  profile.device_bandwidth = 4000e9;
  profile.device_optimizer = 3700e9;
  set_bus(profile, 55e9);
  profile.host_bandwidth = 450e9;
  profile.host_optimizer = 300e9;
  profile.devices = 8;
  profile.link = 350e9;
  profile.link_seconds = 30e-6;
  profile.disk_read = 12e9;
  profile.disk_write = 8e9;
  return profile;
}

}  // namespace

Profile share_of(Profile machine, int ranks) {
  if (ranks == 1) return machine;
  require(machine.link > 0, Code::arg, "hardware", "{} has no link between devices; {} ranks need one", machine.name,
          ranks);
  const auto sharers = std::min(static_cast<std::uint64_t>(ranks), machine.devices);
  for (std::uint64_t Profile::*bytes : {&Profile::host_memory, &Profile::host_reserve, &Profile::disk_memory})
    machine.*bytes /= sharers;
  for (double Profile::*rate : {&Profile::host_bandwidth, &Profile::host_optimizer, &Profile::disk_read,
                                &Profile::disk_write, &Profile::disk_both_ways})
    machine.*rate /= static_cast<double>(sharers);
  return machine;
}

std::vector<std::string> known_machines() { return {"rtx3090", "a100-80gb", "h100-80gb", "h200"}; }

Profile known_machine(const std::string &name) {
  for (const Profile &profile : {rtx3090(), a100(), h100(), h200()})
    if (profile.name == name) return profile;
  fail(Code::arg, "hardware", "'{}' is none of the machines that are known by name ({}), and no JSON file", name,
       fmt::join(known_machines(), ", "));
}

}  // namespace protrain::profile
