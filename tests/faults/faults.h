// Makes calls fail on demand. This program defines malloc, file calls and pthread_create itself, and so replaces the C
// library's for every library in the process. While faults are armed, the n-th call of one kind fails, alone or with
// all later ones.
#pragma once

#include <cstddef>
#include <cstdint>

namespace protrain::test {

enum class Kind : std::uint8_t { memory, file, thread };

struct Fault {
  Kind kind = Kind::memory;
  std::uint64_t at = ~std::uint64_t{0};  // fails this call, counted from 0 since arming
  bool from_then_on = false;             // and all later ones
};

// Spares allocations of oneDNN from faults: all of them, or only those whose results oneDNN does not check. `all` is
// needed while oneDNN prepares products: if `new` throws meanwhile, oneDNN leaks what it has prepared so far.
void spare_onednn(bool all);

constexpr std::size_t kMostCalls = 1 << 20;

// Starts counting calls at 0, and makes the call that `fault` describes fail. `sites` is NULL, or an array with space
// for kMostCalls hashes, in which each counted call stores the hash of its call stack.
void arm(const Fault &fault, std::uint64_t *sites = nullptr);
void disarm();
std::uint64_t counted();  // calls of the armed kind since arm()
bool fired();             // true if a call has failed since arm()

// While an object of this class exists, this thread's calls are neither counted nor failed.
class Disarming {
 public:
  Disarming();
  ~Disarming();
  Disarming(const Disarming &) = delete;
  Disarming &operator=(const Disarming &) = delete;
};

// Tracks blocks of memory that are allocated after begin_tracking() and not freed.
void begin_tracking();
std::size_t blocks_left();
std::size_t bytes_of_onednn();  // allocated by oneDNN's calls of posix_memalign, which must not fail
void show_blocks_left();        // prints their call stacks to stderr, if show_stacks() was called

// Keeps the call stack of each block that is allocated from now on, and makes the first failing call print its stack.
void show_stacks();

}  // namespace protrain::test
