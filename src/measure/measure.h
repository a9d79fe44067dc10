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
  bool variants = false;            // of kernels with several algorithms the quickest is found, else the first is timed
  Now now = steady_now;
};

// Told before each thing that is measured: how many were, and of how many.
using Progress = std::function<void(std::size_t done, std::size_t of)>;

// Adds to `profile` whatever of the request it does not have. True where anything was added.
bool measure(backend::Device &device, run::Kernels &kernels, const Request &request, profile::Profile &profile,
             const Progress &progress);

// Where the profile of a machine is kept between runs: one file for each device, number of threads, version of the
// library and file system of the disk. The choice of algorithms, on which bits depend, has a file for each device and
// version of the library, whatever else a session is given. Neither a file that is missing or damaged nor a directory
// that cannot be written is an error.
class Cache {
 public:
  // `directory`: "": nothing is kept.
  Cache(std::string directory, const backend::DeviceInfo &device, const std::string &disk_directory);

  // Whether what is stored can be loaded again, as far as one can tell.
  bool keeps() const { return !path_.empty(); }
  void load(profile::Profile &profile) const;
  // Sessions that share the directory must use the same algorithms: `profile` gets those that are kept already in place
  // of its own, and no others where its own cannot be kept.
  void store(profile::Profile &profile) const;

 private:
  using Variants = std::map<std::string, std::uint64_t>;
  void store_variants(Variants &variants) const;
  Variants kept_variants() const;

  std::string path_, variants_path_;  // "": none
};

// $XDG_CACHE_HOME/protrain, or .cache/protrain at home; "" where there is neither.
std::string default_cache_directory();

}  // namespace protrain::measure
