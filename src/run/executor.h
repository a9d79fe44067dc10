// Executor: runs one Program. Everything it needs is resolved when it is made; a run is one loop over a list of
// instructions, which hands those of queues with a worker to their worker and runs the others itself; or, where the
// device is asynchronous, appends them to its queues and does not wait. What waits for what is said there by events.
// When its instructions were over such a device tells by an event for each, which costs it time: so only in runs that
// are to be timed. Where nothing but the device has a part in it, each run is the first one's repetition: the device
// records it, if it can, once with times and once without, and is told one thing from then on, to replay it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"
#include "program/summary.h"
#include "run/kernels.h"
#include "run/queue_workers.h"
#include "run/store.h"

namespace protrain::run {

// What happened in the last run.
struct Report {
  std::uint64_t runs = 0;  // so far
  double seconds = 0;
  PerTier<std::uint64_t> peak_bytes{};
  struct Timed {  // the last run that was
    std::uint64_t step = 0;
    double seconds = 0;
    std::vector<program::Span> spans;  // per instruction of the Program; 0 to 0 for what did not run
  } timed;
  program::Beside beside{};  // the queues that have a worker
  bool replayed = false;     // from the device's recording
  std::string not_recorded;  // why the device refused to record the step when it was asked last; "": it did not
};

// What tests do to find faults that timing hides.
struct FaultInjection {
  bool delays = false;  // instructions now and then sleep before they start
  bool poison = false;  // what is released is filled with NaN
};

class Executor final : public Job {
 public:
  // `graph`, `program`, `store` and `workers` must outlive it.
  Executor(backend::Device &device, const graph::Graph &graph, const program::Program &program, Store &store,
           QueueWorkers &workers);

  // Resolves kernels and addresses.
  void bind(Kernels &kernels, const backend::Optimizer &optimizer, const FaultInjection &faults = {});

  // Launches each kernel of the device's queues that is not yet in `warm`, once, on whatever memory holds: what a
  // device loads or takes for a first launch it has then. The status word must not be 0, so that updates change
  // nothing.
  void warm_up(std::set<const backend::Kernel *> &warm);

  // Errors name the instruction; their facts tell what the run had done. A cancel that is seen before the Program's
  // point of commitment stops the run, a later one does not; a replay sees none once it has begun. `timed`: the
  // report's spans are to be of this run; where times cost nothing they always are.
  void run(const backend::StepScalars &scalars, const std::atomic<bool> &cancelled, bool timed);

  const Report &report() const { return report_; }

 private:
  // An instruction, resolved.
  struct Issue {
    Queue queue;
    backend::Kernel *kernel = nullptr;  // nullptr: bytes move
    std::vector<void *> inputs, outputs;
    void *scratch = nullptr;
    std::uint64_t bytes = 0, disk_offset = 0;
    Tier from = Tier::device, to = Tier::device;
    bool commits = false;             // once it has begun, the step cannot be as if it had never been
    bool earlier = false;             // of the step before
    bool over = false;                // in this run; noted of those alone
    bool awaited = false;             // by others, as an event
    std::vector<Wait> waits;          // for what threads run
    std::vector<std::size_t> events;  // for what queues of the device run by themselves: instructions
    std::vector<std::pair<std::byte *, std::uint64_t>> poison;
  };

  // The device's recordings of the step.
  struct Recordings {
    bool possible = false;
    std::uint64_t from_run = 0;                             // the first run that may record; 0: none has succeeded yet
    std::array<std::unique_ptr<backend::Recording>, 2> of;  // without and with times; nullptr: runs are issued
  };

  // The run that is going on, or the last one.
  struct Run {
    std::atomic<bool> committed{false};  // an instruction that commits has begun
    bool stopped = false;                // by a cancel
    bool timed = false;
    const backend::StepScalars *scalars = nullptr;
    const std::atomic<bool> *cancelled = nullptr;
    std::chrono::steady_clock::time_point start;
  };

  const std::vector<std::size_t> &list(Queue queue) const override { return lists_[queue]; }
  const std::vector<Wait> &waits(std::size_t instruction) const override { return issues_[instruction].waits; }
  void execute(std::size_t instruction) override;
  // The device runs the queue by itself, some time after the thread that issues has appended to it.
  bool runs_ahead(Queue queue) const { return device_.info().asynchronous && !workers_.has(queue); }

  Issue resolve(const program::Instruction &instruction, Kernels &kernels, const backend::Optimizer &optimizer,
                const FaultInjection &faults) const;
  backend::Kernel &kernel_of(const program::Instruction &instruction, Kernels &kernels,
                             const backend::Optimizer &optimizer) const;
  static void issue_all(void *self) { static_cast<Executor *>(self)->issue(); }
  void issue();
  void record();
  static void append_all(void *self) { static_cast<Executor *>(self)->append(); }
  void append();
  static void finish_all(void *self) { static_cast<Executor *>(self)->finish_earlier(); }
  void finish_earlier();
  bool stopped(std::size_t instruction);
  void perform(std::size_t instruction, bool alone);
  void move(const Issue &issue, bool alone);
  void note_spans();
  void state_facts(Error &error, std::size_t instruction) const;
  void settle(QueueWorkers::Outcome &outcome);
  [[noreturn]] void rethrow(const QueueWorkers::Outcome &outcome) const;

  backend::Device &device_;
  const graph::Graph &graph_;
  const program::Program &program_;
  Store &store_;
  QueueWorkers &workers_;
  FaultInjection faults_;
  std::vector<Issue> issues_;
  PerQueue<std::vector<std::size_t>> lists_;  // per queue with a worker: its instructions
  Recordings recordings_;
  Run run_;
  Report report_;
};

}  // namespace protrain::run
