// How fast the disk is, and what it and compute take from each other.
#pragma once

#include <string>

#include "backend/backend.h"
#include "profile/profile.h"

namespace protrain::measure {

// Fills disk_read, disk_write and, where cores are shared, the shares beside compute. Writes a file without a name of
// 256 MiB, or of what the disk has free, whichever is less. Code::io, Code::nospc, Code::path.
void measure_disk(backend::Device &device, const std::string &directory, profile::Profile &profile);

}  // namespace protrain::measure
