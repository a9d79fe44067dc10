// Errors that only the values in memory can show: an index outside its table, a label that is no class, an integer
// divided by 0. A kernel that meets one notes it, puts NaN (or 0) in place of what it cannot compute and goes on; the
// check of the loss spoils the step for it, so that nothing is updated; whoever next waits for the device gets the
// error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace protrain::backend::cuda {

// The host may look while kernels run: one thread claims the place, and says whose fault it was when all else is there.
struct Fault {
  std::uint32_t claimed = 0;
  std::uint32_t source = 0;  // 0: nothing happened yet
  std::int64_t value = 0, row = 0;
};

enum class FaultKind : std::uint8_t { index, label, division };

// What a kernel notes its faults with.
struct Note {
  Fault *at;
  std::uint32_t source;
};

// One a device.
class Faults {
 public:
  Faults();
  ~Faults();
  Faults(const Faults &) = delete;
  Faults &operator=(const Faults &) = delete;

  // Values are legal in [0, extent).
  Note source(FaultKind kind, const std::string &subject, std::int64_t extent = 0);
  // For kernels: `claimed` is not 0 from the first fault of a step to the step's end.
  const Fault *noted() const { return fault_; }
  // Throws what was noted, once. On any thread.
  void raise();
  // Before a step.
  void forget();

 private:
  struct Source {
    FaultKind kind;
    std::string subject;
    std::int64_t extent;
  };
  Fault *fault_;
  std::vector<Source> sources_;
};

}  // namespace protrain::backend::cuda
