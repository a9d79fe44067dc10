// Measures the speed of the disk, and how much disk and compute slow each other down.
#pragma once

#include <cstdint>
#include <string>

#include "backend/backend.h"
#include "base/memory.h"
#include "profile/profile.h"

namespace protrain::measure {

// The file that is written and read to measure a disk: `regions` of `region` bytes each.
struct DiskFile {
  std::uint64_t region, regions;
};
// Returns the file to measure with. The file takes at most half of `free` bytes and at most 256 MiB, but never less
// than 4 MiB.
DiskFile disk_file_within(std::uint64_t free);

// Returns a block of `bytes` bytes for the file. A file system that compresses what it stores would look too fast if it
// got equal bytes. So the block holds random floats like those of a model, which repeat only after kTileBytes
// (operands.h). File systems at their default settings compress fewer bytes at a time.
MemoryBlock incompressible(std::uint64_t bytes);

// Fills disk_read, disk_write, disk_both_ways and, on shared cores, compute_beside_disk and disk_beside_compute. Writes
// an unnamed file (see disk_file_within). Throws Code::io, nospc, path.
void measure_disk(backend::Device &device, const std::string &directory, profile::Profile &profile);

}  // namespace protrain::measure
