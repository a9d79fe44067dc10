// The interface between the library and what computes: a device with an arena, queues and kernels.
// Private: core and plugin come from one build and carry the same build id. The core never sees a vendor's type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "arith/optimizer.h"
#include "base/queue.h"
#include "graph/graph.h"

namespace protrain::backend {

struct DeviceInfo {
  std::string name;            // "cpu", "cuda:0"
  std::string description;     // "AMD EPYC, 2 threads, AVX-512"
  std::uint64_t memory_bytes;  // what may be used at most
  bool shares_memory;          // device and host are the same memory
  bool shares_cores;           // device and host are the same cores
  int threads;                 // team size; 0 where the idea does not apply
  bool asynchronous = false;   // launch and copy only append: the work is done later, queue beside queue
};

// One step's numbers of the optimizer, whichever it is: worked out once, on the host (backend/optimizer_step.h).
struct OptimizerNumbers {
  arith::AdamW adamw = {};
  arith::Sgd sgd = {};
};

// Numbers that change from step to step; kernels read them, no Program holds them.
struct StepScalars {
  OptimizerNumbers update = {}, earlier = {};  // of this step's updates, and of those that the step before left to it
  double loss_scale = 1;
  std::uint64_t step = 0;  // t
  std::uint64_t seed = 0;
  std::uint64_t micro_batch = 0;   // its number within the step, from 0
  std::uint64_t first_sample = 0;  // of the micro-batch, counted over the step: random numbers are keyed by sample
};

// The optimizer's fixed numbers.
struct Optimizer {
  enum class Kind : std::uint8_t { adamw, sgd } kind = Kind::adamw;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01, momentum = 0;
  double clip_value = 0;  // largest magnitude of a gradient's element; 0: any
  int state_count() const { return kind == Kind::adamw ? 2 : (momentum != 0 ? 1 : 0); }  // arrays beside the weights
};

// The update of a few parameters, or of a piece of one.
struct UpdateRequest {
  Optimizer optimizer;
  std::vector<std::int64_t> elements;  // of each
  // Element types: of the weights, float32, or a narrow one for the upper plane of split masters (arith/planes.h); of
  // the gradient, the weights' or float32.
  DType weights = DType::f32, gradient = DType::f32;
  bool earlier = false;  // of the step before
};

// What one launch works on; every pointer is aligned to kAlignment, absent operands are nullptr.
struct Launch {
  std::span<void *const> inputs;
  std::span<void *const> outputs;
  void *scratch = nullptr;
  const StepScalars *scalars = nullptr;  // the same numbers in all launches of a step
};

// `bytes` from one place to another, in memory that the device and the host can reach.
struct Copy {
  void *to;
  const void *from;
  std::uint64_t bytes;
};

// A node made ready to run: for its operator, attributes and types. Holds no tensor.
class Kernel {
 public:
  virtual ~Kernel() = default;
  std::uint64_t scratch_bytes = 0;  // of arena, beside inputs and outputs; fixed when compiled, but for use_variant

  // Algorithms that differ in speed, scratch and rounding, the device's own guess first. A new kernel uses variant 0.
  virtual int variant_count() const { return 1; }
  virtual void use_variant(int) {}
};

struct KernelRequest {
  const graph::Node &node;
  std::vector<graph::Type> inputs;  // dtype none: absent
  std::vector<graph::Type> outputs;
};

// A step that a device has taken down, to do it again. Must not outlive the device, nor what its launches work on.
class Recording {
 public:
  virtual ~Recording() = default;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo &info() const = 0;

  // The kernel for a node; Code::unsupported with the reason where there is none.
  virtual std::unique_ptr<Kernel> compile(const KernelRequest &request) = 0;
  // Update of weights in place. Launch: inputs = {each gradient, status[, scale]}, outputs = {weights, state...} of one
  // parameter after the other, the state of narrow weights being their masters' lower plane first; gradients are
  // multiplied by the scale (float32), then cut to clip_value. Does nothing where the status word (uint32) is not 0.
  virtual std::unique_ptr<Kernel> compile_update(const UpdateRequest &request) = 0;
  // Launch: inputs = scalars of `dtype`, outputs = {status[, copy]}. Where status is still 0 it becomes the mark of the
  // first scalar that is not finite; the copy gets status as it is then.
  virtual std::unique_ptr<Kernel> compile_check(DType dtype, const std::vector<std::uint32_t> &marks) = 0;

  virtual void *allocate_arena(std::uint64_t bytes) = 0;  // once per device; Code::nomem
  // Memory of the device outside the arena, page aligned, for measuring kernels before there is an arena. Outside of
  // steps only. Code::nomem.
  virtual void *allocate(std::uint64_t bytes) = 0;
  virtual void release(void *memory) = 0;
  // Bytes of the device's memory that nobody holds now; 0 where it is the host's.
  virtual std::uint64_t free_bytes() const;
  // Memory of the device <-> host memory, complete on return; outside of steps only.
  virtual void write(void *device, const void *host, std::uint64_t bytes) = 0;
  virtual void read(void *host, const void *device, std::uint64_t bytes) = 0;

  // Host memory that copies are to reach at full speed, for as long as it is not unpinned. Returns how many bytes from
  // the first on are; the system refused the others, they stay pageable and copies of them are slower.
  virtual std::uint64_t pin(void *host, std::uint64_t bytes);
  virtual void unpin(void *host);

  // Runs `issue` where launches are cheapest (on the CPU: on the team's first member, so that none is handed over
  // between threads), then waits for all queues. Exceptions come out here.
  virtual void run_step(void (*issue)(void *), void *argument) = 0;
  // Inside run_step, on the thread that issues: appends to a queue. What is appended to one queue runs in order.
  virtual void launch(Queue queue, Kernel &kernel, const Launch &launch) = 0;
  virtual void copy(Queue queue, const Copy &copy) = 0;
  // On any thread but the one that issues a step, beside whatever the device does; complete on return. Operands lie in
  // host memory. Launches by one thread at a time. Only for updates and copies, whose bits do not depend on who does
  // them.
  virtual void launch_alone(Kernel &kernel, const Launch &launch) = 0;
  virtual void copy_alone(const Copy &copy) = 0;

  // Asynchronous devices only. Events 0 .. count - 1, outside of steps; an event that was never recorded is over.
  virtual void reserve_events(std::size_t count);
  // The event is over once all is done that the queue holds now.
  virtual void record(Queue queue, std::size_t event);
  // What is appended to the queue from now on waits for the event as it was recorded last.
  virtual void wait(Queue queue, std::size_t event);
  // This thread waits; an error of anything that was appended before comes out here. On any thread.
  virtual void wait_here(std::size_t event);
  // When the event was over in the last run_step, or in the last replay of a timed recording, counted from its begin.
  virtual std::int64_t event_ns(std::size_t event);

  // Takes down what `issue` appends, and does none of it. The same must have run before: what a first time needs, such
  // as loading kernels, cannot be taken down. `timed`: replays tell when their events were over, which costs them time;
  // else events only make queues wait. nullptr: the device does not do this. Where it refuses, its error comes out, and
  // steps can go on being issued.
  virtual std::unique_ptr<Recording> record_step(void (*issue)(void *), void *argument, bool timed);
  // What run_step would do, were it to issue the same with these numbers.
  virtual void replay_step(Recording &recording, const StepScalars &scalars);
};

// Opens "cpu" or "cuda:0". threads 0: as many as the process may use. tf32: a GPU's products of float32 round what they
// multiply to 10 bits behind the point.
std::unique_ptr<Device> open(const std::string &device, int threads, bool tf32 = false);

}  // namespace protrain::backend
