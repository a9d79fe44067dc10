// The interface between the library and what computes: a device with an arena, queues and kernels. It is private: the
// library and its plugins come from one build and carry the same build id. The library never sees a vendor's type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arith/optimizer.h"
#include "base/device_kind.h"
#include "base/queue.h"
#include "graph/graph.h"

namespace protrain::backend {

// A device, as it describes itself. Memory and cores do not follow from the kind: a GPU may compute in the host's
// memory.
struct DeviceInfo {
  std::string name;         // "cpu", "cuda:0"
  std::string description;  // "AMD EPYC, 2 threads, AVX-512"
  DeviceKind kind = DeviceKind::cpu;
  std::vector<DType> precisions;   // the element types that a step can be computed in
  std::uint64_t memory_bytes = 0;  // at most this may be used
  bool shares_memory = false;      // the device computes in the host's memory; else it has its own
  bool shares_cores = false;       // the device computes on the host's cores; else it has its own
  int threads = 0;                 // team size; 0: the device has no team
  bool asynchronous = false;       // launch and copy only append; the work is done later, queue beside queue
};

// The optimizer's numbers of one step. The host works them out once (backend/optimizer_numbers.h).
struct OptimizerNumbers {
  arith::AdamW adamw = {};
  arith::Sgd sgd = {};
};

// Numbers that change from step to step. Kernels read them; no Program holds them.
struct StepScalars {
  OptimizerNumbers update = {}, earlier = {};  // for this step's updates; for those that the step before left over
  double loss_scale = 1;
  std::uint64_t step = 0;  // t
  std::uint64_t seed = 0;
  std::uint64_t micro_batch = 0;   // its number within the step, from 0
  std::uint64_t first_sample = 0;  // its first sample, counted over the step; random numbers are keyed by sample
};

// The optimizer's fixed numbers.
struct Optimizer {
  enum class Kind : std::uint8_t { adamw, sgd } kind = Kind::adamw;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01, momentum = 0;
  double clip_value = 0;  // largest magnitude of a gradient's element; 0: any
  // Arrays that the optimizer keeps beside the weights.
  int state_count() const { return kind == Kind::adamw ? 2 : (momentum != 0 ? 1 : 0); }
};

// The update of a few parameters, or of a part of one.
struct UpdateRequest {
  Optimizer optimizer;
  std::vector<std::int64_t> elements;  // of each parameter
  // Weights are float32, or narrow: then they are the upper plane of split masters (arith/planes.h). Gradients have the
  // weights' element type or float32.
  DType weights = DType::f32, gradient = DType::f32;
  bool earlier = false;  // the update belongs to the step before
};

// The operands of one launch. Every pointer is aligned to kAlignment; absent operands are nullptr.
struct Launch {
  std::span<void *const> inputs;
  std::span<void *const> outputs;
  void *scratch = nullptr;
  const StepScalars *scalars = nullptr;  // the same numbers in all launches of a step
};

// A copy between two addresses that both the device and the host can reach.
struct Copy {
  void *to;
  const void *from;
  std::uint64_t bytes;
};

// A node made ready to run: its operator, attributes and types are fixed. A kernel holds no tensor.
class Kernel {
 public:
  virtual ~Kernel() = default;
  // Arena that the kernel needs beside inputs and outputs. It is fixed when compiled; only use_variant changes it.
  std::uint64_t scratch_bytes = 0;

  // A variant is an algorithm. Variants differ in speed, scratch and rounding. Variant 0 is the device's own guess, and
  // what a new kernel uses.
  virtual int variant_count() const { return 1; }
  virtual void use_variant(int) {}
};

struct KernelRequest {
  const graph::Node &node;
  std::vector<graph::Type> inputs;  // dtype none: the operand is absent
  std::vector<graph::Type> outputs;
};

// A step that a device has taken down, to do it again. It must not outlive the device, nor what its launches work on.
class Recording {
 public:
  virtual ~Recording() = default;
};

// One device: its memory, its queues, and the kernels made for it. The library decides what runs when and where each
// value lies; a device only does it. So backends stay small, and every plan is the same Program on every device.
// Methods that not every device needs have defaults (device.cpp).
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo &info() const = 0;

  // The kernel for a node; Code::unsupported with the reason where there is none.
  virtual std::unique_ptr<Kernel> compile(const KernelRequest &request) = 0;
  // A kernel that updates weights in place. Launch: inputs = {each gradient, status[, scale]}, outputs = {weights,
  // state...} of one parameter after the other. The state of narrow weights begins with their masters' lower plane.
  // Gradients are multiplied by the scale (float32), then cut to clip_value. The kernel does nothing where the status
  // word (uint32) is not 0.
  virtual std::unique_ptr<Kernel> compile_update(const UpdateRequest &request) = 0;
  // A kernel that checks for NaN and infinity. Launch: inputs = scalars of `dtype`, outputs = {status[, copy]}. A
  // status that is still 0 becomes the word of the first scalar that is not finite. The copy gets the status after
  // that.
  virtual std::unique_ptr<Kernel> compile_check(DType dtype, const std::vector<std::uint32_t> &words) = 0;

  virtual void *allocate_arena(std::uint64_t bytes) = 0;  // once per device; Code::nomem
  // Page-aligned memory of the device outside the arena. Kernels are measured in it before there is an arena. Outside
  // of steps only. Code::nomem.
  virtual void *allocate(std::uint64_t bytes) = 0;
  virtual void release(void *memory) = 0;
  // Bytes of the device's own memory that nobody holds now; 0 where the memory is the host's.
  virtual std::uint64_t free_bytes() const;
  // Copies between the device's memory and the host's, complete on return. Outside of steps only.
  virtual void write(void *device, const void *host, std::uint64_t bytes) = 0;
  virtual void read(void *host, const void *device, std::uint64_t bytes) = 0;

  // Pins host memory, so that copies reach it at full speed until it is unpinned. Returns how many bytes are pinned,
  // counted from the first. The system refused the others: they stay pageable, and copies of them are slower.
  virtual std::uint64_t pin(void *host, std::uint64_t bytes);
  virtual void unpin(void *host);

  // Runs `issue` where launches are cheapest, then waits for all queues. On the CPU that is the team's first member: no
  // launch is handed over between threads. Exceptions come out here.
  virtual void run_step(void (*issue)(void *), void *argument) = 0;
  // Both append to a queue, inside run_step, on the thread that issues. The work of one queue runs in order.
  virtual void launch(Queue queue, Kernel &kernel, const Launch &launch) = 0;
  virtual void copy(Queue queue, const Copy &copy) = 0;
  // Both work beside whatever the device does, on any thread but the one that issues a step; complete on return.
  // Operands lie in host memory. One thread launches at a time. Only updates and copies are done this way: their bits
  // do not depend on who does them.
  virtual void launch_alone(Kernel &kernel, const Launch &launch) = 0;
  virtual void copy_alone(const Copy &copy) = 0;

  // Events belong to asynchronous devices only. This makes events 0 .. count - 1, outside of steps. An event that was
  // never recorded is over.
  virtual void reserve_events(std::size_t count);
  // Makes the event be over once all that the queue holds now is done.
  virtual void record(Queue queue, std::size_t event);
  // Makes what is appended to the queue from now on wait for the event, as it was recorded last.
  virtual void wait(Queue queue, std::size_t event);
  // Makes this thread wait, whichever it is. An error of anything that was appended before comes out here.
  virtual void wait_here(std::size_t event);
  // Nanoseconds from the begin of the last run_step, or of the last replay of a timed recording, to the event.
  virtual std::int64_t event_ns(std::size_t event);

  // Takes down what `issue` appends, and does none of it. The same step must have run before: the work of a first time,
  // such as loading kernels, cannot be taken down. With `timed`, replays tell when their events were over, which costs
  // them time; else events only make queues wait. Returns nullptr where the device does not record. Where a device
  // fails to, its error comes out, and steps can still be issued.
  virtual std::unique_ptr<Recording> record_step(void (*issue)(void *), void *argument, bool timed);
  // Does what run_step would do if it issued the same with these numbers.
  virtual void replay_step(Recording &recording, const StepScalars &scalars);
};

// Opens a device, such as "cpu" or "cuda:0". With 0 threads it has as many as the process may use. With `tf32` products
// of float32 round their factors to 10 bits behind the point. Code::unsupported where no backend has such a device, or
// the device has no TF32.
std::unique_ptr<Device> open(const std::string &device, int threads, bool tf32 = false);
// The names of all devices, as a glob: "cpu|cuda:*".
std::string_view device_names();

}  // namespace protrain::backend
