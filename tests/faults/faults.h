// Faults on demand: this program's own malloc, file calls and pthread_create replace the C library's, for every library
// in the process. While armed, the n-th call of one kind fails, alone or with all that follow it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace protrain::test {

enum class Kind : std::uint8_t { memory, file, thread };

struct Fault {
  Kind kind = Kind::memory;
  std::uint64_t at = ~std::uint64_t{0};  // the call that fails, counted from 0 since arming
  bool from_then_on = false;             // all later calls fail too
};

// `all`: every allocation of oneDNN succeeds, not only those that it does not check. If `new` throws while oneDNN
// prepares a product, oneDNN itself leaks what it has made so far.
void spare_onednn(bool all);

constexpr std::size_t kMostCalls = 1 << 20;

// Counting starts at 0. `sites`: NULL, or room for kMostCalls hashes, one for the call stack of each call.
void arm(const Fault &fault, std::uint64_t *sites = nullptr);
void disarm();
std::uint64_t counted();  // calls of the armed kind since arm()
bool fired();             // true if one has failed

// While one of these lives, this thread's calls are neither counted nor failed.
class Unarmed {
 public:
  Unarmed();
  ~Unarmed();
  Unarmed(const Unarmed &) = delete;
  Unarmed &operator=(const Unarmed &) = delete;
};

// Tracks blocks that were allocated after begin_tracking() and not freed.
void begin_tracking();
std::size_t blocks_left();
std::size_t bytes_of_onednn();  // asked for so far by the calls that must not fail
void show_blocks_left();        // prints their call stacks on stderr; only blocks after show_stacks() have one

// Makes later blocks keep their call stacks, and a failing call print its own.
void show_stacks();

}  // namespace protrain::test
