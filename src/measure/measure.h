// Measures this machine: each distinct kernel once, the optimizer, copies, and the disk, alone and beside compute.
// Kernels run one by one on memory of their own, so that it works inside any budget that the largest of them fits.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "measure/stopwatch.h"
#include "profile/profile.h"
#include "run/kernels.h"

namespace protrain::measure {

// What the machine has, without its speeds.
profile::Profile describe(const backend::DeviceInfo &device);

struct Request {
  std::vector<const graph::Graph *> graphs;
  const backend::Optimizer &optimizer;
  std::string disk_directory = {};  // "": the disk is left out
  std::uint64_t memory = 0;         // no kernel that needs more is measured: its time is derived from others'
  Now now = steady_now;
};

// Told before each thing that is measured: how many were, and of how many.
using Progress = std::function<void(std::size_t done, std::size_t of)>;

// Adds to `profile` whatever of the request it does not have. True where anything was added.
bool measure(backend::Device &device, run::Kernels &kernels, const Request &request, profile::Profile &profile,
             const Progress &progress);

// Where the profile of a machine is kept between runs: one file for each device, number of threads, version of the
// library and file system of the disk. Neither a file that is missing or damaged nor a directory that cannot be written
// is an error.
class Cache {
 public:
  // `directory`: "": nothing is kept.
  Cache(std::string directory, const backend::DeviceInfo &device, const std::string &disk_directory);

  void load(profile::Profile &profile) const;
  void store(const profile::Profile &profile) const;

 private:
  std::string path_;  // "": none
};

// $XDG_CACHE_HOME/protrain, or .cache/protrain at home; "" where there is neither.
std::string default_cache_directory();

}  // namespace protrain::measure
