// The processors that the library's threads may use.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace protrain {

// The processors that the scheduler lets the calling thread use. If OpenMP binds threads, as OMP_PROC_BIND, OMP_PLACES
// or GOMP_CPU_AFFINITY make it do, it has left a single place to the process's first thread. So if the calling thread
// may use no more than one place, these are the processors of all places. A thread that may use several places has been
// given them by its program.
class Processors {
 public:
  Processors();

  int count() const { return std::max(1, static_cast<int>(ids_.size())); }  // at least 1
  // Lets a new thread use the processors, which it has not inherited from a thread that OpenMP has bound.
  void give_to(pthread_t thread) const noexcept;
  // Lets a thread use only the processor number `index` of these. Does nothing if the system does not say which
  // processors there are.
  void give_one_to(pthread_t thread, int index) const noexcept;
  // Returns the index of the processor that the calling thread runs on; -1: it is none of these.
  int here() const noexcept;

 private:
  std::vector<int> ids_;     // empty: the system does not say
  bool are_places_ = false;  // they are OpenMP's places, and the calling thread may use less
};

// Returns the bytes of the largest caches that these processors have, all caches together: 12 x 32 MiB where 96
// processors share twelve caches of level 3. Returns 0 if the system does not say. `root` is the directory above /sys:
// "" except in tests.
std::uint64_t cache_bytes(const std::string &root = "");

}  // namespace protrain
