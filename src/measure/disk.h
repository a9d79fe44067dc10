// Measures the speed of the disk, and how much disk and compute slow each other down.
#pragma once

#include <string>

#include "backend/backend.h"
#include "profile/profile.h"

namespace protrain::measure {

// Fills disk_read, disk_write, disk_both_ways and, on shared cores, compute_beside_disk and disk_beside_compute. Writes
// an unnamed file of 256 MiB. Throws Code::io, nospc, path.
void measure_disk(backend::Device &device, const std::string &directory, profile::Profile &profile);

}  // namespace protrain::measure
