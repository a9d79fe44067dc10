// Devices that forward all work to the CPU device, and change or watch some of it.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"
#include "base/memory.h"

namespace protrain::test {

class Forwarding : public backend::Device {
 public:
  const backend::DeviceInfo &info() const override { return device_->info(); }
  std::unique_ptr<backend::Kernel> compile(const backend::KernelRequest &request) override {
    return device_->compile(request);
  }
  std::unique_ptr<backend::Kernel> compile_update(const backend::UpdateRequest &request) override {
    return device_->compile_update(request);
  }
  std::unique_ptr<backend::Kernel> compile_check(DType dtype, const std::vector<std::uint32_t> &words) override {
    return device_->compile_check(dtype, words);
  }
  void *allocate_arena(std::uint64_t bytes) override { return device_->allocate_arena(bytes); }
  void *allocate(std::uint64_t bytes) override { return device_->allocate(bytes); }
  void release(void *memory) override { device_->release(memory); }
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

// A device that pins at most `most` bytes of host memory.
class UnpinnedDevice final : public Forwarding {
 public:
  explicit UnpinnedDevice(std::uint64_t most = 0) : most_(most) {}
  std::uint64_t pin(void *, std::uint64_t bytes) override { return std::min(most_, bytes); }
  void unpin(void *) override { EXPECT_GT(most_, 0u) << "what was not pinned is unpinned"; }

 private:
  const std::uint64_t most_;
};

// A device that calls `after` when a launch or a copy has ended.
class WatchedDevice final : public Forwarding {
 public:
  explicit WatchedDevice(std::function<void()> after) : after_(std::move(after)) {}

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

// A device that gives kernels scratch outside of the arena, where a faulty Program cannot overwrite it. Matrix products
// store addresses in their scratch, and would crash if these were overwritten.
class ShelteredDevice final : public Forwarding {
 public:
  void launch(Queue queue, backend::Kernel &kernel, const backend::Launch &launch) override {
    if (kernel.scratch_bytes > scratch_.size()) scratch_ = MemoryBlock(kernel.scratch_bytes, "sheltered scratch");
    backend::Launch sheltered = launch;
    sheltered.scratch = launch.scratch == nullptr ? nullptr : scratch_.data();
    Forwarding::launch(queue, kernel, sheltered);
  }

 private:
  MemoryBlock scratch_;
};

// An asynchronous device. Each queue has a thread that runs appended work in order. The threads sleep now and then, so
// that an instruction runs too early if its wait is missing. The queue's thread calls `before` before each kernel. If
// `records` is true, the device records steps.
class Streams final : public Forwarding {
 public:
  explicit Streams(std::function<void(backend::Kernel &)> before = [](backend::Kernel &) {})
      : before_(std::move(before)) {}
  ~Streams() override {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
    for (std::thread &thread : threads_) thread.join();
  }

  const backend::DeviceInfo &info() const override { return info_; }
  void reserve_events(std::size_t count) override { events_.resize(std::max(count, events_.size())); }

  void run_step(void (*issue)(void *), void *argument) override {
    times_known_ = true;
    issue(argument);
    alone_when_issued = alone;
    settle();
  }
  void launch_alone(backend::Kernel &kernel, const backend::Launch &launch) override {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    Forwarding::launch_alone(kernel, launch);
    ++alone;
  }

  // The calls of a recorded step. A replay makes them again.
  struct Calls final : backend::Recording {
    std::vector<std::function<void(const backend::StepScalars &)>> calls;
    bool timed = false;
  };
  bool records = false, refuses = false;
  bool breaks = false;  // a launch fails while it is recorded
  int attempts = 0;
  int recorded_steps = 0, replayed_steps = 0;
  int events_recorded = 0, events_asked = 0;  // calls of record() and event_ns()
  std::atomic<int> alone = 0;                 // launches on the host
  int alone_when_issued = 0;                  // the value of `alone` when the last step had been issued
  std::unique_ptr<backend::Recording> record_step(void (*issue)(void *), void *argument, bool timed) override {
    if (!records) return nullptr;
    ++attempts;
    if (refuses) fail(Code::device, "streams", "they are not recorded today");
    auto recording = std::make_unique<Calls>();
    recording_ = recording.get();
    recording->timed = timed;
    try {
      issue(argument);
    } catch (...) {
      recording_ = nullptr;
      throw;
    }
    recording_ = nullptr;
    ++recorded_steps;
    return recording;
  }
  void replay_step(backend::Recording &recording, const backend::StepScalars &scalars) override {
    ++replayed_steps;
    times_known_ = static_cast<Calls &>(recording).timed;
    for (const auto &call : static_cast<Calls &>(recording).calls) call(scalars);
    settle();
  }

  void launch(Queue queue, backend::Kernel &kernel, const backend::Launch &launch) override {
    if (recording_ != nullptr && breaks) fail(Code::device, "streams", "a kernel is not loaded yet");
    if (recording_ != nullptr)
      return recording_->calls.push_back([=, this, &kernel](const backend::StepScalars &scalars) {
        backend::Launch now = launch;
        now.scalars = &scalars;
        this->launch(queue, kernel, now);
      });
    append(queue, [this, &kernel, launch] {
      before_(kernel);
      auto work = [&] { Forwarding::launch(Queue::compute, kernel, launch); };
      Forwarding::run_step([](void *self) { (*static_cast<decltype(work) *>(self))(); }, &work);
    });
  }
  void copy(Queue queue, const backend::Copy &copy) override {
    if (recording_ != nullptr) return keep([=, this] { this->copy(queue, copy); });
    append(queue, [this, copy] { copy_alone(copy); });
  }
  void record(Queue queue, std::size_t event) override {
    if (recording_ != nullptr) return keep([=, this] { record(queue, event); });
    ++events_recorded;
    const std::uint64_t time = [&] {
      const std::lock_guard lock(mutex_);
      return ++events_[event].recorded;
    }();
    append(queue, [this, event, time] {
      const std::lock_guard lock(mutex_);
      events_[event].reached = time;
    });
  }
  void wait(Queue queue, std::size_t event) override {
    if (recording_ != nullptr) return keep([=, this] { wait(queue, event); });
    append(queue, [this, event, time = recorded(event)] { wait_for(event, time); });
  }
  void wait_here(std::size_t event) override { wait_for(event, recorded(event)); }
  std::int64_t event_ns(std::size_t event) override {
    EXPECT_TRUE(times_known_);
    ++events_asked;
    return static_cast<std::int64_t>(event);
  }

 private:
  struct Event {
    std::uint64_t recorded = 0, reached = 0;  // number of times that it was appended, and reached by its queue
  };

  void settle() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return pending_ == 0; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }
  void keep(std::function<void()> call) {
    recording_->calls.push_back([call = std::move(call)](const backend::StepScalars &) { call(); });
  }
  std::uint64_t recorded(std::size_t event) {
    const std::lock_guard lock(mutex_);
    return events_[event].recorded;
  }
  void wait_for(std::size_t event, std::uint64_t time) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return events_[event].reached >= time; });
  }
  void append(Queue queue, std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      queues_[queue].push_back(std::move(work));
      ++pending_;
    }
    changed_.notify_all();
  }
  void serve(Queue queue) {
    for (std::uint64_t count = static_cast<std::uint64_t>(queue) + 1;; ++count) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return closed_ || !queues_[queue].empty(); });
        if (queues_[queue].empty()) return;
        work = std::move(queues_[queue].front());
        queues_[queue].pop_front();
      }
      if (count % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
      try {
        work();
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
      }
      {
        const std::lock_guard lock(mutex_);
        --pending_;
      }
      changed_.notify_all();
    }
  }

  const backend::DeviceInfo info_ = [this] {
    backend::DeviceInfo info = Forwarding::info();
    info.asynchronous = true;
    return info;
  }();
  const std::function<void(backend::Kernel &)> before_;
  std::mutex mutex_;
  std::condition_variable changed_;
  PerQueue<std::deque<std::function<void()>>> queues_;
  std::vector<Event> events_;
  std::size_t pending_ = 0;
  bool times_known_ = false;
  bool closed_ = false;
  std::exception_ptr error_;
  Calls *recording_ = nullptr;
  std::vector<std::thread> threads_ = [this] {
    std::vector<std::thread> threads;
    for (const Queue q : kQueues) threads.emplace_back([this, q] { serve(q); });
    return threads;
  }();
};

}  // namespace protrain::test
