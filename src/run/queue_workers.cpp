#include "run/queue_workers.h"

#include <pthread.h>

#include <algorithm>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/signals.h"

namespace protrain::run {

QueueWorkers::QueueWorkers(const PerQueue<bool> &own_worker) : own_worker_(own_worker) {
  const BlockedSignals blocked;
  const Processors processors;
  try {
    for (const Queue q : kQueues)
      if (own_worker_[q]) start(q, processors);
  } catch (...) {  // some workers may run already
    close();
    throw;
  }
}

void QueueWorkers::start(Queue queue, const Processors &processors) {
  const char *name = kQueueNames[queue];
  const std::string title = (std::string("protrain/") + name).substr(0, 15);
  try {
    workers_.emplace_back([this, queue] { serve(queue); });
  } catch (const std::system_error &error) {
    protrain::fail(Code::nomem, name, "the system refused a thread: {}", error.what());
  }
  pthread_setname_np(workers_.back().native_handle(), title.c_str());
  processors.give_to(workers_.back().native_handle());
}

QueueWorkers::~QueueWorkers() { close(); }

void QueueWorkers::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  for (std::thread &worker : workers_) worker.join();
}

void QueueWorkers::begin(Job &job) {
  {
    const std::lock_guard lock(mutex_);
    job_ = &job;
    issued_ = 0;
    over_.fill(0);
    working_ = workers_.size();
    failed_ = false;
    outcome_ = {};
    ++run_;
  }
  changed_.notify_all();
}

void QueueWorkers::issue(std::size_t instruction) {
  const std::lock_guard lock(mutex_);
  issued_ = instruction + 1;
  wake();
}

bool QueueWorkers::may_go_on(std::size_t issued, const std::vector<Wait> &waits) const {
  if (failed_) return true;
  return issued_ >= issued && std::ranges::all_of(waits, [&](const Wait &w) { return over_[w.queue] > w.instruction; });
}

void QueueWorkers::sleep(std::unique_lock<std::mutex> &lock, Sleeper &sleeper, std::size_t issued,
                         const std::vector<Wait> &waits) {
  if (may_go_on(issued, waits)) return;
  sleeper.waits = &waits;
  sleeper.issued = issued;
  sleeper.woken.wait(lock, [&] { return sleeper.waits == nullptr; });
}

void QueueWorkers::wake() {
  for (Sleeper &sleeper : sleepers_) {
    if (!sleeper.waits || !may_go_on(sleeper.issued, *sleeper.waits)) continue;
    sleeper.waits = nullptr;
    sleeper.woken.notify_one();
  }
}

bool QueueWorkers::wait(Queue queue, const std::vector<Wait> &waits) {
  std::unique_lock lock(mutex_);
  sleep(lock, sleepers_[queue], 0, waits);
  return !failed_;
}

void QueueWorkers::over(std::size_t instruction, Queue queue) {
  const std::lock_guard lock(mutex_);
  over_[queue] = instruction + 1;
  wake();
}

void QueueWorkers::fail(std::size_t instruction, std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (!failed_) outcome_ = {std::move(error), instruction};
  failed_ = true;
  wake();
}

void QueueWorkers::wait_for_workers() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return working_ == 0; });
}

QueueWorkers::Outcome QueueWorkers::end(std::size_t instructions) {
  std::unique_lock lock(mutex_);
  issued_ = instructions;
  wake();
  changed_.wait(lock, [&] { return working_ == 0; });
  job_ = nullptr;
  return std::move(outcome_);
}

void QueueWorkers::serve(Queue queue) {
  std::uint64_t served = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return closed_ || run_ != served; });
      if (closed_) return;
      served = run_;
    }
    work_through(queue);
    const std::lock_guard lock(mutex_);
    if (--working_ == 0) changed_.notify_all();
  }
}

void QueueWorkers::work_through(Queue queue) {
  for (const std::size_t i : job_->list(queue)) {
    const std::vector<Wait> &waits = job_->waits(i);
    {
      std::unique_lock lock(mutex_);
      sleep(lock, sleepers_[queue], i + 1, waits);
      if (failed_) return;
    }
    try {
      job_->execute(i);
    } catch (...) {
      return fail(i, std::current_exception());
    }
    over(i, queue);
  }
}

}  // namespace protrain::run
