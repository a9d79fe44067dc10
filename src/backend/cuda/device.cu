#include "backend/cuda/device.h"

#include <array>
#include <charconv>
#include <map>
#include <new>
#include <utility>

#include "backend/cuda/kernel.h"
#include "backend/cuda/pinned.h"
#include "base/memory.h"
#include "base/threads.h"

namespace protrain::backend::cuda {

namespace {
constexpr std::int64_t kHugePage = 2 << 20;

// The scalars of a step, such as the learning rate, in device memory. A step copies them there before its first kernel
// that reads them, always from the same host address. A replayed step repeats this copy, and so gets the new values
// that lie at that address.
class Scalars {
 public:
  Scalars()
      : given_(static_cast<StepScalars *>(allocate_reachable(sizeof(StepScalars)))),
        there_(static_cast<StepScalars *>(allocate(sizeof(StepScalars)))) {}
  ~Scalars() {
    release(there_);
    release_reachable(given_);
  }
  Scalars(const Scalars &) = delete;
  Scalars &operator=(const Scalars &) = delete;

  void give(const StepScalars &scalars) { *given_ = scalars; }  // call it between steps, or before send()
  void send(Stream stream) const { copy(stream, there_, given_, sizeof(StepScalars)); }
  const StepScalars *there() const { return there_; }

 private:
  StepScalars *given_, *there_;
};

// The device's allocations by address. launch() checks that every operand lies in one of them. A kernel that got a host
// address would fault, and then no session of the process could use the device any more.
class Allocations {
 public:
  void *take(std::uint64_t bytes) {
    void *memory = cuda::allocate(bytes);
    ends_[reinterpret_cast<std::uintptr_t>(memory)] = reinterpret_cast<std::uintptr_t>(memory) + bytes;
    return memory;
  }
  void give_back(void *memory) {
    if (ends_.erase(reinterpret_cast<std::uintptr_t>(memory)) > 0) cuda::release(memory);
  }
  void give_back_all() {
    for (const auto &[begin, end] : ends_) cuda::release(reinterpret_cast<void *>(begin));
    ends_.clear();
  }

  void require_holds(std::span<void *const> operands, const char *role) const {
    for (std::size_t i = 0; i < operands.size(); ++i)
      require(operands[i] == nullptr || holds(reinterpret_cast<std::uintptr_t>(operands[i])), Code::internal, "launch",
              "{} {} of a kernel lies in no memory of the device", role, i);
  }

 private:
  bool holds(std::uintptr_t address) const {
    const auto after = ends_.upper_bound(address);
    return after != ends_.begin() && address <= std::prev(after)->second;  // an empty operand may lie at the end
  }

  std::map<std::uintptr_t, std::uintptr_t> ends_;  // the key is the first address
};

// Makes the device current on the calling thread. At its end the thread gets back the context that it had. Without such
// an object CUDA would open device 0 on a thread that has no current context, and leave it current.
class OnDevice {
 public:
  explicit OnDevice(int index) { use_device(index); }
  OnDevice(int index, std::nothrow_t) {
    try {
      use_device(index);
    } catch (const Error &) {  // the device is gone, and its memory with it
    }
  }

 private:
  const CallersContext callers_;
};

struct RecordedStep final : Recording {
  RecordedStep(CapturedGraph step, int device) : captured(step), index(device) {}
  ~RecordedStep() override {
    const OnDevice here(index, std::nothrow);
    destroy(captured);
  }
  const CapturedGraph captured;
  const int index;  // of the device
};

// A GPU. Each queue is a CUDA stream, so copies and kernels run at the same time without a host thread for each queue.
// A step is captured as a CUDA graph, because the host takes longer to issue small kernels one by one than they take to
// run. A replay uses the captured arguments, so these must not change from step to step: they are addresses and sizes.
// Kernels note wrong values on the device (fault.h), and the next thread that waits for the device throws them as
// errors.
//   Each method that calls CUDA has an OnDevice, except those that are only called inside of run_step or record_step.
class CudaDevice : public Device {
 public:
  CudaDevice(const std::string &name, int index, int threads, bool tf32)
      : index_(index), team_(threads, "protrain-host") {
    const std::string description = open_device(index);
    state_ = std::make_unique<DeviceState>(tf32);
    const std::string blas = state_->blas.version();
    scalars_ = std::make_unique<Scalars>();
    for (Stream &stream : streams_) stream = make_stream();
    events_.begin = make_event();
    info_ = {.name = name,
             .description = fmt::format("{}, cuBLASLt {}", description, blas),
             .kind = DeviceKind::gpu,
             .precisions = {DType::f32, DType::bf16},
             .memory_bytes = free_memory(),  // after the CUDA libraries have taken theirs
             .shares_memory = false,
             .shares_cores = false,
             .threads = team_.size(),
             .asynchronous = true,
             .cuda_pci_bus_id = pci_bus_id(index)};
  }
  ~CudaDevice() override {
    const OnDevice here(index_, std::nothrow);
    for (Event event : events_.all) destroy(event);
    if (events_.begin != nullptr) destroy(events_.begin);
    for (Stream stream : streams_)
      if (stream != nullptr) destroy(stream);
    allocations_.give_back_all();
    scalars_.reset();
    state_.reset();
  }

  const DeviceInfo &info() const override { return info_; }

  std::unique_ptr<Kernel> compile(const KernelRequest &request) override {
    const OnDevice here(index_);
    const Factory make = find_kernel(request.node.op);
    require(make != nullptr, Code::unsupported, subject(request), "cuda has no kernel for {}", request.node.op);
    return make(request, *state_);
  }
  std::unique_ptr<Kernel> compile_update(const UpdateRequest &request) override { return make_update(request); }
  std::unique_ptr<Kernel> compile_check(DType dtype, const std::vector<std::uint32_t> &words) override {
    return make_check(dtype, words, *state_);
  }

  void *allocate_arena(std::uint64_t bytes) override {
    require(arena_ == nullptr, Code::internal, info_.name, "the arena was allocated before");
    const OnDevice here(index_);
    return arena_ = allocations_.take(bytes);
  }
  void *allocate(std::uint64_t bytes) override {
    const OnDevice here(index_);
    return allocations_.take(bytes);
  }
  void release(void *memory) override {
    const OnDevice here(index_);
    allocations_.give_back(memory);
  }
  std::uint64_t free_bytes() const override {
    const OnDevice here(index_);
    return free_memory();
  }
  // The team touches all pages before the driver pins them, because the driver would touch them with a single thread.
  std::uint64_t pin(void *host, std::uint64_t bytes) override {
    const OnDevice here(index_);
    auto *const first = static_cast<std::byte *>(host);
    team_.enter([&] {
      team_.run([&](Member &member) {
        const Range own = share(static_cast<std::int64_t>(bytes), kHugePage, member);
        populate(first + own.begin, static_cast<std::uint64_t>(own.size()));
      });
    });
    return pinned_.pin(first, bytes);
  }
  void unpin(void *host) override {
    const OnDevice here(index_, std::nothrow);
    pinned_.unpin(static_cast<std::byte *>(host));
  }
  void write(void *device, const void *host, std::uint64_t bytes) override { copy_alone({device, host, bytes}); }
  void read(void *host, const void *device, std::uint64_t bytes) override { copy_alone({host, device, bytes}); }

  void run_step(void (*issue)(void *), void *argument) override {
    const OnDevice here(index_);
    state_->faults.forget();
    sent_ = false;
    try {
      cuda::record(events_.begin, stream(Queue::compute));
      issue(argument);
    } catch (...) {
      finish_all();
      throw;
    }
    finish_all();
  }

  // Launches a kernel. Before the step's first kernel that takes scalars, such as the learning rate, also sends the
  // scalars to the GPU on the compute queue. All kernels of a step are launched on that queue, so they run after the
  // scalars have arrived.
  void launch(Queue queue, Kernel &kernel, const Launch &launch) override {
    allocations_.require_holds(launch.inputs, "input");
    allocations_.require_holds(launch.outputs, "output");
    allocations_.require_holds({&launch.scratch, 1}, "scratch");
    Launch there = launch;
    if (launch.scalars != nullptr) {
      if (!std::exchange(sent_, true)) {
        scalars_->give(*launch.scalars);
        scalars_->send(stream(Queue::compute));
      }
      there.scalars = scalars_->there();
    }
    static_cast<CudaKernel &>(kernel).run(stream(queue), there);
  }
  void copy(Queue queue, const Copy &copy) override {
    pinned_.each_part(copy, [&](const Copy &part) { cuda::copy(stream(queue), part.to, part.from, part.bytes); });
  }

  void launch_alone(Kernel &kernel, const Launch &launch) override {
    static_cast<CudaKernel &>(kernel).run_on_host(team_, launch);
  }
  void copy_alone(const Copy &copy) override {
    const OnDevice here(index_);
    pinned_.each_part(copy, [](const Copy &part) { copy_now(part.to, part.from, part.bytes); });
  }

  void reserve_events(std::size_t count) override {
    const OnDevice here(index_);
    while (events_.all.size() < count) events_.all.push_back(make_event());
  }
  void record(Queue queue, std::size_t event) override {
    if (!capture_.active) return cuda::record(events_.all.at(event), stream(queue));
    if (capture_.timed) record_captured(events_.all.at(event), stream(queue));
    link(queue, event);
  }
  void wait(Queue queue, std::size_t event) override {
    cuda::wait(stream(queue), capture_.active ? capture_.links.at(event) : events_.all.at(event));
  }
  void wait_here(std::size_t event) override {
    const OnDevice here(index_);
    finish(events_.all.at(event));
  }
  std::int64_t event_ns(std::size_t event) override {
    const OnDevice here(index_);
    return ns_between(events_.begin, events_.all.at(event));
  }

  // Captures a step's work on all queues as a CUDA graph. The capture begins and ends in the compute queue. fork()
  // makes the other queues wait for the compute queue, so that they become part of the capture. join() makes the
  // compute queue wait for the other queues.
  std::unique_ptr<Recording> record_step(void (*issue)(void *), void *argument, bool timed) override {
    const OnDevice here(index_);
    const Stream compute = stream(Queue::compute);
    std::unique_ptr<Recording> recording;
    capture_.active = true;
    capture_.timed = timed;
    sent_ = false;
    capture_.links.assign(events_.all.size() + kQueues.size(), nullptr);
    try {
      begin_capture(compute);
      if (timed) record_captured(events_.begin, compute);
      fork();
      issue(argument);
      join();
      recording = std::make_unique<RecordedStep>(end_capture(compute), index_);
    } catch (...) {
      abandon_capture(compute);
      leave_capture();
      throw;
    }
    leave_capture();
    return recording;
  }
  void replay_step(Recording &recording, const StepScalars &scalars) override {
    const OnDevice here(index_);
    state_->faults.forget();
    scalars_->give(scalars);
    cuda::launch(static_cast<RecordedStep &>(recording).captured, stream(Queue::compute));
    finish_all();
  }

 private:
  Stream stream(Queue queue) const { return streams_[queue]; }

  void leave_capture() {
    capture_.active = false;
    for (Event event : capture_.links)
      if (event != nullptr) destroy(event);
    capture_.links.clear();
  }
  // Records the link of event number `event` in a queue. A link is a second CUDA event that takes the event's place
  // during a capture: the queues of the captured step wait for the link. link() makes a link when it is first
  // needed, and leave_capture() destroys all links. A timed recording also captures the event itself, so that each
  // replay records the time. fork() and join() use links too, one for each queue.
  void link(Queue queue, std::size_t event) {
    if (capture_.links.at(event) == nullptr) capture_.links[event] = make_event();
    cuda::record(capture_.links[event], stream(queue));
  }
  std::size_t link_of(Queue queue) const { return events_.all.size() + static_cast<std::size_t>(queue); }
  void fork() {
    link(Queue::compute, link_of(Queue::compute));
    for (Stream other : streams_)
      if (other != stream(Queue::compute)) cuda::wait(other, capture_.links[link_of(Queue::compute)]);
  }
  void join() {
    for (const Queue other : kQueues) {
      if (other == Queue::compute) continue;
      link(other, link_of(other));
      cuda::wait(stream(Queue::compute), capture_.links[link_of(other)]);
    }
  }

  // Waits for all streams. If a kernel noted a fault, throws the fault and no other error, because the fault says more
  // than the errors that follow from it.
  void finish_all() {
    std::exception_ptr error;
    for (Stream stream : streams_) try {
        finish(stream);
      } catch (...) {
        if (!error) error = std::current_exception();
      }
    state_->faults.raise();
    if (error) std::rethrow_exception(error);
  }

  struct StepEvents {
    std::vector<Event> all;
    Event begin = nullptr;  // of the step
  };

  // The capture of a step as a CUDA graph.
  struct Capture {
    bool active = false, timed = false;
    std::vector<Event> links;  // one for each event, and one for each queue
  };

  const int index_;
  DeviceInfo info_;
  Team team_;  // for updates on the host
  std::unique_ptr<DeviceState> state_;
  std::unique_ptr<Scalars> scalars_;
  bool sent_ = false;  // this step's scalars have been sent
  PerQueue<Stream> streams_{};
  StepEvents events_;
  Capture capture_;
  Allocations allocations_;
  PinnedMemory pinned_;
  void *arena_ = nullptr;  // one of the allocations
};
}  // namespace

std::unique_ptr<Device> open(const std::string &device, int threads, bool tf32) {
  constexpr std::string_view kPrefix = "cuda:";
  int index = -1;
  const char *begin = device.data() + kPrefix.size(), *end = device.data() + device.size();
  const auto [rest, error] = std::from_chars(begin, end, index);
  require(device.starts_with(kPrefix) && error == std::errc() && rest == end && index >= 0, Code::unsupported, "device",
          "\"{}\" is no device of CUDA's; they are cuda:0, cuda:1, ...", device);
  const CallersContext callers;  // the constructor makes the device current
  return std::make_unique<CudaDevice>(device, index, threads, tf32);
}

}  // namespace protrain::backend::cuda
