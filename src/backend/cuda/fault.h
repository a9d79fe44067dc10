// Faults are errors that only a kernel can find, because they depend on values in device memory: an index lies outside
// its table, a label is no class or is the blank, a sample is longer than the data, or an integer is divided by 0. A
// kernel that finds a fault notes it, writes NaN (or 0) for the value that it cannot compute, and goes on. The check of
// the loss then fails the step, so that nothing is updated. The next thread that waits for the device gets the error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace protrain::backend::cuda {

// The first fault of a step. The thread that finds it claims this record, fills it in, and writes `source` last,
// because the host may read the record while kernels run.
struct Fault {
  std::uint32_t claimed = 0;
  std::uint32_t source = 0;  // 0: nothing happened yet
  std::int64_t value = 0, row = 0;
};

enum class FaultKind : std::uint8_t { index, label, blank, length, division };

// The arguments with which a kernel notes a fault: the address of the Fault, and the number of the kernel's entry in
// Faults::sources_, from 1.
struct Note {
  Fault *at;
  std::uint32_t source;
};

// The faults of one device.
class Faults {
 public:
  Faults();
  ~Faults();
  Faults(const Faults &) = delete;
  Faults &operator=(const Faults &) = delete;

  // Registers a kernel that can find faults of this kind, and returns the kernel's Note. `subject` names the kernel's
  // node in errors. Indices, labels and lengths are legal from 0 to extent - 1.
  Note source(FaultKind kind, const std::string &subject, std::int64_t extent = 0);
  // Returns the address of the Fault record, which kernels may read. The record's `claimed` is 0 until a kernel of this
  // step notes a fault.
  const Fault *noted() const { return fault_; }
  // Throws the noted fault, and throws it only once. Does nothing if there is none. Any thread may call it.
  void raise();
  void forget();  // call it before each step

 private:
  struct FaultSource {
    FaultKind kind;
    std::string subject;
    std::int64_t extent;
  };
  Fault *fault_;
  std::vector<FaultSource> sources_;
};

}  // namespace protrain::backend::cuda
