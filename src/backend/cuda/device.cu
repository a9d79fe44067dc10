#include "backend/cuda/device.h"

#include <array>
#include <charconv>

#include "backend/cuda/kernel.h"

namespace protrain::backend::cuda {

namespace {
class CudaDevice : public Device {
 public:
  CudaDevice(const std::string &name, int index) : index_(index) {
    const Facts facts = open_device(index);
    info_ = {.name = name,
             .description = facts.description,
             .memory_bytes = facts.memory_bytes,
             .shares_memory = false,
             .shares_cores = false,
             .threads = 0,
             .asynchronous = true};
    site_ = std::make_unique<Site>();
    for (Stream &stream : streams_) stream = make_stream();
    begin_ = make_event();
  }
  ~CudaDevice() override {
    for (Event event : events_) destroy(event);
    if (begin_ != nullptr) destroy(begin_);
    for (Stream stream : streams_)
      if (stream != nullptr) destroy(stream);
    if (arena_ != nullptr) release(arena_);
  }

  const DeviceInfo &info() const override { return info_; }

  std::unique_ptr<Kernel> compile(const KernelRequest &request) override {
    use_device(index_);
    const Factory make = find_kernel(request.node.op);
    require(make != nullptr, Code::unsupported, subject(request), "cuda has no kernel for {}", request.node.op);
    return make(request, *site_);
  }
  std::unique_ptr<Kernel> compile_update(const UpdateRequest &request) override { return make_update(request); }
  std::unique_ptr<Kernel> compile_check(DType dtype, std::uint32_t mark) override { return make_check(dtype, mark); }

  void *allocate_arena(std::uint64_t bytes) override {
    require(arena_ == nullptr, Code::internal, info_.name, "the arena was allocated before");
    use_device(index_);
    return arena_ = allocate(bytes);
  }
  bool pin(void *host, std::uint64_t bytes) override {
    use_device(index_);
    return cuda::pin(host, bytes);
  }
  void unpin(void *host) override { cuda::unpin(host); }
  void write(void *device, const void *host, std::uint64_t bytes) override { copy_now(device, host, bytes); }
  void read(void *host, const void *device, std::uint64_t bytes) override { copy_now(host, device, bytes); }

  void run_step(void (*issue)(void *), void *argument) override {
    use_device(index_);
    try {
      cuda::record(begin_, stream(Queue::compute));
      issue(argument);
    } catch (...) {
      finish_all();
      throw;
    }
    finish_all();
  }

  void launch(Queue queue, Kernel &kernel, const Launch &launch) override {
    static_cast<CudaKernel &>(kernel).run(stream(queue), launch);
  }
  void copy(Queue queue, const Copy &copy) override { cuda::copy(stream(queue), copy.to, copy.from, copy.bytes); }

  void launch_alone(Kernel &kernel, const Launch &launch) override {
    static_cast<CudaKernel &>(kernel).run_on_host(launch);
  }
  void copy_alone(const Copy &copy) override {
    use_device(index_);
    copy_now(copy.to, copy.from, copy.bytes);
  }

  void reserve_events(std::size_t count) override {
    use_device(index_);
    while (events_.size() < count) events_.push_back(make_event());
  }
  void record(Queue queue, std::size_t event) override { cuda::record(events_.at(event), stream(queue)); }
  void wait(Queue queue, std::size_t event) override { cuda::wait(stream(queue), events_.at(event)); }
  void wait_here(std::size_t event) override {
    use_device(index_);
    finish(events_.at(event));
    site_->faults.raise();
  }
  std::int64_t event_ns(std::size_t event) override { return ns_between(begin_, events_.at(event)); }

 private:
  Stream stream(Queue queue) const { return streams_[static_cast<std::size_t>(queue)]; }

  // A fault of the values says more than what came of it.
  void finish_all() {
    std::exception_ptr error;
    for (Stream stream : streams_) try {
        finish(stream);
      } catch (...) {
        if (!error) error = std::current_exception();
      }
    site_->faults.raise();
    if (error) std::rethrow_exception(error);
  }

  const int index_;
  DeviceInfo info_;
  std::unique_ptr<Site> site_;
  std::array<Stream, kQueueCount> streams_{};
  std::vector<Event> events_;
  Event begin_ = nullptr;  // of the step
  void *arena_ = nullptr;
};
}  // namespace

std::unique_ptr<Device> open(const std::string &device) {
  constexpr std::string_view kPrefix = "cuda:";
  int index = -1;
  const char *begin = device.data() + kPrefix.size(), *end = device.data() + device.size();
  const auto [rest, error] = std::from_chars(begin, end, index);
  require(device.starts_with(kPrefix) && error == std::errc() && rest == end && index >= 0, Code::unsupported, "device",
          "\"{}\" is no device of CUDA's; they are cuda:0, cuda:1, ...", device);
  return std::make_unique<CudaDevice>(device, index);
}

}  // namespace protrain::backend::cuda
