// Measures this machine: each distinct kernel, the optimizer, copies, and the disk, alone and beside compute.
// Kernels run one by one on memory of their own, so a budget is enough if the largest kernel fits into it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "measure/kept_rates.h"
#include "measure/stopwatch.h"
#include "profile/profile.h"
#include "run/kernels.h"

namespace protrain::measure {

// The ranks of one machine, and this rank's place among them. They compute at the same time and share memory and disk,
// so they measure at the same time too.
struct Neighbours {
  std::size_t ranks = 1, place = 0;
};

// Returns a profile with the machine's capacities, but without its speeds. The disk is the one that holds
// `disk_directory`. If `disk_directory` is empty, the profile has no disk.
profile::Profile describe(const backend::DeviceInfo &device, const std::string &disk_directory = "");

struct Request {
  std::vector<const graph::Graph *> graphs;
  const backend::Optimizer &optimizer;
  std::string disk_directory = {};  // "": leave the disk out
  std::uint64_t memory = 0;         // kernels that need more are not measured; their times are derived
  bool variants = false;            // time all algorithms of a kernel and choose the quickest; false: time the first
  bool has_cores = false;           // each thread could have a core, so waiting for one is noted in Profile::waited
  Now now = steady_now;
};

// Called before each measurement: `done` measurements of a total of `of` are finished.
using Progress = std::function<void(std::size_t done, std::size_t of)>;

// Adds to `profile` everything that the request needs and the profile lacks. Returns true if anything was added. A
// kernel that refuses random numbers is tried again each time, and adds nothing.
bool measure(backend::Device &device, run::Kernels &kernels, const Request &request, profile::Profile &profile,
             const Progress &progress);

// Keeps the profile of a machine between runs, in several files of a directory:
// - profile-*.json has what the device does. There is one for each machine to be measured: a device, its libraries, the
//   host's processor, a number of threads, the number of them that can run at the same time, a version of this library,
//   and a rank among its neighbours.
// - disk-*.json has the rates of the disk, for each machine and file system.
// - optimizer-*.json has the rates of the optimizer, for each machine and optimizer. profile-*.json has some
//   optimizer's rates too, because from_json() refuses a profile without; load() replaces them.
// - algorithms-*.json has the choice of algorithms, which decides the bits of results, for each device and version of
//   this library.
// A missing or damaged file is no error, and costs only its own contents. A directory that cannot be written is no
// error either.
class Cache {
 public:
  // If `directory` is empty, nothing is kept.
  Cache(std::string directory, const backend::DeviceInfo &device, const backend::Optimizer &optimizer,
        const std::string &disk_directory, const Neighbours &neighbours = {});

  // True if there is a directory, so that what is stored can be loaded again.
  bool keeps() const { return !path_.empty(); }
  // Adds what is stored to `profile`, which describes the machine as it is now. Leaves out the measurements of a file
  // that is doubtful (see is_doubtful in kept_rates.h), so that they are made again. `idle` says that the cores are
  // idle now. Each file is judged by itself. Profile::waited is that of profile-*.json.
  void load(profile::Profile &profile, bool idle = false) const;
  // Stores the profile. A file that has the same measurements already is not written, so it keeps its age. All sessions
  // that share the directory must use the same algorithms for kernels. So if an algorithm is stored already for a
  // kernel, it replaces the one in `profile`. If storing fails, for example because the directory cannot be written,
  // `profile` keeps only those algorithms that were stored before. `loaded` is the profile after load(). Rates of the
  // disk and the optimizer that were loaded are not stored again, because another session may have measured them anew
  // since then.
  void store(profile::Profile &profile, const profile::Profile &loaded = {}) const;

 private:
  using Variants = std::map<std::string, std::uint64_t>;
  void store_variants(Variants &variants) const;
  Variants kept_variants() const;
  void store_device(profile::Profile profile) const;
  std::optional<profile::Profile> kept_device() const;

  std::string path_, variants_path_;  // "": none
  KeptRates disk_, optimizer_;
};

// Returns $XDG_CACHE_HOME/protrain, or else $HOME/.cache/protrain. Returns "" if neither variable is an absolute path.
std::string default_cache_directory();

}  // namespace protrain::measure
