// A machine with small and round numbers, for tests.
#pragma once

#include <nlohmann/json.hpp>

#include "profile/profile.h"

namespace protrain::profile {

using Json = nlohmann::ordered_json;

// The profile of a machine with a device, a host and a disk, with all their rates.
inline Profile small() {
  return {.name = "small",
          .device_memory = 1ull << 30,
          .host_memory = 4ull << 30,
          .disk_memory = 16ull << 30,
          .device_reserve = 1ull << 20,
          .host_reserve = 2ull << 20,
          .fp32_flops = 1e12,
          .bf16_flops = 2e12,
          .device_bandwidth = 1e11,
          .launch_seconds = 5e-6,
          .sustained = 0.9375,
          .device_optimizer = 9e10,
          .host_optimizer = 1e10,
          .upload = 1.5e10,
          .download = 1.25e10,
          .both_ways = 2e10,
          .host_bandwidth = 5e10,
          .disk_read = 3e9,
          .disk_write = 2e9,
          .disk_both_ways = 4e9,
          .compute_beside_disk = 0.5625,
          .disk_beside_compute = 0.5,
          .compute_beside_link = 0.875,
          .link_beside_compute = 0.625,
          .waited = 0.125,
          .kernels = {{"MatMul{} f32[2,3] f32[3,4] -> f32[2,4]", 1.25e-5}}};
}

inline Json small_json() { return Json::parse(to_json(small())); }

}  // namespace protrain::profile
