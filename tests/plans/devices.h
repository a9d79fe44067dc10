// Devices that compute as the CPU does and do a little more around it.
#pragma once

#include <functional>

#include "backend/backend.h"
#include "base/memory.h"

namespace protrain::test {

class Forwarding : public backend::Device {
 public:
  const backend::DeviceInfo &info() const override { return device_->info(); }
  std::unique_ptr<backend::Kernel> compile(const backend::KernelRequest &request) override {
    return device_->compile(request);
  }
  std::unique_ptr<backend::Kernel> compile_update(const backend::Optimizer &optimizer, std::int64_t count) override {
    return device_->compile_update(optimizer, count);
  }
  std::unique_ptr<backend::Kernel> compile_check(DType dtype, std::uint32_t mark) override {
    return device_->compile_check(dtype, mark);
  }
  void *allocate_arena(std::uint64_t bytes) override { return device_->allocate_arena(bytes); }
  void write(void *to, const void *from, std::uint64_t bytes) override { device_->write(to, from, bytes); }
  void read(void *to, const void *from, std::uint64_t bytes) override { device_->read(to, from, bytes); }
  void run_step(void (*issue)(void *), void *argument) override { device_->run_step(issue, argument); }
  void launch(Queue queue, backend::Kernel &kernel, const backend::Launch &launch) override {
    device_->launch(queue, kernel, launch);
  }
  void copy(Queue queue, const backend::Copy &copy) override { device_->copy(queue, copy); }
  void launch_alone(backend::Kernel &kernel, const backend::Launch &launch) override {
    device_->launch_alone(kernel, launch);
  }
  void copy_alone(const backend::Copy &copy) override { device_->copy_alone(copy); }

 private:
  std::unique_ptr<backend::Device> device_ = backend::open("cpu", 2);
};

// Calls `after` when a launch or a copy is over.
class Watched final : public Forwarding {
 public:
  explicit Watched(std::function<void()> after) : after_(std::move(after)) {}

  void launch(Queue queue, backend::Kernel &kernel, const backend::Launch &launch) override {
    Forwarding::launch(queue, kernel, launch);
    after_();
  }
  void copy(Queue queue, const backend::Copy &copy) override {
    Forwarding::copy(queue, copy);
    after_();
  }

 private:
  std::function<void()> after_;
};

// Gives kernels scratch outside of the arena, where a faulty Program cannot reach it: matrix products keep addresses in
// theirs, and follow them wherever they lead.
class Sheltered final : public Forwarding {
 public:
  void launch(Queue queue, backend::Kernel &kernel, const backend::Launch &launch) override {
    if (kernel.scratch_bytes > scratch_.size()) scratch_ = Block(kernel.scratch_bytes, "sheltered scratch");
    backend::Launch sheltered = launch;
    sheltered.scratch = launch.scratch == nullptr ? nullptr : scratch_.data();
    Forwarding::launch(queue, kernel, sheltered);
  }

 private:
  Block scratch_;
};

}  // namespace protrain::test
