// The interface between the library and a device, which has an arena, queues and kernels. The interface is private: the
// library and its plugins come from one build and carry the same build id. The library never sees a vendor's type.
#pragma once

#include <array>
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
#include "graph/optimizer_array.h"

namespace protrain::backend {

// A device's description of itself. shares_memory and shares_cores do not follow from `kind`. A GPU, for example, may
// compute in the host's memory.
struct DeviceInfo {
  std::string name;         // "cpu", "cuda:0"
  std::string description;  // "AMD EPYC, 2 threads, AVX-512"
  std::string libraries;    // versions and settings that `description` lacks: "oneDNN 2.6.2, 0x67, hints 0"
  DeviceKind kind = DeviceKind::cpu;
  std::vector<DType> precisions;   // the element types that a step can be computed in
  std::uint64_t memory_bytes = 0;  // the most that may be used
  bool shares_memory = false;      // the device computes in the host's memory; else it has its own
  bool shares_cores = false;       // the device computes on the host's cores; else it has its own
  int threads = 0;                 // team size; 0: the device has no team
  bool asynchronous = false;       // launch() and copy() only append work; the queues do the work later, side by side
  std::string cuda_pci_bus_id;     // PCI bus ID of a CUDA GPU, by which NCCL finds it: "0000:17:00.0"
};

// The numbers that all updates of a step use for the parameters of one group. The host computes them once
// (backend/optimizer_numbers.h).
struct OptimizerNumbers {
  arith::AdamW adamw = {};
  arith::Sgd sgd = {};
  arith::Adagrad adagrad = {};
  arith::Lion lion = {};
  float average_rest = 0;  // factor of the new weights in the update of their moving average
};

// The parameters of one group have the same learning rate and weight decay. GroupNumbers has the numbers of each group.
inline constexpr std::size_t kMostGroups = 256;
using GroupNumbers = std::array<OptimizerNumbers, kMostGroups>;

// The numbers that change from step to step, such as the learning rate. A Program is the same for all steps, so each
// launch reads these numbers through a pointer.
struct StepScalars {
  GroupNumbers update = {};   // for this step's updates
  GroupNumbers earlier = {};  // for updates that the previous step left to this step
  double loss_scale = 1;
  std::uint64_t step = 0;  // the step's number t
  std::uint64_t seed = 0;
  std::uint64_t micro_batch = 0;  // number of the micro-batch within the step, from 0
  // The number of the micro-batch's first sample within the step. Random numbers depend on it.
  std::uint64_t first_sample = 0;
};

// The optimizer's settings, which no step changes. `assign` is the kind for state that forward changes, such as running
// means. The state's new value is given in place of a gradient, and the update copies it over the old value.
inline constexpr const char *kAverageName = "ema";  // of the array that holds a moving average of weights

struct Optimizer {
  enum class Kind : std::uint8_t { adamw, sgd, adagrad, lion, assign } kind = Kind::adamw;
  // AdamW's bias correction, which is needed because moments begin at zero. `moments` corrects each moment. `rate`
  // corrects only the learning rate, and then epsilon is added to the root of the uncorrected second moment. `none`
  // corrects nothing.
  enum class Correction : std::uint8_t { moments, rate, none } correction = Correction::moments;
  bool decoupled = true;      // AdamW: the weight itself decays; false: weight_decay adds to the gradient, as in Adam
  bool decays_after = false;  // AdamW: the weight decays after the step, not before it
  bool nesterov = false;
  bool coded = false;  // AdamW: moments are kept in 8 bits (arith/code8.h)
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01, momentum = 0, dampening = 0, rate_decay = 0;
  double average = 0;              // decay of the moving average of weights; 0: there is none
  double clip_value = 0;           // largest magnitude of a gradient's element; 0: no limit
  std::int64_t earlier_steps = 0;  // number of steps made before the session's first step

  const char *name() const;  // as the option optimizer says it
  // Returns the arrays that the optimizer keeps for a parameter besides its weights. The moving average comes first.
  // Arrays of wide elements come before those of narrow ones, so that all are aligned in a checkpoint's file.
  std::vector<graph::OptimizerArray> state() const;
  int state_count() const { return static_cast<int>(state().size()); }
};

// The settings of a group of parameters: a factor for the step's learning rate, and the weight decay that replaces
// Optimizer::weight_decay.
struct Group {
  double learning_rate_scale = 1, weight_decay = 0;
  bool operator==(const Group &) const = default;
};

// A request for the kernel that updates some parameters, or parts of parameters.
struct UpdateRequest {
  Optimizer optimizer;
  std::vector<std::int64_t> elements;    // element counts of the parameters, or of their parts
  std::vector<std::size_t> groups = {};  // each parameter's index into GroupNumbers; empty: 0 for all
  // Weights are float32 or narrow. Narrow weights are the upper plane of float32 master weights (arith/planes.h).
  // Gradients have the weights' element type or float32.
  DType weights = DType::f32, gradient = DType::f32;
  bool earlier = false;  // the update belongs to the previous step, which left it to this step

  std::size_t group(std::size_t parameter) const { return groups.empty() ? 0 : groups[parameter]; }
};

// The operands of one launch. Every pointer is aligned to kAlignment; absent operands are nullptr.
struct Launch {
  std::span<void *const> inputs;
  std::span<void *const> outputs;
  void *scratch = nullptr;
  const StepScalars *scalars = nullptr;  // the same numbers in all launches of a step
};

// A copy between two addresses. Each lies in the device's memory or in the host's.
struct Copy {
  void *to;
  const void *from;
  std::uint64_t bytes;
};

// A node made ready to run. Its operator, attributes and types are fixed; its operands come with each launch.
class Kernel {
 public:
  virtual ~Kernel() = default;
  // Bytes of the arena that a launch needs besides inputs and outputs. Only use_variant changes this number.
  std::uint64_t scratch_bytes = 0;

  // A variant is one of the algorithms that can compute the kernel. Variants differ in speed, scratch and rounding. A
  // new kernel uses variant 0, the device's own choice.
  virtual int variant_count() const { return 1; }
  virtual void use_variant(int) {}
};

struct KernelRequest {
  const graph::Node &node;
  std::vector<graph::Type> inputs;  // dtype none: the operand is absent
  std::vector<graph::Type> outputs;
};

// The work of one step, captured by record_step() and repeated by replay_step(). The recording must not outlive the
// device, nor the memory that its launches use.
class Recording {
 public:
  virtual ~Recording() = default;
};

// One device: its memory, its queues, and the kernels made for it. The library decides in which order work runs, and
// where each value lies. A device only carries this out. So backends stay small, and the same Program runs on every
// device. Methods that not every device needs have defaults (device.cpp).
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo &info() const = 0;

  // Makes the kernel of a node. Code::unsupported with the reason if there is none.
  virtual std::unique_ptr<Kernel> compile(const KernelRequest &request) = 0;
  // Makes a kernel that updates weights in place. Launch: inputs = {each gradient, status[, scale]}, outputs =
  // {weights, state...} for each parameter in turn. If weights are narrow, their state begins with the lower plane of
  // their float32 masters. Gradients are multiplied by the scale (float32), then limited to clip_value. The kernel does
  // nothing if the status word (uint32) is not 0.
  virtual std::unique_ptr<Kernel> compile_update(const UpdateRequest &request) = 0;
  // Makes a kernel that checks for NaN and infinity. Launch: inputs = scalars of `dtype`, outputs = {status[, copy]}.
  // If the status is 0 and a scalar is not finite, the status becomes words[i], where i is the index of the first such
  // scalar. Then the status is written to the copy.
  virtual std::unique_ptr<Kernel> compile_check(DType dtype, const std::vector<std::uint32_t> &words) = 0;

  virtual void *allocate_arena(std::uint64_t bytes) = 0;  // once per device; Code::nomem
  // Returns memory of the device outside the arena, aligned to kAlignment. Kernels are timed with operands in this
  // memory before there is an arena. Call it outside of steps. Code::nomem if the memory is refused.
  virtual void *allocate(std::uint64_t bytes) = 0;
  virtual void release(void *memory) = 0;
  // Returns how many bytes of the device's own memory are free; 0 if the device computes in the host's memory.
  virtual std::uint64_t free_bytes() const;
  // Returns the bytes of the largest caches, all caches together; 0: not known. Asks the system, which takes a while.
  virtual std::uint64_t cache_bytes() const;
  // write() and read() copy between the device's memory and the host's, and are complete on return. Call them outside
  // of steps.
  virtual void write(void *device, const void *host, std::uint64_t bytes) = 0;
  virtual void read(void *host, const void *device, std::uint64_t bytes) = 0;

  // Pins host memory. Until it is unpinned, copies to and from it run at full speed. Returns how many bytes are pinned,
  // counted from the first. Bytes that the system refuses to pin stay pageable, and copies of them are slower.
  virtual std::uint64_t pin(void *host, std::uint64_t bytes);
  virtual void unpin(void *host);

  // Calls issue(argument), which appends the work of a step, and then waits for all queues. The device makes the call
  // on the thread from which launches are cheapest. On the CPU that thread is the team's first member, so no launch
  // passes between threads. Throws if the work fails.
  virtual void run_step(void (*issue)(void *), void *argument) = 0;
  // launch() and copy() append work to a queue. Call them from `issue`, inside run_step. The work of one queue runs in
  // order.
  virtual void launch(Queue queue, Kernel &kernel, const Launch &launch) = 0;
  virtual void copy(Queue queue, const Copy &copy) = 0;
  // launch_alone() and copy_alone() are complete on return, and may run while the device's queues work. Call them on
  // any thread but the one that issues a step. launch_alone() computes on the host, with operands in host memory; only
  // one thread at a time may call it. The kernel must be an update, because updates give the same bits on host and
  // device.
  virtual void launch_alone(Kernel &kernel, const Launch &launch) = 0;
  virtual void copy_alone(const Copy &copy) = 0;

  // Makes events 0 to count - 1. Call it outside of steps. Only asynchronous devices have events. An event that was
  // never recorded counts as completed.
  virtual void reserve_events(std::size_t count);
  // Records the event in the queue. The event completes once all work that the queue holds now is done.
  virtual void record(Queue queue, std::size_t event);
  // Makes all work that is appended to the queue from now on wait until the event has completed. If the event was
  // recorded several times, the last record() counts.
  virtual void wait(Queue queue, std::size_t event);
  // Makes the calling thread wait for the event. Any thread may call it. Throws if the device failed. If a kernel has
  // met a value that it cannot use, wait_here() does not throw, because the step's other work still counts. Instead,
  // run_step() throws at its end.
  virtual void wait_here(std::size_t event);
  // Returns the time of the event in nanoseconds, counted from the beginning of the last run_step, or of the last
  // replay of a timed recording.
  virtual std::int64_t event_ns(std::size_t event);

  // Captures the work that issue(argument) appends, without running it. The same step must have run before, because the
  // work of a first run, such as loading kernels, cannot be captured. All host memory that it copies must be pinned,
  // because CUDA does not say in which order other copies of a graph run. With `timed`, replays also keep the time of
  // each event, which makes them slower. Without `timed`, events only make queues wait. Returns nullptr if the device
  // cannot capture. Throws if the capture fails; even then, later steps can be issued.
  virtual std::unique_ptr<Recording> record_step(void (*issue)(void *), void *argument, bool timed);
  // Runs the captured step with the numbers `scalars`, and waits for all queues as run_step does.
  virtual void replay_step(Recording &recording, const StepScalars &scalars);
};

// Opens a device, such as "cpu", "cuda:0" or "cuda" (the first of CUDA's), with a team of `threads` threads. 0 means as
// many as the process may use. With `tf32`, matrix products of float32 are computed in TF32, which rounds their factors
// to 10 bits of mantissa. Code::unsupported if no backend has such a device, or if the device has no TF32.
std::unique_ptr<Device> open(const std::string &device, int threads, bool tf32 = false);
// Returns the name of the device for process number `process`, from 0, of this machine. "cuda" stands for cuda:0,
// cuda:1 and so on, one for each process. If there are more processes than GPUs, the numbers begin again with 0. Any
// other name is returned as it is. Code::device if there is no GPU, Code::unsupported if the plugin cannot be loaded.
std::string device_of_process(const std::string &device, int process);
// Returns a glob that matches the names of all devices: "cpu|cuda|cuda:*".
std::string_view device_names();

}  // namespace protrain::backend
