#include "backend/cuda/fault.h"

#include <atomic>

#include "backend/cuda/runtime.h"
#include "base/error.h"

namespace protrain::backend::cuda {

Faults::Faults() : fault_(static_cast<Fault *>(allocate_reachable(sizeof(Fault)))) {}
Faults::~Faults() { release_reachable(fault_); }

Note Faults::source(FaultKind kind, const std::string &subject, std::int64_t extent) {
  sources_.push_back({kind, subject, extent});
  return {fault_, static_cast<std::uint32_t>(sources_.size())};
}

void Faults::raise() {
  std::atomic_ref number(fault_->source);
  if (number.load(std::memory_order_acquire) == 0) return;
  const std::uint32_t whose = number.exchange(0);  // if several threads call raise(), only one gets the number
  if (whose == 0) return;
  const Fault fault = *fault_;
  const FaultSource &source = sources_.at(whose - 1);
  switch (source.kind) {
    case FaultKind::index:
      fail(Code::arg, source.subject, "index {} is outside 0..{}", fault.value, source.extent - 1);
    case FaultKind::label:
      fail(Code::arg, source.subject, "label {} of row {} is outside 0..{}", fault.value, fault.row, source.extent - 1);
    case FaultKind::blank:
      fail(Code::arg, source.subject, "label {} of row {} is the blank", fault.value, fault.row);
    case FaultKind::length:
      fail(Code::arg, source.subject, "length {} of sample {} is outside 0..{}", fault.value, fault.row,
           source.extent - 1);
    case FaultKind::division:
      fail(Code::arg, source.subject, "an integer is divided by 0");
  }
}

void Faults::forget() { *fault_ = {}; }

}  // namespace protrain::backend::cuda
